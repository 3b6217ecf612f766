"""Local SGD: steps of a worker's own, then an average of all workers' weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from shoal.parallel.strategies.own_rows import keeps_rows
from shoal.parallel.updaters.own_rows import OwnRowsUpdater

if TYPE_CHECKING:
    from shoal.parallel.groups import Group
    from shoal.parallel.job import Job


class LocalSgdUpdater(OwnRowsUpdater):
    """Weights are averaged every few steps, every epoch, or at the end; weighted by rows."""

    def __init__(
        self, job: Job, group: Group, model: nn.Module, rows: int, targets: torch.Tensor | None = None
    ) -> None:
        self.keeps_rows, self.apart = keeps_rows(job), job.average_every == "end"
        super().__init__(job, group, model, rows, targets)

    def _mix(self, share: float) -> None:
        if not self.apart:
            self._average(share)
