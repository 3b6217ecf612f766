"""The plain loop: one worker, one batch after the other."""

from __future__ import annotations

import threading

import torch

from shoal.parallel.loader import key
from shoal.parallel.randomness import keyed
from shoal.parallel.updaters.base import Items, given
from shoal.parallel.updaters.whole_model import WholeModelUpdater


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
