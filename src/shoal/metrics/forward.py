"""R2 of forecasts: later rows are compared with their own mean, as they will be when they are there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from shoal.metrics.metric import Metric
from shoal.metrics.tasks import Task


def forward_metric(metric: Metric, y: np.ndarray, weight: np.ndarray, stretches: Sequence[np.ndarray]) -> Metric:
    """The metric for rows that are scored in stretches of time, one after the other.

    Where the target drifts, the mean over all stretches is far from each of them. Any forecast of roughly the right
    level would have a high R2 against that mean, and a low one in each stretch.
    """
    if metric.name != "r2":
        return metric
    squares, total = np.zeros(y.shape[1]), 0.0
    for rows in stretches:
        share = weight[rows, None]
        centre = (share * y[rows]).sum(axis=0) / max(float(share.sum()), 1e-300)
        squares += (share * (y[rows] - centre) ** 2).sum(axis=0)
        total += float(share.sum())
    spread = squares / total
    return replace(metric, rows=partial(_explained, spread)) if spread.all() else metric


def _explained(spread: np.ndarray, task: Task, p: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    return np.asarray((1.0 - (p - y) ** 2 / spread).mean(axis=-1))
