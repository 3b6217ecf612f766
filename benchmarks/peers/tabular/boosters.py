"""CatBoost and LightGBM: with their defaults, and random searches that start with these."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from benchmarks.peers.tabular.scikit import Whole, drawn, pipeline
from benchmarks.peers.tabular.search import Candidate, outputs


class Default:
    """One fit of a library's default on all cores, however long it takes."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.details_: dict[str, Any] = {}

    def warm_up(self) -> None:
        """Nothing is left to import."""

    def fit(self, X: Any, y: np.ndarray) -> Default:
        self.model.fit(X, y)
        return self

    def predict(self, X: Any, classes: int) -> np.ndarray:
        return outputs(self.model, X, classes)


class CatBoost(BaseEstimator):
    """CatBoost that finds its categories by their type. A missing one is a category of its own."""

    def __init__(self, task: str, threads: int, seed: int, settings: dict[str, Any] | None = None) -> None:
        self.task, self.threads, self.seed, self.settings = task, threads, seed, settings

    def fit(self, X: Any, y: np.ndarray) -> CatBoost:
        from catboost import CatBoostClassifier, CatBoostRegressor

        kind = CatBoostClassifier if self.task == "classification" else CatBoostRegressor
        self.categories_ = list(X.select_dtypes("category"))
        self.model_ = kind(
            thread_count=self.threads, random_seed=self.seed, verbose=False, allow_writing_files=False,
            cat_features=self.categories_, **self.settings or {},
        ).fit(self._strings(X), y)  # fmt: skip
        return self

    @property
    def classes_(self) -> np.ndarray:
        return np.asarray(self.model_.classes_)

    def predict(self, X: Any) -> np.ndarray:
        return np.asarray(self.model_.predict(self._strings(X)))

    def predict_proba(self, X: Any) -> np.ndarray:
        return np.asarray(self.model_.predict_proba(self._strings(X)))

    def _strings(self, X: Any) -> Any:
        return X.assign(**{name: X[name].astype(object).fillna("(missing)") for name in self.categories_})


def catboost(task: str, seconds: float, cores: int, seed: int) -> Default:
    import catboost  # noqa: F401

    return Default(CatBoost(task, cores, seed))


def lightgbm(task: str, seconds: float, cores: int, seed: int) -> Default:
    return Default(_lightgbm(task, cores, seed))


def catboost_candidates(task: str, seed: int) -> Iterator[Candidate]:
    from scipy.stats import loguniform, randint
    from sklearn.model_selection import ParameterSampler

    space = {
        "learning_rate": loguniform(0.01, 0.3),
        "iterations": Whole(loguniform(50, 1500)),
        "depth": randint(3, 9),
        "l2_leaf_reg": loguniform(0.5, 30),
        "random_strength": loguniform(0.1, 10),
        "one_hot_max_size": [2, 2, 10, 25],
        "rsm": [0.5, 0.8, 1.0, 1.0],
    }
    yield CatBoost(task, 1, seed), {}
    for settings in ParameterSampler(space, 1_000_000, random_state=seed):
        yield CatBoost(task, 1, seed, settings), settings


def lightgbm_candidates(task: str, seed: int) -> Iterator[Candidate]:
    from scipy.stats import loguniform

    space = {
        "model__learning_rate": loguniform(0.01, 0.3),
        "model__n_estimators": Whole(loguniform(20, 1000)),
        "model__num_leaves": Whole(loguniform(3, 128)),
        "model__min_child_samples": Whole(loguniform(2, 60)),
        "model__reg_lambda": loguniform(1e-4, 30),
        "model__colsample_bytree": [0.3, 0.5, 0.7, 1.0, 1.0],
        "model__subsample": [0.6, 0.8, 1.0],
        "model__subsample_freq": [1],
        "model__extra_trees": [False, False, True],
    }
    return drawn(pipeline("passthrough", _lightgbm(task, 1, seed)), space, seed)


def _lightgbm(task: str, threads: int, seed: int) -> Any:
    from lightgbm import LGBMClassifier, LGBMRegressor

    kind = LGBMClassifier if task == "classification" else LGBMRegressor
    return kind(n_jobs=threads, random_state=seed, verbose=-1)
