"""Fully sharded data parallelism: each worker keeps a part of all parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.parallel.strategies.split_model import SplitModel

if TYPE_CHECKING:
    import torch
    from torch import nn

    from shoal.parallel.groups import Group
    from shoal.parallel.job import Job
    from shoal.parallel.updaters.base import Updater


class Sharded(SplitModel):
    """The parameters of a layer are gathered when it computes, and freed afterwards."""

    name = "sharded"
    summary = "parameters spread over workers, gathered layer by layer"
    repeats_layers = True

    def split_updater(self, job: Job, group: Group, model: nn.Module, rows: int, device: torch.device) -> Updater:
        from shoal.parallel.updaters.sharded import ShardedUpdater

        return ShardedUpdater(job, group, model, rows, device)
