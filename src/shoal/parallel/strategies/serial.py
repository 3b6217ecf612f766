"""The plain loop on one worker: with one thread, or with several for each matrix product."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from shoal.parallel.data.loader import key
from shoal.parallel.exact.randomness import keyed
from shoal.parallel.lazy import nn, torch
from shoal.parallel.strategies.base import Strategy
from shoal.parallel.strategies.updater import Items, Updater, WholeModelUpdater, given

if TYPE_CHECKING:
    from shoal.parallel.groups import Group
    from shoal.parallel.job import Job


class Blas(Strategy):
    """One worker, whose matrix products use all cores."""

    name = "blas"
    summary = "one worker, matrix products over threads"
    one_worker = True
    can_be_exact = True

    def fingerprint(self, job: Job) -> dict[str, Any]:
        """The number of threads does not make another algorithm: a run may go on with the other of the two."""
        return {"strategy": "plain", "exact": False, "shards": 0}

    def updater(self, job: Job, group: Group, model: nn.Module, rows: int, device: torch.device) -> Updater:
        return PlainUpdater(job, group, model, rows)


class Serial(Blas):
    """One worker, one thread."""

    name = "serial"
    summary = "one worker, one thread"
    one_thread = True


class PlainUpdater(WholeModelUpdater):
    """One step for each batch."""

    def parts(self, rows: torch.Tensor) -> list[torch.Tensor]:
        return [rows]

    def round(self, items: Items, rows: int, step: int) -> tuple[float, int]:
        (inputs, target) = given(items[0])
        learner = self.learner
        learner.optimizer.zero_grad(set_to_none=True)
        if learner.is_random(inputs):
            with keyed(key(self.job.seed, step, 0), threading.current_thread() is not threading.main_thread()):
                loss = learner.loss(self.model(inputs), target)
        else:
            loss = learner.loss(self.model(inputs), target)
        loss.backward()
        learner.schedule.set(step)
        learner.optimizer.step()
        value = float(loss.detach())
        self.report_loss(value, step)
        return value * rows, rows
