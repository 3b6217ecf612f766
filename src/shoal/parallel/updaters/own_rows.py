"""What updaters share whose workers take steps alone, on rows of their own, and mix their weights now and then."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from shoal.errors import UserError
from shoal.parallel.learner import Learner
from shoal.parallel.loader import key, rows_in
from shoal.parallel.ownership import owners
from shoal.parallel.tree_sum import shares
from shoal.parallel.updaters.base import Items, batch_sizes, batches, fewest_rows, given
from shoal.parallel.updaters.whole_model import WholeModelUpdater

if TYPE_CHECKING:
    from shoal.parallel.groups import Group
    from shoal.parallel.job import Job


class OwnRowsUpdater(WholeModelUpdater):
    """A round is some steps, or an epoch, of each worker, and then `_mix`. `batch_size` is that of each worker.

    Where workers keep their rows, those of an epoch are in the epoch's order. With rounds of some steps, a worker that
    has fewer rows than others has none left in the last rounds of an epoch.
    """

    keeps_rows = True  # a worker has the same rows in every epoch
    apart = True  # after a round workers have different weights; what is evaluated and delivered is their mean

    def __init__(
        self, job: Job, group: Group, model: nn.Module, rows: int, targets: torch.Tensor | None = None
    ) -> None:
        least = fewest_rows(model)
        self.owner = owners(targets, rows, group.size, job, least)
        self.counts = torch.bincount(self.owner, minlength=group.size).tolist()
        self.steps = _steps_of_rounds(self.counts, job, least)
        super().__init__(job, group, model, rows)
        self.vector = self.learner.new_vector(self.learner.width)
        self.progress = [0.0, 0]  # the sum of the loss in this epoch, and its rows
        self.stopped = False  # by until_error

    # ---- rows ----

    def round_rows(self) -> int:
        every = self.job.average_every
        return self.rows if isinstance(every, str) else every * self.job.batch_size * self.group.size

    def steps_in(self, rows: int) -> int:
        """Those of the worker that takes most."""
        if self.keeps_rows:
            return self.steps[rows]
        return -(-rows // (self.job.batch_size * self.group.size))

    def rounds(self, order: torch.Tensor, position: int) -> list[torch.Tensor]:
        every = self.job.average_every
        if isinstance(every, str) or not self.keeps_rows:
            return super().rounds(order, position)
        own = [batches(order[self.owner[order] == k], self.job.batch_size, self.least) for k in range(self.group.size)]
        found = []
        for first in range(0, max(map(len, own)), every):
            rows = torch.cat([part for parts in own for part in parts[first : first + every]])
            if position <= 0:
                found.append(rows)
            position -= len(rows)
        return found

    def parts(self, rows: torch.Tensor) -> list[torch.Tensor]:
        if self.stopped:
            return []
        if self.keeps_rows:
            mine = rows[self.owner[rows] == self.group.rank]
        else:
            start, end = shares(len(rows), self.group.size)[self.group.rank]
            mine = rows[start:end]
        return batches(mine, self.job.batch_size, self.least)

    # ---- training ----

    def round(self, items: Items, rows: int, step: int) -> tuple[float, int]:
        total, seen = 0.0, 0
        for k, item in enumerate(items):
            inputs, target = given(item)
            seed = key(self.job.seed, step + k, 2 + self.group.rank)
            self.learner.gradient(inputs, target, 1.0, seed, self.vector)
            count = rows_in(target)
            loss = self.learner.apply(self.vector, step + k)
            self.report_loss(loss, step + k)
            total += loss * count
            seen += count
        self.progress = [self.progress[0] + total, self.progress[1] + seen]
        self._mix(self.share() if self.keeps_rows else seen / rows)
        return total, seen

    def share(self) -> float:
        """The weight of this worker in an average: its part of all rows."""
        return self.counts[self.group.rank] / self.rows

    def _mix(self, share: float) -> None:
        """After the steps of a round."""
        raise NotImplementedError

    def enough(self) -> bool:
        loss, seen = self.progress
        self.progress = [0.0, 0]
        if self.job.until_error is not None and seen:
            self.stopped = loss / seen <= self.job.until_error
        return self.stopped

    # ---- weights ----

    def _average(self, share: float) -> None:
        """The mean of all workers' weights and optimiser moments."""

        def average(vector: torch.Tensor) -> torch.Tensor:
            vector *= share
            self.group.all_reduce(vector)
            return vector

        self._replace(average)

    def _replace(self, mixed: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """Replace weights and optimiser moments by what `mixed` makes of them, in one vector."""
        moments = self._moments()
        parts = [self.learner.weights(), *[moment.reshape(-1).to(self.vector.dtype) for moment in moments]]
        pieces = mixed(torch.cat(parts)).split([len(part) for part in parts])
        self.learner.set_weights(pieces[0])
        for moment, piece in zip(moments, pieces[1:], strict=True):
            moment.copy_(piece.view_as(moment))

    def _moments(self) -> list[torch.Tensor]:
        """Optimiser moments of all parameters. A worker without rows has none yet; a step of size zero creates them."""
        if not self.learner.optimizer.state:
            before = self.learner.weights()
            self.learner.apply(torch.zeros_like(self.vector), 0)
            self.learner.set_weights(before)
        states = [self.learner.optimizer.state[p] for p in self.learner.parameters if p in self.learner.optimizer.state]
        return [value for state in states for _, value in sorted(state.items()) if isinstance(value, torch.Tensor)]

    def evaluated(self) -> nn.Module:
        if not self.apart:
            return self.model
        average = self.learner.weights() * self.share()
        self.group.all_reduce(average)
        other = copy.deepcopy(self.model)
        Learner(other, self.job, 1).set_weights(average)
        return other

    def finish(self) -> None:
        if self.apart:
            self._average(self.share())

    # ---- checkpoints ----

    def state(self) -> dict[str, Any]:
        state = self.learner.state()
        if self.apart:
            state = {"workers": self.group.gather_objects(state)}
        if not self.job.method.can_lose_workers(self.job):
            state["progress"] = self.group.gather_objects([*self.progress, self.stopped])
        return state

    def load(self, state: dict[str, Any]) -> None:
        found = len(state.get("workers") or state.get("progress") or range(self.group.size))
        if found != self.group.size:
            what = "that have not been averaged yet" if "workers" in state else "with rows of their own"
            raise UserError(
                f"the checkpoint holds {found} workers {what}; resume with workers={found}, not {self.group.size}"
            )
        self.learner.load(state["workers"][self.group.rank] if "workers" in state else state)
        if "progress" in state:
            *self.progress, self.stopped = state["progress"][self.group.rank]


def _steps_of_rounds(counts: list[int], job: Job, least: int) -> dict[int, int]:
    """Steps of the worker that takes most, by the number of rows in a round; also for a whole epoch."""
    every, size = job.average_every, job.batch_size
    if isinstance(every, str):
        return {sum(counts): -(-max(counts) // size)}
    sizes = [batch_sizes(count, size, least) for count in counts]
    longest = max(map(len, sizes))
    found = {sum(counts): longest}
    for first in range(0, longest, every):
        found[sum(sum(own[first : first + every]) for own in sizes)] = min(every, longest - first)
    return found
