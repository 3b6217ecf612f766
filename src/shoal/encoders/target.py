"""Scaling of targets for training, and of predictions back to the scale of the target."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shoal.metrics.tasks import REGRESSION, Task

OUTSIDE_RANGE = 0.25  # predictions may leave the range of the training targets by so much of it


@dataclass(frozen=True, eq=False)
class TargetScaling:
    """How targets of one fold are scaled for training, and predictions scaled back."""

    centre: np.ndarray  # (n_outputs,)
    scale: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @staticmethod
    def fit(task: Task, y: np.ndarray, weight: np.ndarray) -> TargetScaling:
        if task.kind != REGRESSION:
            zeros, ones = np.zeros(task.n_outputs), np.ones(task.n_outputs)
            return TargetScaling(zeros, ones, -ones, ones)
        used = weight > 0
        y, weight = y[used], weight[used, None] / weight[used].sum()
        centre = (weight * y).sum(axis=0)
        scale = np.sqrt((weight * (y - centre) ** 2).sum(axis=0))
        margin = OUTSIDE_RANGE * (y.max(axis=0) - y.min(axis=0))
        return TargetScaling(centre, np.where(scale > 0, scale, 1.0), y.min(axis=0) - margin, y.max(axis=0) + margin)

    def forward(self, task: Task, y: np.ndarray) -> np.ndarray:
        return y if task.kind != REGRESSION else ((y - self.centre) / self.scale).astype(np.float32)

    def back(self, task: Task, raw: np.ndarray) -> np.ndarray:
        """Raw outputs of this fold's networks to predictions."""
        if task.kind != REGRESSION:
            return task.activate(raw)
        return np.asarray(np.clip(raw * self.scale + self.centre, self.low, self.high))
