"""Searches for scikit-learn's models: the library's defaults first, then random draws of its settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.peers.tabular.search import Candidate


def forest(task: str, seed: int) -> Iterator[Candidate]:
    """Random forest: takes missing numbers as they are; categories one-hot or as whole numbers."""
    from scipy.stats import loguniform, randint
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
    from sklearn.preprocessing import OrdinalEncoder

    kind = RandomForestClassifier if task == "classification" else RandomForestRegressor
    ordinal = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-1)
    space: dict[str, Any] = {
        "columns__categories": [_one_hot(), ordinal],
        "model__n_estimators": Whole(loguniform(100, 600)),
        "model__max_features": ["sqrt", "log2", 0.2, 0.33, 0.5, 0.7, 1.0],
        "model__min_samples_leaf": Whole(loguniform(1, 20)),
        "model__min_samples_split": randint(2, 12),
        "model__max_depth": [None, None, None, 6, 10, 16],
        "model__max_samples": [None, None, 0.5, 0.7, 0.9],
    }
    if task == "classification":
        space["model__criterion"] = ["gini", "entropy"]
    return drawn(pipeline(columns("passthrough", _one_hot()), kind(n_jobs=1, random_state=seed)), space, seed)


def boosting(task: str, seed: int) -> Iterator[Candidate]:
    """Histogram gradient boosting: categories and missing values as they are, as it was made for."""
    from scipy.stats import loguniform
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    kind = HistGradientBoostingClassifier if task == "classification" else HistGradientBoostingRegressor
    space = {
        "model__learning_rate": loguniform(0.01, 0.3),
        "model__max_iter": Whole(loguniform(20, 500)),
        "model__max_leaf_nodes": Whole(loguniform(3, 64)),
        "model__min_samples_leaf": Whole(loguniform(2, 60)),
        "model__l2_regularization": loguniform(1e-4, 30),
        "model__max_features": [0.3, 0.5, 0.7, 1.0, 1.0],
        "model__max_bins": [63, 127, 255],
        "model__max_depth": [None, None, 2, 3, 5],
    }
    return drawn(pipeline("passthrough", kind(categorical_features="from_dtype", random_state=seed)), space, seed)


def linear(task: str, seed: int) -> Iterator[Candidate]:
    """Logistic or ridge regression with its one parameter searched: what everything else should be held against."""
    from sklearn.base import clone
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    classes = task == "classification"
    model = LogisticRegression(max_iter=2000) if classes else Ridge()
    base = pipeline(columns(make_pipeline(imputed(), StandardScaler()), _one_hot()), model)
    yield base, {}
    for value in np.logspace(-4, 3, 22) if classes else np.logspace(-3, 4, 22):
        parameters = {"model__C" if classes else "model__alpha": float(value)}
        yield clone(base).set_params(**parameters), parameters


def drawn(base: Any, space: dict[str, Any], seed: int) -> Iterator[Candidate]:
    """The base as it is, then without end."""
    from sklearn.base import clone
    from sklearn.model_selection import ParameterSampler

    yield base, {}
    for drawn in ParameterSampler(space, 1_000_000, random_state=seed):
        yield clone(base).set_params(**drawn), drawn


def pipeline(columns: Any, model: Any) -> Any:
    from sklearn.pipeline import Pipeline

    return Pipeline([("columns", columns), ("model", model)])


def columns(numbers: Any, categories: Any) -> Any:
    from sklearn.compose import ColumnTransformer, make_column_selector

    return ColumnTransformer(
        [
            ("numbers", numbers, make_column_selector(dtype_exclude="category")),
            ("categories", categories, make_column_selector(dtype_include="category")),
        ],
        verbose_feature_names_out=False, sparse_threshold=0.0,
    )  # fmt: skip


def imputed() -> Any:
    """The median, and a column that says where a value was missing: being missing may mean something."""
    from sklearn.impute import SimpleImputer

    return SimpleImputer(strategy="median", add_indicator=True)


def _one_hot() -> Any:
    """A missing category is a category; one never seen before is none of them."""
    from sklearn.preprocessing import OneHotEncoder

    return OneHotEncoder(handle_unknown="ignore", sparse_output=False)


class Whole:
    """A distribution of whole numbers."""

    def __init__(self, distribution: Any) -> None:
        self.distribution = distribution

    def rvs(self, *arguments: Any, **keywords: Any) -> int:
        return round(float(self.distribution.rvs(*arguments, **keywords)))
