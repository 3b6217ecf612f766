"""Local SGD: workers train alone on rows of their own, and their weights are averaged now and then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.parallel.strategies.own_rows import OwnRows, keeps_rows

if TYPE_CHECKING:
    import torch
    from torch import nn

    from shoal.parallel.groups import Group
    from shoal.parallel.job import Job
    from shoal.parallel.updaters.base import Updater


class LocalSgd(OwnRows):
    """Another algorithm than all-reduce: the result depends on the number of workers."""

    name = "local_sgd"
    summary = "workers train on rows of their own, weights averaged now and then"

    def smallest_part(self, job: Job, rows: int, least: int, targets: torch.Tensor | None = None) -> int:
        from shoal.parallel.ownership import smallest_part

        return smallest_part(targets, rows, job, least, keeps_rows(job))

    def can_lose_workers(self, job: Job) -> bool:
        if job.average_every == "end":  # until then a checkpoint holds the weights of each worker
            return False
        in_an_epoch = keeps_rows(job) and not isinstance(job.average_every, str)  # others would have other rows
        return job.shares is None and job.until_error is None and not in_an_epoch

    def updater(
        self, job: Job, group: Group, model: nn.Module, rows: int, device: torch.device,
        targets: torch.Tensor | None = None,
    ) -> Updater:  # fmt: skip
        from shoal.parallel.updaters.local_sgd import LocalSgdUpdater

        return LocalSgdUpdater(job, group, model, rows, targets)
