"""Out-of-fold predictions of every candidate on the same rows: what honest scores are made of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shoal.metrics.metric import Metric
from shoal.metrics.tasks import Task
from shoal.search.samples import Sampled


@dataclass(frozen=True, eq=False)
class Evidence:
    """Out-of-fold predictions of every candidate on the same rows."""

    task: Task
    metric: Metric
    prediction: np.ndarray | Sampled  # (n_candidates, n, n_outputs); those that are not in memory are read in blocks
    y: np.ndarray
    weight: np.ndarray  # (n,) in scores
    loss_weight: np.ndarray  # (n,) in losses
    scale: np.ndarray | float  # of losses
    group: np.ndarray | None = None  # (n,) from 0; rows of one group are drawn together

    def counts(self, generator: np.random.Generator) -> np.ndarray:
        """How often each row is in a bootstrap sample."""
        if self.group is None:
            n = len(self.y)
            return np.bincount(generator.integers(n, size=n), minlength=n)
        groups = int(self.group.max()) + 1
        return np.bincount(generator.integers(groups, size=groups), minlength=groups)[self.group]
