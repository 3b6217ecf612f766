"""Real tables for the tools, each split into rows to fit and rows to score."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from benchmarks.harness.machine import installed
from shoal.datasets import find
from shoal.errors import MissingPackage
from shoal.validate import one_of

if TYPE_CHECKING:
    import pandas as pd

TABLES = ("penguins", "vehicle", "heart-disease", "cmc", "attrition", "concrete", "autompg", "cps1985")
FITTED = 0.7  # of the rows
MOST_ROWS = 3000


class Case(NamedTuple):
    name: str
    task: str
    X: pd.DataFrame
    y: np.ndarray
    X_new: pd.DataFrame
    y_new: np.ndarray

    @property
    def classes(self) -> bool:
        return self.task == "classification"


def load(names: Sequence[str], seed: int = 0) -> list[Case]:
    """Tables by their names, in that order; rows are shuffled by the seed."""
    if not installed("pandas"):
        raise MissingPackage("this benchmark needs pandas: pip install pandas", name="pandas")
    import pandas as pd

    index = find("tables/index.json")
    known = {entry["name"]: entry["task"] for entry in json.loads(index.read_text())}
    cases = []
    for name in names:
        one_of("--tables", name, known)
        table = pd.read_csv(index.parent / f"{name}.csv.gz")
        order = np.random.default_rng(seed).permutation(len(table))[:MOST_ROWS]
        cut = int(FITTED * len(order))
        fit, new = table.iloc[order[:cut]], table.iloc[order[cut:]]
        cases.append(Case(name, known[name], *_parts(fit), *_parts(new)))
    return cases


def _parts(table: pd.DataFrame) -> tuple[pd.DataFrame, np.ndarray]:
    return table.iloc[:, :-1].reset_index(drop=True), np.asarray(table.iloc[:, -1])


def loss(model: Any, X: Any, case: Case) -> float:
    """On the rows to score: log-loss, or 1 - R2. Lower is better."""
    if case.classes:
        found = np.clip(model.predict_proba(X), 1e-7, 1.0)
        place = np.searchsorted(model.classes_, case.y_new)
        found = found / found.sum(axis=1, keepdims=True)
        return float(-np.log(found[np.arange(len(place)), place]).mean())
    error = ((np.asarray(model.predict(X)) - case.y_new) ** 2).mean()
    return float(error / np.var(case.y_new))


def mean_ranks(losses: Sequence[Sequence[float]]) -> list[float]:
    """The mean rank of each contender over tables, 1 is the best; equal losses share their ranks.

    >>> mean_ranks([[0.1, 0.2], [0.3, 0.3]])
    [1.25, 1.75]
    """
    ranks = [[sum(b < a for b in row) + (sum(b == a for b in row) + 1) / 2 for a in row] for row in losses]
    return [float(np.mean(column)) for column in zip(*ranks, strict=True)]
