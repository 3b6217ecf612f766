"""The table that networks are trained on: one of scikit-learn's, or a file; its rows in three parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from shoal.encoders.encoder import Encoder
from shoal.errors import UserError
from shoal.metrics.tasks import CLASSIFICATION
from shoal.tables.files import read_table
from shoal.tables.schema import Schema
from shoal.tables.table import Table
from shoal.tables.target import find_target
from shoal.validate import nearest

BUNDLED = {
    "digits": "load_digits", "breast-cancer-wisconsin": "load_breast_cancer", "wine": "load_wine", "iris": "load_iris",
}  # fmt: skip
SHARES = (0.6, 0.8)  # trained on up to here, picked by up to there, fresh beyond
FEWEST = 30  # rows


class Question(NamedTuple):
    """Rows to train on, rows to pick by, and fresh rows, which nothing is decided by."""

    name: str
    X: np.ndarray  # (n_rows, n_features) float32: training rows first, then those to pick by
    y: np.ndarray
    n_train: int
    X_fresh: np.ndarray
    y_fresh: np.ndarray
    classes: int

    @property
    def n_pick(self) -> int:
        return len(self.y) - self.n_train

    @property
    def guessing(self) -> float:
        """The accuracy on fresh rows of always saying the class that most training rows have."""
        return float((self.y_fresh == np.bincount(self.y[: self.n_train]).argmax()).mean())

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name, "rows": len(self.y) + len(self.y_fresh), "inputs": self.X.shape[1],
            "classes": self.classes, "training_rows": self.n_train, "picking_rows": self.n_pick,
            "fresh_rows": len(self.y_fresh), "guessing": self.guessing,
        }  # fmt: skip


def load(table: str, target: str | None) -> Question:
    """A bundled table by its name, or a file; read and encoded as `shoal search` does it."""
    if table in BUNDLED:
        if target is not None:
            raise UserError(f"--target is for files; {table} has its own")
        from sklearn import datasets

        X, labels = getattr(datasets, BUNDLED[table])(return_X_y=True)
        return _divided(table, Table.of(X.astype(float)), np.asarray(labels))
    path = Path(table)
    if not path.is_file():
        hint = nearest(table, BUNDLED)
        raise UserError(f"--table must be a file or one of {', '.join(BUNDLED)}; got {table!r}{hint}")
    read, summary = read_table(path, named=[] if target is None else [target])
    name = read.names[-1] if target is None else target
    found = find_target(read, name, ambiguous=summary.ambiguous(read), fewest=FEWEST)
    if found.kind != CLASSIFICATION:
        raise UserError(f"a landscape shows accuracies, but {found.target} has {found.why}: give a table with classes")
    return _divided(path.name.split(".")[0], found.X, np.unique(found.y, return_inverse=True)[1])


def _divided(name: str, table: Table, labels: np.ndarray) -> Question:
    if len(labels) < FEWEST:
        raise UserError(f"a landscape needs at least {FEWEST} rows: 3 of 5 to train on; {name} has {len(labels)}")
    order = np.random.default_rng(0).permutation(len(labels))
    train, seen = (round(share * len(labels)) for share in SHARES)
    learned = table.take(order[:train])
    encoder = Encoder.fit(Schema.of(learned), learned, np.ones(train))
    X = encoder.transform(table.take(order), ("plain",))["plain"].astype(np.float32)
    y = labels[order].astype(np.int64)
    return Question(name, X[:seen], y[:seen], train, X[seen:], y[seen:], int(y.max()) + 1)
