"""Shoal with its defaults."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.peers.tabular.search import outputs


class Shoal:
    """The table goes in with its words as they are."""

    def __init__(self, task: str, seconds: float, cores: int, seed: int) -> None:
        self.task, self.seconds, self.seed = task, seconds, seed

    def warm_up(self) -> None:
        from shoal.search.estimators import ShoalClassifier, ShoalRegressor

        self.kind = ShoalClassifier if self.task == "classification" else ShoalRegressor

    def fit(self, X: Any, y: np.ndarray) -> Shoal:
        self.model_ = self.kind(budget=self.seconds, random_state=self.seed).fit(X, y)
        honest = self.model_.honest_score_.as_dict()
        names = ("metric", "corrected", "low", "high", "confidence")
        self.details_ = {
            "candidates": len(self.model_.board_), "honest": {name: honest[name] for name in names},
        }  # fmt: skip
        return self

    def predict(self, X: Any, classes: int) -> np.ndarray:
        return outputs(self.model_, X, classes)
