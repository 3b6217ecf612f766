"""All-reduce: each batch is split over the workers, and their gradients are summed."""

from __future__ import annotations

import copy
import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from shoal.parallel.cost import (
    FORWARD,
    TrainingRound,
    Variant,
    compute,
    gradient_phases,
    link,
    memory_of,
    overlapped,
)
from shoal.parallel.data.loader import Loader, Pair, find_device, key
from shoal.parallel.events import Notify
from shoal.parallel.exact.tree_sum import cover, shards_of, shares
from shoal.parallel.groups.shared import can_share
from shoal.parallel.lazy import nn, torch
from shoal.parallel.learner import trained_parameters
from shoal.parallel.strategies.base import Strategy
from shoal.parallel.strategies.updater import BackwardUpdater, Updater
from shoal.parallel.sums.shared_batch import SharedBatchUpdater

if TYPE_CHECKING:
    from shoal.parallel.groups import Group
    from shoal.parallel.job import Job
    from shoal.planner.cost.times import CostModel


class AllReduce(Strategy):
    """Exact, in an order of summation that never changes, or close: a part of the batch for each worker."""

    name = "allreduce"
    can_be_exact = True
    pools_threads = True

    def exact_by_default(self, job: Job, notify: Notify) -> bool:
        """On CPUs with enough shards."""
        if find_device(job.device).type != "cpu":
            return False
        if job.workers > job.shard_count:
            needed = f"for {job.workers} workers that needs shards={job.workers}"
            notify("note", f"not exact: {needed}; got {job.shard_count}")
            return False
        notify("note", "exact: the same weights for any number of workers (faster without: --close, exact=False)")
        return True

    def parts_of_batch(self, job: Job) -> int:
        return job.shard_count if job.exact else job.workers

    def blas_threads(self, job: Job, share: int) -> int:
        return 1 if job.exact or job.backend == "threads" else share

    def resume(self, job: Job, earlier: dict[str, Any]) -> Job:
        if job.exact is None and earlier.get("strategy") == self.name:
            return replace(job, exact=earlier.get("exact"))
        return job

    def updater(self, job: Job, group: Group, model: nn.Module, train: Loader) -> Updater:
        """Torch's DistributedDataParallel between GPUs and between hosts, unless the run is exact."""
        torch_can = not job.exact and group.size > 1 and job.backend == "processes"
        if torch_can and any(parameter.device.type != "cpu" for parameter in model.parameters()):
            return DdpUpdater(job, group, model, train)
        found = SharedBatchUpdater(job, group, model, train)
        if torch_can and found.note:
            found.close()
            other = DdpUpdater(job, group, model, train)
            other.note = found.note
            return other
        return found

    # ---- what it costs ----

    def variants(self) -> list[Variant]:
        return [Variant("allreduce", "all-reduce", self, {"exact": False}, by_default=True),
                Variant("allreduce-exact", "all-reduce, exact", self, {"exact": True}, by_default=True)]  # fmt: skip

    def memory(self, costs: CostModel, variant: Variant, nodes: int) -> float:
        return memory_of(costs, nodes, vectors=1 + _vectors(costs, variant, nodes) / nodes, replicas=nodes)

    def round_cost(self, costs: CostModel, variant: Variant, rows: int, nodes: int) -> TrainingRound:
        """Gradients of each node's rows, their sum, and the step of the optimiser."""
        if variant.options["exact"]:
            work, name = _seconds_of_shards(costs, variant, rows, nodes), "sum in a fixed order"
        elif not _in_memory(costs) and costs.job.backend == "processes":
            return self._overlapped_cost(costs, rows, nodes)
        else:
            work, name = costs.gradient(-(-rows // nodes), nodes), "sum"
        if _in_memory(costs):  # each node sums and updates a part
            here, vectors = costs.calibration, _vectors(costs, variant, nodes)
            summed = costs.turns(nodes) * (here.copy * vectors + here.add * (vectors - 1)) / nodes
            update = costs.apply(nodes) / (1 if callable(costs.job.optimizer) else nodes)
            sent = 0.0 if costs.job.backend == "threads" else 2 * (nodes - 1) / nodes * costs.facts.width
        else:
            shards = _shards(costs, variant, nodes)
            summed = costs.messages(nodes).tree_sum(costs.facts.width, nodes, shards) + costs.calibration.add
            update = costs.apply(nodes)
            sent = costs.messages(nodes).tree_sum_bytes(costs.facts.width, nodes, shards)
        return TrainingRound((*gradient_phases(work, 0.0), link(name, summed), compute("update", update)), sent)

    def _overlapped_cost(self, costs: CostModel, rows: int, nodes: int) -> TrainingRound:
        """Between hosts: summed by a ring while the backward pass goes on, by torch."""
        facts = costs.facts
        seconds = costs.plain(-(-rows // nodes), nodes)
        update = min(costs.apply(nodes), seconds)
        summed = costs.messages(nodes).all_reduce(facts.width, nodes)
        backward = (1 - FORWARD) * (seconds - update)
        hidden = backward + summed - overlapped(backward, summed, facts.overlapped) if summed < math.inf else 0.0
        phases = gradient_phases(seconds - update, 0.0)
        sums = link("all-reduce", summed, hidden), compute("update", update)
        return TrainingRound((*phases, *sums), 2 * (nodes - 1) / nodes * facts.width)


def _in_memory(costs: CostModel) -> bool:
    """Whether workers sum in memory that they share."""
    return costs.job.backend == "threads" or (not costs.cluster.own_machines and can_share())


def _shards(costs: CostModel, variant: Variant, nodes: int) -> int:
    return costs.job.shards or shards_of(costs.job.batch_size) if variant.options["exact"] else nodes


def _vectors(costs: CostModel, variant: Variant, nodes: int) -> int:
    """Vectors of gradients that all workers write together: one for each whole node of the tree."""
    shards = _shards(costs, variant, nodes)
    return sum(len(cover(part, (0, shards))) for part in shares(shards, nodes))


def _seconds_of_shards(costs: CostModel, variant: Variant, rows: int, nodes: int) -> float:
    """Shards of a batch, computed one after the other by each of a node's threads."""
    all_shards = _shards(costs, variant, nodes)
    shards = min(all_shards, rows)
    threads = 1 if costs.job.backend == "threads" else costs.threads(nodes)
    turns = -(-min(-(-all_shards // nodes), shards) // threads)
    workers = threads if costs.cluster.own_machines else min(nodes * threads, costs.calibration.cores)
    one = costs.on_one_machine().gradient(rows / shards, max(1, workers)) * costs.cluster.slowest(nodes)
    return turns * one * costs.turns(nodes) + (turns - 1) * costs.calibration.add


class DdpUpdater(BackwardUpdater):
    """Close to the exact sum; communication overlaps with computation."""

    def __init__(self, job: Job, group: Group, model: nn.Module, train: Loader) -> None:
        super().__init__(job, group, model, train)
        self.replicas, self.replica = group.size, group.rank
        self.learner.random = True  # whether it is, is not tried
        self.wrapped: Any = None  # made with the first rows, which show whether all parameters are used

    def _wrap(self, inputs: Any, target: Any) -> Any:
        from torch.nn.parallel import DistributedDataParallel

        trial = copy.deepcopy(self.model)
        loss = self.learner.loss(trial(inputs), target)
        grads = torch.autograd.grad(loss, list(trained_parameters(trial).values()), allow_unused=True)
        device = self.learner.parameters[0].device
        wrapped = DistributedDataParallel(
            self.model, device_ids=[device] if device.type == "cuda" else None,
            find_unused_parameters=any(grad is None for grad in grads),
        )  # fmt: skip
        wrapped.register_comm_hook(None, _summing(self.group))
        return wrapped

    def evaluated(self) -> nn.Module:
        """Running means differ between workers; those of the first one are used."""
        for buffer in self.model.buffers():
            self.group.broadcast(buffer)
        return self.model

    def _backward(self, item: Pair, mine: int, rows: int, step: int) -> float:
        if self.wrapped is None:
            self.wrapped = self._wrap(*item)
        loss = self.learner.scaled_loss(*item, mine / rows, key(self.job.seed, step, self.replica), self.wrapped)
        loss.backward()
        return float(loss.detach())


def _summing(group: Group) -> Any:
    """A communication hook that sums gradients and adds up the time; losses are scaled, so nothing is divided."""
    import torch.distributed as dist

    def sum_up(_, bucket):  # type: ignore[no-untyped-def] # torch refuses annotations that are strings
        begun = time.perf_counter()
        future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()

        def done(ended: Any) -> Any:
            group.seconds += time.perf_counter() - begun
            return ended.value()[0]

        return future.then(done)

    return sum_up
