"""A parameter server: one rank more, which holds the weights; workers send it gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shoal.options import Options, option
from shoal.parallel.strategies.base import Strategy

if TYPE_CHECKING:
    import torch
    from torch import nn

    from shoal.parallel.groups import Group
    from shoal.parallel.job import Job
    from shoal.parallel.updaters.base import Updater


@dataclass(frozen=True)
class ParameterServerOptions(Options):
    asynchronous: bool = option(False, "parameter_server: do not wait for other workers.")


class ParameterServer(Strategy):
    """Synchronous, it equals all-reduce; asynchronous, the result depends on which worker is faster."""

    name = "parameter_server"
    summary = "one rank holds the weights; synchronous or asynchronous"
    options = ParameterServerOptions
    servers = 1

    def smallest_part(self, job: Job, rows: int, least: int, targets: torch.Tensor | None = None) -> int:
        from shoal.parallel.updaters.base import batch_sizes, split_rows

        if not job.asynchronous:
            return super().smallest_part(job, rows, least)
        parts = [end - start for start, end in split_rows(rows, job.workers, least)]
        return min(size for part in parts for size in batch_sizes(part, job.batch_size, least))

    def parts_of_batch(self, job: Job) -> int:
        return 1 if job.asynchronous else job.workers

    def updater(self, job: Job, group: Group, model: nn.Module, rows: int, device: torch.device) -> Updater:
        from shoal.parallel.updaters.parameter_server import ParameterServerUpdater

        return ParameterServerUpdater(job, group, model, rows)
