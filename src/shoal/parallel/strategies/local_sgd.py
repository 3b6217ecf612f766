"""Local SGD: workers train alone on rows of their own, and their weights are averaged now and then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.parallel.strategies.base import Strategy

if TYPE_CHECKING:
    import torch
    from torch import nn

    from shoal.parallel.groups import Group
    from shoal.parallel.job import Job
    from shoal.parallel.updaters.base import Updater


class LocalSgd(Strategy):
    """Another algorithm than all-reduce: the result depends on the number of workers."""

    name = "local_sgd"
    summary = "workers train on rows of their own, weights averaged now and then"

    def fewest_rows(self, job: Job) -> int:
        return job.workers

    def can_lose_workers(self, job: Job) -> bool:
        return job.average_every != "end"  # until then a checkpoint holds the weights of each worker

    def updater(self, job: Job, group: Group, model: nn.Module, rows: int, device: torch.device) -> Updater:
        from shoal.parallel.updaters.local_sgd import LocalSgdUpdater

        return LocalSgdUpdater(job, group, model, rows)
