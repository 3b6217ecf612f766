"""All-reduce: each batch is split over the workers, and their gradients are summed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from shoal.parallel.strategies.base import Strategy, Tell

if TYPE_CHECKING:
    import torch
    from torch import nn

    from shoal.parallel.groups import Group
    from shoal.parallel.job import Job
    from shoal.parallel.updaters.base import Updater


class AllReduce(Strategy):
    """Exact, in an order of summation that never changes, or close, by torch's DistributedDataParallel."""

    name = "allreduce"
    summary = "each batch split over workers, gradients summed"
    can_be_exact = True
    pools_threads = True

    def exact_by_default(self, job: Job, tell: Tell) -> bool:
        """On CPUs with enough shards."""
        from shoal.parallel.devices import find_device

        if find_device(job.device).type != "cpu":
            return False
        if job.workers > job.shards:
            tell({"note": f"not exact: for {job.workers} workers that needs shards={job.workers}; got {job.shards}"})
            return False
        tell({"note": "exact: the same weights for any number of workers (faster without: --close, exact=False)"})
        return True

    def parts_of_batch(self, job: Job) -> int:
        return job.shards if job.exact else job.workers

    def blas_threads(self, job: Job, share: int) -> int:
        return 1 if job.exact or job.backend == "threads" else share

    def resume(self, job: Job, earlier: dict[str, Any]) -> Job:
        if job.exact is None and earlier.get("strategy") == self.name:
            return replace(job, exact=earlier.get("exact"))
        return job

    def updater(self, job: Job, group: Group, model: nn.Module, rows: int, device: torch.device) -> Updater:
        from shoal.parallel.updaters.allreduce import AllReduceUpdater
        from shoal.parallel.updaters.ddp import DdpUpdater

        if job.exact or group.size == 1 or job.backend == "mpi":
            return AllReduceUpdater(job, group, model, rows)
        return DdpUpdater(job, group, model, rows)
