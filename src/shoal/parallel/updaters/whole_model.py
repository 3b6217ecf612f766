"""What updaters share in which each worker holds the whole model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn

from shoal.parallel.learner import Learner
from shoal.parallel.updaters.base import Updater, fewest_rows

if TYPE_CHECKING:
    from shoal.parallel.groups import Group
    from shoal.parallel.job import Job


class WholeModelUpdater(Updater):
    """Its `learner` has the model, the loss and the optimiser."""

    def __init__(self, job: Job, group: Group, model: nn.Module, rows: int, threaded: bool | None = None) -> None:
        """`threaded`: other threads of this process draw random numbers, too."""
        super().__init__(job, group, model, rows)
        self.least = fewest_rows(model)
        if threaded is None:
            threaded = job.backend == "threads" and job.ranks > 1
        self.learner = Learner(model, job, self.total_steps(), threaded=threaded)

    def state(self) -> dict[str, Any]:
        return self.learner.state()

    def load(self, state: dict[str, Any]) -> None:
        self.learner.load(state)
