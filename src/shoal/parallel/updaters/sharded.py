"""Sharded parameters, by torch's fully_shard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from shoal.parallel.loader import key
from shoal.parallel.randomness import keyed
from shoal.parallel.updaters.split_model import SplitModelUpdater

if TYPE_CHECKING:
    from shoal.parallel.groups import Group
    from shoal.parallel.job import Job


class ShardedUpdater(SplitModelUpdater):
    """FSDP2: each worker keeps a part of parameters, gradients and optimiser state; layers are gathered for use."""

    def __init__(self, job: Job, group: Group, model: nn.Module, rows: int, device: torch.device) -> None:
        super().__init__(job, group, model, rows, device)
        self.replicas, self.replica = group.size, group.rank  # every worker has rows of its own

    def _split(self) -> None:
        from torch.distributed.fsdp import fully_shard

        mesh = self.mesh["model"]
        for module in self.model.modules():
            if module is not self.model and not list(module.children()) and any(True for _ in module.parameters()):
                fully_shard(module, mesh=mesh)
        fully_shard(self.model, mesh=mesh)

    def _reports(self) -> bool:
        return True

    def _backward(self, inputs: Any, target: Any, mine: int, rows: int, step: int) -> float:
        with keyed(key(self.job.seed, step, self.replica), False):
            loss = self.loss(self.model(inputs), target) * (mine / rows)
        (loss * self.group.size).backward()  # fully_shard takes the mean over workers; this makes it the sum
        return float(loss.detach())

    def _sum_over_replicas(self) -> None: ...
