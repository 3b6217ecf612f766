"""The contract of an updater: one worker's part in turning a round of rows into new weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from shoal.parallel.loader import Pair
from shoal.parallel.tree_sum import Node, shares

if TYPE_CHECKING:
    from shoal.parallel.groups import Group
    from shoal.parallel.job import Job

Items = Sequence[Pair | None]


class Updater(ABC):
    """Trains on the rows of a round.

    After a round all workers agree on the weights, unless `evaluated` and `finish` say otherwise. A round is one batch
    for most strategies, and more for some. Rounds follow the row order of an epoch, so a run can be resumed after any
    round with any number of workers, unless the strategy's `can_lose_workers` says otherwise.
    """

    evaluates_together = False  # all workers must evaluate the same rows
    shares_loss = False  # all workers see the same loss in each step, and so find together that it is not finite

    def __init__(self, job: Job, group: Group, model: nn.Module, rows: int) -> None:
        self.job, self.group, self.rows = job, group, rows
        self.model = model
        self.extra: dict[str, list[float]] = {}  # more numbers for the record of an epoch: its mean and maximum
        self.report_loss: Callable[[float, int], None] = lambda loss, step: None  # set by the worker

    def total_steps(self) -> int:
        """Optimiser steps in the whole run."""
        return self.job.epochs * self.steps_in(self.rows)

    def round_rows(self) -> int:
        """Rows in a round, over all workers."""
        return self.job.batch_size

    def rounds(self, order: torch.Tensor, position: int) -> list[torch.Tensor]:
        """The rows of each round of an epoch that has this order of rows, of which `position` rows are done."""
        left = order[position:]
        return list(left.split(self.round_rows())) if len(left) else []

    def steps_in(self, rows: int) -> int:
        """Optimiser steps for this number of rows."""
        return -(-rows // self.job.batch_size)

    @abstractmethod
    def parts(self, rows: torch.Tensor) -> list[torch.Tensor]:
        """This worker's rows in a round; `round` gets their data in the same parts."""

    @abstractmethod
    def round(self, items: Items, rows: int, step: int) -> tuple[float, int]:
        """Train on a round of `rows` rows, and call `report_loss(mean loss, step)` for each step.

        Returns the sum of the loss over rows, and the number of rows, that this worker accounts for.
        """

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """The whole model and optimiser, for a checkpoint; complete on rank 0. All workers call this together."""

    @abstractmethod
    def load(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""

    def enough(self) -> bool:
        """Asked after each epoch: whether this worker needs no more of them. The run ends when none does."""
        return False

    def evaluated(self) -> nn.Module:
        """The model to evaluate."""
        return self.model

    def finish(self) -> None:  # noqa: B027, optional
        """After the last round."""

    def close(self) -> None:  # noqa: B027, optional
        """Free threads."""


def split_rows(rows: int, parts: int, least: int) -> list[Node]:
    """Split rows into nearly equal parts of at least `least` rows; if there are too few rows, the last parts are empty.

    >>> split_rows(7, 4, 2)
    [(0, 3), (3, 5), (5, 7), (7, 7)]
    """
    filled = min(parts, max(1, rows // least))
    return shares(rows, filled) + [(rows, rows)] * (parts - filled)


def batches(rows: torch.Tensor, size: int, least: int) -> list[torch.Tensor]:
    """Rows in batches of `size`; a last one of fewer than `least` rows joins the one before."""
    parts = list(rows.split(size)) if len(rows) else []
    if len(parts) > 1 and len(parts[-1]) < least:
        parts[-2:] = [torch.cat(parts[-2:])]
    return parts


def batch_sizes(rows: int, size: int, least: int) -> list[int]:
    """The number of rows in each of `batches`.

    >>> batch_sizes(9, 4, 2), batch_sizes(10, 4, 2), batch_sizes(1, 4, 2)
    ([4, 5], [4, 4, 2], [1])
    """
    return [len(part) for part in batches(torch.arange(rows), size, least)]


def fewest_rows(model: nn.Module) -> int:
    """Rows that a part of a batch needs: batch normalisation needs two."""
    return 2 if any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules()) else 1


def given(item: Pair | None) -> Pair:
    assert item is not None, "a part without rows"
    return item
