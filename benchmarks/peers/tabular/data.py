"""A folder of tables, how each is split, and which of them no choice may look at."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from benchmarks.harness.machine import installed
from shoal.errors import MissingFile, MissingPackage
from shoal.validate import one_of

if TYPE_CHECKING:
    import pandas as pd

ENDING = ".csv.gz"
TARGET = "target"
MOST_CLASSES = 10  # more different numbers in the target make it a regression, where no index.json says it
EVERY = 3  # one row of three is a test row, one table of three is held out

# What `is_held_out` says of the tables that Shoal is tuned on. No choice may look at results on these.
HELD_OUT = (
    "autompg", "chem-yield", "computers", "concrete", "heart-disease", "hpc", "page-blocks", "penguins", "spam7",
    "swiss-labor", "tae", "wage",
)  # fmt: skip


class Dataset(NamedTuple):
    """A table. Columns of X are numbers, or words; cells may be missing."""

    name: str
    task: str  # "classification" or "regression"
    X: pd.DataFrame
    y: np.ndarray  # numbers, or classes from 0

    @property
    def classes(self) -> int:
        """How many; 0 for a regression."""
        return int(self.y.max()) + 1 if self.task == "classification" else 0

    def described(self) -> dict[str, Any]:
        words = sum(not _is_number(self.X[column]) for column in self.X)
        return {
            "name": self.name, "task": self.task, "rows": len(self.y), "columns": self.X.shape[1], "words": words,
            "missing": float(self.X.isna().to_numpy().mean()), "classes": self.classes or None,
            "held_out": is_held_out(self.name),
        }  # fmt: skip


def is_held_out(name: str) -> bool:
    """Whether a table belongs to the third that is reported separately. Its name alone decides.

    >>> is_held_out("wage"), is_held_out("car")
    (True, False)
    """
    return int(hashlib.sha256(name.encode()).hexdigest(), 16) % EVERY == 0


def names(folder: Path, only: Iterable[str] = (), held_out: bool | None = None) -> list[str]:
    """Tables in a folder: all, or some; those held out, the others, or both."""
    found = sorted(path.name.removesuffix(ENDING) for path in folder.glob(f"*{ENDING}"))
    if not found:
        raise MissingFile(f"{folder} has no files NAME{ENDING}. Name another folder with --tables.")
    chosen = [one_of("--only", name, found) for name in dict.fromkeys(only)] or found
    return [name for name in chosen if held_out is None or is_held_out(name) == held_out]


def load(folder: Path, name: str) -> Dataset:
    """One table. The index says what its task is, or else the target does."""
    if not installed("pandas"):
        raise MissingPackage("this benchmark needs pandas: pip install pandas", name="pandas")
    import pandas as pd

    table = pd.read_csv(folder / f"{name}{ENDING}")
    if table.columns[-1] != TARGET:
        raise ValueError(f"The last column of {name} must be '{TARGET}'. It is '{table.columns[-1]}'.")
    table = table[table[TARGET].notna()].reset_index(drop=True)
    X, target = table.drop(columns=TARGET), table[TARGET]
    for column in X:
        if not _is_number(X[column]):
            X[column] = X[column].map(str, na_action="ignore").astype(object)
    task = _tasks(folder).get(name) or _guessed_task(target)
    y = np.unique(target.to_numpy(), return_inverse=True)[1] if task == "classification" else target.to_numpy(float)
    return Dataset(name, task, X, y)


def split(data: Dataset, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows to train on and to test on, 67 to 33, in random order. Classes keep their shares.

    A class of one or two rows is in the training rows only.
    """
    order = np.random.default_rng(seed).permutation(len(data.y))
    groups = data.y[order] if data.task == "classification" else np.zeros(len(order))
    is_test = np.zeros(len(order), bool)
    for group in np.unique(groups):
        is_test[np.flatnonzero(groups == group)[EVERY - 1 :: EVERY]] = True
    return order[~is_test], order[is_test]


def _tasks(folder: Path) -> dict[str, str]:
    index = folder / "index.json"
    return {entry["name"]: entry["task"] for entry in json.loads(index.read_text())} if index.exists() else {}


def _guessed_task(target: pd.Series[Any]) -> str:
    return "regression" if _is_number(target) and target.nunique() > MOST_CLASSES else "classification"


def _is_number(column: pd.Series[Any]) -> bool:
    import pandas as pd

    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)
