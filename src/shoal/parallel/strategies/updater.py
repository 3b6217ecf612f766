"""The contract of an updater: one worker's part in turning a round of rows into new weights. Each strategy has one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from shoal.parallel.data.loader import Loader, Pair, key
from shoal.parallel.data.ownership import split_rows
from shoal.parallel.events import Notify
from shoal.parallel.exact.tree_sum import Node
from shoal.parallel.lazy import nn, torch
from shoal.parallel.learner import Learner, trained_parameters

if TYPE_CHECKING:
    from shoal.parallel.groups import Group
    from shoal.parallel.job import Job

Items = Sequence[Pair | None]


class Updater(ABC):
    """One worker's part of a strategy: trains on the rows of a round.

    After a round all workers agree on the weights, unless `evaluated` and `finish` say otherwise. A round is one batch
    for most strategies, and more for some. Rounds follow the row order of an epoch, so a run can be resumed after any
    round with any number of workers, unless the strategy's `can_lose_workers` says otherwise.

    Parameters
    ----------
    job : Job
        The checked options.
    group : Group
        This worker's rank, and its messages to the others.
    model : nn.Module
        This worker's copy of the network.
    train : Loader
        The training rows.

    Examples
    --------
    `examples/strategy.py` has a whole one.
    """

    evaluates_together = False  # all workers must evaluate the same rows
    note = ""  # what users are told when training starts
    shares_loss = False  # all workers see the same loss in each step, and so find together that it is not finite

    def __init__(self, job: Job, group: Group, model: nn.Module, train: Loader) -> None:
        self.job, self.group, self.model, self.rows = job, group, model, len(train)
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


class WholeModelUpdater(Updater):
    """Its `learner` has the model, the loss and the optimiser."""

    def __init__(self, job: Job, group: Group, model: nn.Module, train: Loader) -> None:
        super().__init__(job, group, model, train)
        self.least = fewest_rows(model)
        self.learner = Learner(model, job, self.total_steps(), self.own_parameters())

    def own_parameters(self) -> dict[str, nn.Parameter]:
        """The parameters that this worker's optimiser has, by name."""
        return trained_parameters(self.model)

    def state(self) -> dict[str, Any]:
        return self.learner.state()

    def load(self, state: dict[str, Any]) -> None:
        self.learner.load(state)


class BackwardUpdater(WholeModelUpdater):
    """Takes one step for each batch, by torch's backward pass. By itself it is the plain loop of one worker.

    Subclasses have `replicas` of the model, each with a part of the batch, and sum their gradients.
    """

    replicas, replica = 1, 0

    def _bounds(self, rows: int) -> Node:
        return split_rows(rows, self.replicas, self.least)[self.replica] if self.replicas > 1 else (0, rows)

    def parts(self, rows: torch.Tensor) -> list[torch.Tensor]:
        start, end = self._bounds(len(rows))
        # All must take part: a replica without rows computes others that count nothing.
        return [rows[start:end] if end > start else rows[: self.least]]

    def round(self, items: Items, rows: int, step: int) -> tuple[float, int]:
        start, end = self._bounds(rows)
        self.learner.optimizer.zero_grad(set_to_none=True)
        loss = self._backward(given(items[0]), end - start, rows, step)
        self.learner.step(step)
        self.report_loss(loss * rows / max(end - start, 1), step)
        return (loss * rows, end - start) if self._reports() else (0.0, 0)

    def _backward(self, item: Pair, mine: int, rows: int, step: int) -> float:
        """Compute the gradients of `mine` of the batch's rows, summed over replicas; returns their part of the loss."""
        loss = self.learner.scaled_loss(*item, mine / rows, key(self.job.seed, step, self.replica))
        loss.backward()
        return float(loss.detach())

    def _reports(self) -> bool:
        """Whether this worker's loss goes into the record: one of those that have the same loss."""
        return True


def fewest_rows(model: nn.Module) -> int:
    """Rows that a part of a batch needs: batch normalisation needs two."""
    return 2 if any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules()) else 1


def given(item: Pair | None) -> Pair:
    assert item is not None, "a part without rows"
    return item


def note_normalisation(job: Job, model: nn.Module, notify: Notify) -> None:
    """A note where batches are cut into parts: batch normalisation of a part differs from that of the batch."""
    parts = job.method.parts_of_batch(job)
    if parts > 1 and fewest_rows(model) > 1:
        notify("note", f"batch normalisation: each batch is cut into up to {parts} parts, and each has its own mean "
                       "and variance; the result differs from that of --strategy serial")  # fmt: skip
