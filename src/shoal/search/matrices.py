"""What networks are trained and scored on: rows of numbers, dealt into folds.

Each fold has a matrix of its own. They are stacked: row r of fold k is row k * n + r of one tall matrix, and all folds
train in one population.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from shoal.encoders.target import TargetScaling
from shoal.metrics.tasks import REGRESSION, Task
from shoal.rows import Rows, Split


@dataclass(frozen=True, eq=False)
class Fold:
    """Weights of the distinct rows in training and in validation, and the scaling fitted on the training rows."""

    train: np.ndarray  # (n,)
    valid: np.ndarray  # (n,) in scores
    loss_weight: np.ndarray  # (n,) in losses, where classes may be weighted
    target: TargetScaling


@dataclass(frozen=True, eq=False)
class Matrices:
    """All that training and scoring need to know of the data. It can be sent to a worker (see `payloads`)."""

    task: Task
    y: np.ndarray  # (n,) class numbers or (n, n_outputs), of the distinct rows
    folds: tuple[Fold, ...]
    inputs: dict[str, np.ndarray]  # encoding -> (n_folds * n, width) float32
    targets: np.ndarray  # as y, for each row of the inputs
    splits: tuple[Split, ...]

    @property
    def n(self) -> int:
        return len(self.y)

    @property
    def n_rows(self) -> int:
        """Training rows of the largest fold."""
        return max(len(split.train) for split in self.splits)

    @cached_property
    def valid_weight(self) -> np.ndarray:
        """(n,) how often each distinct row is scored, over all folds."""
        return np.asarray(sum(fold.valid for fold in self.folds))

    @cached_property
    def loss_weight(self) -> np.ndarray:
        """(n,) how much each distinct row counts in losses, over all folds."""
        return np.asarray(sum(fold.loss_weight for fold in self.folds))

    @cached_property
    def loss_scale(self) -> np.ndarray | float:
        """What errors are divided by in losses: the spread of the target, so that outputs count alike."""
        if self.task.kind != REGRESSION:
            return 1.0
        return TargetScaling.fit(self.task, self.y, self.valid_weight + 1e-300).scale

    def rows(self, n_candidates: int, folds: Sequence[int] | None = None) -> Rows:
        """Rows of a population with every candidate on these folds, or on all; folds vary fastest."""
        chosen = np.arange(len(self.splits)) if folds is None else np.asarray(folds)
        return Rows(self.splits, np.tile(chosen, n_candidates))

    def valid_inputs(self, encoding: str, fold: int) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of the rows that a fold is scored on, and their inputs."""
        rows = self.splits[fold].valid
        return rows - fold * self.n, self.inputs[encoding][rows]
