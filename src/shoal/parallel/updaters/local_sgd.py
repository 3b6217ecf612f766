"""Local SGD: steps of a worker's own, then an average of all workers' weights."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from shoal.errors import UserError
from shoal.parallel.learner import Learner
from shoal.parallel.loader import epoch_order, key, rows_in
from shoal.parallel.tree_sum import shares
from shoal.parallel.updaters.base import Items, batches, given
from shoal.parallel.updaters.whole_model import WholeModelUpdater

if TYPE_CHECKING:
    from shoal.parallel.groups import Group
    from shoal.parallel.job import Job


class LocalSgdUpdater(WholeModelUpdater):
    """Weights are averaged every few steps, every epoch, or at the end. `batch_size` is that of each worker."""

    def __init__(self, job: Job, group: Group, model: nn.Module, rows: int) -> None:
        super().__init__(job, group, model, rows)
        self.vector = self.learner.new_vector(self.learner.width)
        self.owner = torch.empty(rows, dtype=torch.int64)  # average_every a word: a worker keeps its rows
        order = epoch_order(rows, job.seed, -1, job.shuffle)
        for worker, (start, end) in enumerate(shares(rows, group.size)):
            self.owner[order[start:end]] = worker

    def round_rows(self) -> int:
        every = self.job.average_every
        return self.rows if isinstance(every, str) else every * self.job.batch_size * self.group.size

    def steps_in(self, rows: int) -> int:
        return -(-rows // (self.job.batch_size * self.group.size))

    def parts(self, rows: torch.Tensor) -> list[torch.Tensor]:
        if isinstance(self.job.average_every, str):
            mine = rows[self.owner[rows] == self.group.rank]
        else:
            start, end = shares(len(rows), self.group.size)[self.group.rank]
            mine = rows[start:end]
        return batches(mine, self.job.batch_size, self.least)

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
        if self.job.average_every != "end":
            self._average(seen, rows)
        return total, seen

    def _average(self, seen: int, rows: int) -> None:
        """The mean of all workers' weights and optimiser moments, weighted by rows."""
        moments = self._moments()
        sizes = [self.learner.weights(), *[moment.reshape(-1).to(self.vector.dtype) for moment in moments]]
        vector = torch.cat(sizes) * (seen / rows)
        self.group.all_reduce(vector)
        pieces = vector.split([len(part) for part in sizes])
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
        if self.job.average_every != "end":
            return self.model
        average = self.learner.weights() * self._share()
        self.group.all_reduce(average)
        other = copy.deepcopy(self.model)
        Learner(other, self.job, 1).set_weights(average)
        return other

    def _share(self) -> float:
        start, end = shares(self.rows, self.group.size)[self.group.rank]
        return (end - start) / self.rows

    def finish(self) -> None:
        if self.job.average_every == "end":
            start, end = shares(self.rows, self.group.size)[self.group.rank]
            self._average(end - start, self.rows)

    def state(self) -> dict[str, Any]:
        if self.job.average_every != "end":
            return self.learner.state()
        return {"workers": self.group.gather_objects(self.learner.state())}

    def load(self, state: dict[str, Any]) -> None:
        if "workers" not in state:
            self.learner.load(state)
            return
        states = state["workers"]
        if len(states) != self.group.size:
            raise UserError(
                f"the checkpoint holds {len(states)} workers that have not been averaged yet; "
                f"resume with workers={len(states)}, not {self.group.size}"
            )
        self.learner.load(states[self.group.rank])
