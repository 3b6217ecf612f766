"""Fully sharded data parallelism: each worker keeps a part of all parameters, by torch's fully_shard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.parallel.cost import TrainingRound, Variant, compute, gradient_phases, link, memory_of
from shoal.parallel.data.loader import Loader, Pair, key
from shoal.parallel.lazy import nn
from shoal.parallel.strategies.split_model import SplitModel, SplitModelUpdater

if TYPE_CHECKING:
    from shoal.parallel.groups import Group
    from shoal.parallel.job import Job
    from shoal.planner.cost.times import CostModel


class ShardedUpdater(SplitModelUpdater):
    """FSDP2: each worker keeps a part of parameters, gradients and optimiser state; layers are gathered for use."""

    def __init__(self, job: Job, group: Group, model: nn.Module, train: Loader) -> None:
        super().__init__(job, group, model, train)
        self.replicas, self.replica = group.size, group.rank  # every worker has rows of its own

    def _split(self, model: nn.Module) -> None:
        from torch.distributed.fsdp import fully_shard

        mesh = self.mesh["model"]
        for module in model.modules():
            if module is not model and not list(module.children()) and any(True for _ in module.parameters()):
                fully_shard(module, mesh=mesh)
        fully_shard(model, mesh=mesh)

    def _reports(self) -> bool:
        return True

    def _backward(self, item: Pair, mine: int, rows: int, step: int) -> float:
        loss = self.learner.scaled_loss(*item, mine / rows, key(self.job.seed, step, self.replica))
        (loss * self.group.size).backward()  # fully_shard takes the mean over workers; this makes it the sum
        return float(loss.detach())


class Sharded(SplitModel):
    """The parameters of a layer are gathered when it computes, and freed afterwards."""

    name = "sharded"
    plan_label = "sharded"
    updater_class = ShardedUpdater
    repeats_layers = True

    def memory(self, costs: CostModel, variant: Variant, nodes: int) -> float:
        return memory_of(costs, nodes, replicas=nodes, split=nodes)

    def round_cost(self, costs: CostModel, variant: Variant, rows: int, nodes: int) -> TrainingRound:
        """Parameters gathered for the forward and the backward pass, gradients summed and scattered."""
        width, messages = sum(costs.facts.tensors), costs.messages(nodes)
        gathered = 2 * messages.all_gather(width / nodes, nodes)
        scattered = messages.reduce_scatter(width, nodes)
        work = max(0.0, costs.plain(-(-rows // nodes), nodes) - costs.apply(nodes))
        return TrainingRound((*gradient_phases(work, 0.0), link("gather parameters", gathered),
                      link("scatter gradients", scattered), compute("update", costs.apply(nodes) / nodes)),
                     3 * (nodes - 1) / nodes * width)  # fmt: skip
