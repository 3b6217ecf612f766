"""All-reduce by torch's DistributedDataParallel."""

from __future__ import annotations

import copy
import time
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from shoal.parallel.loader import key
from shoal.parallel.randomness import keyed
from shoal.parallel.updaters.base import Items, given, split_rows
from shoal.parallel.updaters.whole_model import WholeModelUpdater

if TYPE_CHECKING:
    from shoal.parallel.groups import Group
    from shoal.parallel.job import Job


class DdpUpdater(WholeModelUpdater):
    """Close to the exact sum; communication overlaps with computation."""

    def __init__(self, job: Job, group: Group, model: nn.Module, rows: int) -> None:
        super().__init__(job, group, model, rows, threaded=False)
        self.wrapped: Any = None  # made with the first rows, which show whether all parameters are used

    def _wrap(self, inputs: Any, target: Any) -> Any:
        from torch.nn.parallel import DistributedDataParallel

        trial = copy.deepcopy(self.model)
        loss = self.learner.loss(trial(inputs), target)
        grads = torch.autograd.grad(loss, [p for p in trial.parameters() if p.requires_grad], allow_unused=True)
        device = self.learner.parameters[0].device
        wrapped = DistributedDataParallel(
            self.model, device_ids=[device] if device.type == "cuda" else None,
            find_unused_parameters=any(grad is None for grad in grads),
        )  # fmt: skip
        wrapped.register_comm_hook(None, _summing(self.group))
        return wrapped

    def evaluated(self) -> nn.Module:
        """Running means differ between workers; those of the first one are used."""
        for buffer in self.model.buffers():
            self.group.broadcast(buffer)
        return self.model

    def parts(self, rows: torch.Tensor) -> list[torch.Tensor]:
        start, end = split_rows(len(rows), self.group.size, self.least)[self.group.rank]
        # All must take part: a worker without rows computes others that count nothing.
        return [rows[start:end] if end > start else rows[: self.least]]

    def round(self, items: Items, rows: int, step: int) -> tuple[float, int]:
        inputs, target = given(items[0])
        start, end = split_rows(rows, self.group.size, self.least)[self.group.rank]
        learner = self.learner
        if self.wrapped is None:
            self.wrapped = self._wrap(inputs, target)
        learner.optimizer.zero_grad(set_to_none=True)
        with keyed(key(self.job.seed, step, self.group.rank), False):
            loss = learner.loss(self.wrapped(inputs), target) * ((end - start) / rows)
        loss.backward()
        learner.schedule.set(step)
        learner.optimizer.step()
        value = float(loss.detach()) * rows
        self.report_loss(value / max(end - start, 1), step)
        return value, end - start


def _summing(group: Group) -> Any:
    """A communication hook that sums gradients and adds up the time; losses are scaled, so nothing is divided."""
    import torch.distributed as dist

    def sum_up(_, bucket):  # type: ignore[no-untyped-def] # torch refuses annotations that are strings
        begun = time.perf_counter()
        future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()

        def done(ended: Any) -> Any:
            group.seconds += time.perf_counter() - begun
            return ended.value()[0]

        return future.then(done)

    return sum_up
