"""Tables that the search is tried on: scikit-learn's bundled ones, and files that are looked for on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from benchmarks.harness.machine import installed
from shoal.datasets import find
from shoal.errors import MissingPackage
from shoal.validate import one_of

if TYPE_CHECKING:
    import pandas as pd


class Dataset(NamedTuple):
    """A table as people have it: numbers and categories, some of them missing."""

    name: str
    task: str  # "classification" or "regression"
    X: pd.DataFrame
    y: np.ndarray

    @property
    def missing(self) -> float:
        """Share of the cells that are empty."""
        return float(self.X.isna().to_numpy().mean())

    @property
    def categories(self) -> int:
        """Columns that hold categories."""
        return int((self.X.dtypes == "category").sum())


@dataclass(frozen=True)
class Bundled:
    """A set that comes with scikit-learn."""

    loader: str
    task: str = "classification"

    def load(self) -> tuple[pd.DataFrame, np.ndarray]:
        from sklearn import datasets

        X, y = getattr(datasets, self.loader)(return_X_y=True, as_frame=True)
        return X.astype(float), y.to_numpy()


@dataclass(frozen=True)
class File:
    """A CSV file without a header. Columns are counted from 0; those dropped are dropped for every contender."""

    path: str
    task: str = "classification"
    target: int = -1
    drop: Sequence[int] = ()
    zero_is_missing: Sequence[int] = ()
    options: dict[str, Any] = field(default_factory=dict)  # for pandas.read_csv

    def load(self) -> tuple[pd.DataFrame, np.ndarray]:
        import pandas as pd

        table = pd.read_csv(find(self.path), header=None, **self.options)
        target = self.target % table.shape[1]
        for column in self.zero_is_missing:
            table[column] = table[column].mask(table[column] == 0)
        X = table.drop(columns=[target, *self.drop])
        for column in X:
            X[column] = X[column].astype(float if pd.api.types.is_numeric_dtype(X[column]) else "category")
        return X.rename(columns=lambda column: f"column {column + 1}"), np.asarray(table[target].tolist())


# Horse colic: the outcome (column 23) is not known when the question is asked, the kind of the lesion (25 to 27) is the
# answer, and the hospital number (3) is a name.
SOURCES: dict[str, Bundled | File] = {
    "iris": Bundled("load_iris"),
    "wine": Bundled("load_wine"),
    "breast-cancer-wisconsin": Bundled("load_breast_cancer"),
    "digits": Bundled("load_digits"),
    "german": File("tabular/german.csv"),
    "pima": File("tabular/pima-indians-diabetes.csv", zero_is_missing=(1, 2, 3, 4, 5)),
    "horse-colic": File(
        "tabular/horse-colic.csv", target=23, drop=(2, 22, 24, 25, 26), options={"na_values": "?"}
    ),
    "breast-cancer": File("tabular/breast-cancer.csv", options={"quotechar": "'"}),
    "diabetes": Bundled("load_diabetes", "regression"),
    "winequality-red": File("tabular/winequality-red.csv", "regression"),
    "housing": File("tabular/housing.csv", "regression"),
}  # fmt: skip


def load(name: str) -> Dataset:
    """One of the sets by its name; FileNotFoundError where its file is nowhere to be found."""
    one_of("--only", name, SOURCES)
    if not installed("pandas"):
        raise MissingPackage("this benchmark needs pandas: pip install pandas", name="pandas")
    source = SOURCES[name]
    X, y = source.load()
    return Dataset(name, source.task, X, y if source.task == "classification" else y.astype(float))


def folds(task: str, y: np.ndarray, count: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """(train, test) rows, shuffled; every class in every fold as often as it can be."""
    from sklearn.model_selection import KFold, StratifiedKFold

    kind = StratifiedKFold if task == "classification" else KFold
    return list(kind(count, shuffle=True, random_state=seed).split(np.zeros((len(y), 1)), y))
