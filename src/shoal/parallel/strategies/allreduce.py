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
from shoal.parallel.lazy import nn, torch
from shoal.parallel.learner import trained_parameters
from shoal.parallel.strategies.base import Strategy
from shoal.parallel.strategies.shared_batch import SharedBatchUpdater
from shoal.parallel.strategies.updater import BackwardUpdater, Updater

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
        if job.workers > job.shards:
            notify("note", f"not exact: for {job.workers} workers that needs shards={job.workers}; got {job.shards}")
            return False
        notify("note", "exact: the same weights for any number of workers (faster without: --close, exact=False)")
        return True

    def parts_of_batch(self, job: Job) -> int:
        return job.shards if job.exact else job.workers

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
        shards = -(-costs.job.shards // nodes) if variant.options["exact"] else 0
        return memory_of(costs, nodes, vectors=1 + shards, replicas=nodes)

    def round_cost(self, costs: CostModel, variant: Variant, rows: int, nodes: int) -> TrainingRound:
        """Gradients summed by a ring while the backward pass goes on (processes), or after it."""
        if variant.options["exact"]:
            return self._exact_cost(costs, rows, nodes)
        facts, part = costs.facts, -(-rows // nodes)
        moved = 2 * (nodes - 1) / nodes * facts.width
        if costs.job.backend == "processes":
            seconds = costs.plain(part, nodes)
            update = min(costs.apply(nodes), seconds)
            summed = costs.messages(nodes).all_reduce(facts.width, nodes)
            backward = (1 - FORWARD) * (seconds - update)
            hidden = backward + summed - overlapped(backward, summed, facts.overlapped) if summed < math.inf else 0.0
            phases = gradient_phases(seconds - update, 0.0)
            return TrainingRound((*phases, link("all-reduce", summed, hidden), compute("update", update)), moved)
        phases = gradient_phases(costs.gradient(part, nodes), 0.0)
        return TrainingRound((*phases, link("all-reduce", _tree_seconds(costs, nodes, nodes)),
                      compute("update", costs.apply(nodes))), moved if costs.job.backend == "mpi" else 0.0)  # fmt: skip

    def _exact_cost(self, costs: CostModel, rows: int, nodes: int) -> TrainingRound:
        """Shards of a batch, computed one after the other by each of a node's threads, summed along a fixed tree."""
        job, shards = costs.job, min(costs.job.shards, rows)
        threads = 1 if job.backend == "threads" else costs.threads(nodes)
        turns = -(-min(-(-job.shards // nodes), shards) // threads)
        workers = min(nodes * threads, costs.calibration.cores) if not costs.cluster.own_machines else threads
        one = costs.on_one_machine().gradient(rows / shards, max(1, workers)) * costs.cluster.slowest(nodes)
        work = turns * (one * costs.turns(nodes) + costs.calibration.add)
        sent = 0.0
        if job.backend != "threads":
            sent = costs.messages(nodes).tree_sum_bytes(costs.facts.width, nodes, job.shards)
        summed = _tree_seconds(costs, nodes, job.shards)
        return TrainingRound((*gradient_phases(work, 0.0), link("sum in a fixed order", summed),
                      compute("update", costs.apply(nodes))), sent)  # fmt: skip


def _tree_seconds(costs: CostModel, nodes: int, shards: int) -> float:
    """The sum over shards: in memory between threads, else by all-to-all and gather."""
    if costs.job.backend == "threads":
        return costs.calibration.add * (nodes - 1)
    return costs.messages(nodes).tree_sum(costs.facts.width, nodes, shards) + costs.calibration.add


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
