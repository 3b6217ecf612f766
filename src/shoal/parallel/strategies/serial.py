"""The plain loop on one worker: with one thread, or with several for each matrix product."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shoal.parallel.strategies.base import Strategy

if TYPE_CHECKING:
    import torch
    from torch import nn

    from shoal.parallel.groups import Group
    from shoal.parallel.job import Job
    from shoal.parallel.updaters.base import Updater


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
        from shoal.parallel.updaters.plain import PlainUpdater

        return PlainUpdater(job, group, model, rows)


class Serial(Blas):
    """One worker, one thread."""

    name = "serial"
    summary = "one worker, one thread"
    one_thread = True
