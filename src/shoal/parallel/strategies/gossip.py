"""Gossip: workers train alone on rows of their own, and now and then take the mean with their neighbours in a ring."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.errors import UserError
from shoal.parallel.strategies.own_rows import OwnRows

if TYPE_CHECKING:
    import torch
    from torch import nn

    from shoal.parallel.groups import Group
    from shoal.parallel.job import Job
    from shoal.parallel.updaters.base import Updater


class Gossip(OwnRows):
    """No worker ever talks to all others, but to evaluate: the model is the mean of all."""

    name = "gossip"
    summary = "workers train on rows of their own, weights averaged with two neighbours in a ring"

    def check(self, job: Job) -> None:
        super().check(job)
        if job.average_every == "end":
            raise UserError(
                "strategy 'gossip' averages neighbours during the run; got average_every='end': give a number of "
                "steps or 'epoch', or use strategy 'local_sgd'"
            )

    def smallest_part(self, job: Job, rows: int, least: int, targets: torch.Tensor | None = None) -> int:
        from shoal.parallel.ownership import smallest_part

        return smallest_part(targets, rows, job, least, True)

    def can_lose_workers(self, job: Job) -> bool:
        return False  # a checkpoint holds the weights of each worker

    def updater(
        self, job: Job, group: Group, model: nn.Module, rows: int, device: torch.device,
        targets: torch.Tensor | None = None,
    ) -> Updater:  # fmt: skip
        from shoal.parallel.updaters.gossip import GossipUpdater

        return GossipUpdater(job, group, model, rows, targets)
