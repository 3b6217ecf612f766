"""AutoGluon with one of its presets; it is told the metric, the seconds and the cores."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

TARGET = "target"
LIBRARIES = ("torch", "fastai.tabular.all", "catboost", "lightgbm", "xgboost")  # it would import them in its time


class AutoGluon:
    """Models whose weights would have to be downloaded are left to AutoGluon, which skips what it cannot use."""

    def __init__(self, preset: str, task: str, seconds: float, cores: int) -> None:
        self.preset, self.task, self.seconds, self.cores = preset, task, seconds, cores

    def warm_up(self) -> None:
        for name in LIBRARIES:
            importlib.import_module(name)
        self.kind = importlib.import_module("autogluon.tabular").TabularPredictor

    def fit(self, X: Any, y: np.ndarray) -> AutoGluon:
        classes = len(np.unique(y))
        problem = "regression" if self.task == "regression" else "binary" if classes == 2 else "multiclass"
        metric = "root_mean_squared_error" if self.task == "regression" else "log_loss"
        predictor = self.kind(label=TARGET, problem_type=problem, eval_metric=metric, path="models", verbosity=0)
        self.model_ = predictor.fit(
            X.assign(**{TARGET: y}), presets=self.preset, time_limit=self.seconds, num_cpus=self.cores, num_gpus=0
        )
        self.details_ = {"best": str(self.model_.model_best), "candidates": len(self.model_.model_names())}
        return self

    def predict(self, X: Any, classes: int) -> np.ndarray:
        if not classes:
            return self.model_.predict(X).to_numpy(dtype=float)
        known = self.model_.predict_proba(X)
        found = np.zeros((len(X), classes))
        found[:, known.columns.to_numpy(dtype=int)] = known.to_numpy()
        return found


def best(task: str, seconds: float, cores: int, seed: int) -> AutoGluon:
    return AutoGluon("best_quality", task, seconds, cores)


def medium(task: str, seconds: float, cores: int, seed: int) -> AutoGluon:
    return AutoGluon("medium_quality", task, seconds, cores)
