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
from shoal.parallel.data.ownership import split_rows
from shoal.parallel.events import Notify
from shoal.parallel.exact.threads import shard_pool, shard_threads
from shoal.parallel.exact.tree_sum import Node, combine, cover, middle, shares
from shoal.parallel.lazy import nn, torch
from shoal.parallel.learner import trained_parameters
from shoal.parallel.strategies.base import Strategy
from shoal.parallel.strategies.updater import BackwardUpdater, Items, Updater, WholeModelUpdater, given

if TYPE_CHECKING:
    from shoal.parallel.groups import Group
    from shoal.parallel.job import Job
    from shoal.planner.cost.times import CostModel


class AllReduce(Strategy):
    """Exact, in an order of summation that never changes, or close, by torch's DistributedDataParallel."""

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
        by_shards = job.exact or group.size == 1 or job.backend == "mpi"
        return (AllReduceUpdater if by_shards else DdpUpdater)(job, group, model, train)

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


class AllReduceUpdater(WholeModelUpdater):
    """Each batch is cut into shards, their gradients are summed in a fixed order, and all workers take the same step.

    With `exact`, the shards are the same for any number of workers, and so are the bits. Without, there is one shard
    for each worker. A worker computes its shards in several threads.
    """

    shares_loss = True

    def __init__(self, job: Job, group: Group, model: nn.Module, train: Loader) -> None:
        super().__init__(job, group, model, train)
        self.threads = threads = shard_threads(job, group.size)
        self.learner.threaded |= threads > 1
        self.shards = job.shards if job.exact else group.size * threads
        self.mine = shares(self.shards, group.size)[group.rank]
        root = (0, self.shards)
        self.nodes = cover(self.mine, root)  # nodes of the tree that this worker can sum alone
        first, last = self.mine
        ranges = [(first + start, first + end) for start, end in shares(last - first, threads)]
        self.ranges = [cover(part, root) for part in ranges]  # and those that each of its threads can
        self.width = group.padded(self.learner.width)
        self.like = self.learner.new_vector(self.width)
        self.vectors = {node: self.learner.new_vector(self.width) for nodes in self.ranges for node in nodes}
        has_buffers = any(True for _ in model.buffers())
        self.models = [self.learner.replica() if threads > 1 or has_buffers else None for _ in range(threads)]
        self.pool = shard_pool(threads) if threads > 1 else None

    def _bounds(self, rows: int) -> list[Node]:
        """First and last row of each shard of a batch; the last shards of a small batch are empty."""
        return split_rows(rows, self.shards, self.least)

    def parts(self, rows: torch.Tensor) -> list[torch.Tensor]:
        return [rows[start:end] for start, end in self._bounds(len(rows))[self.mine[0] : self.mine[1]]]

    def round(self, items: Items, rows: int, step: int) -> tuple[float, int]:
        bounds = self._bounds(rows)
        filled = sum(end > start for start, end in bounds)
        if items and items[0] is not None:
            self.learner.is_random(items[0][0])  # found out before threads start
        self._over_threads(lambda thread: self._compute(thread, items, bounds, step))
        total = self.group.tree_sum(self._sum(filled), self.shards, filled, self.like)
        loss = self.learner.apply(total, step)
        self.report_loss(loss, step)
        self._update_counters(filled)
        return (loss * rows, rows) if self.group.rank == 0 else (0.0, 0)

    def _compute(self, thread: int, items: Items, bounds: list[Node], step: int) -> None:
        """Gradients of a thread's shards, summed to the nodes that the thread holds."""
        filled = sum(end > start for start, end in bounds)

        def shard(node: Node) -> list[torch.Tensor] | None:
            k = node[0]
            if node[1] - k > 1:
                return None
            share = (bounds[k][1] - bounds[k][0]) / bounds[-1][1]
            return self.learner.gradients(
                *given(items[k - self.mine[0]]), share, key(self.job.seed, step, k), self.models[thread]
            )

        for node in self.ranges[thread]:
            found = combine(node, shard, filled, _add_lists)
            if found is not None:
                self.learner.pack(found, self.vectors[node])

    def _sum(self, filled: int) -> dict[Node, torch.Tensor]:
        """From sums of threads to sums of the worker; each thread takes a part of the vector."""
        nodes = [node for node in self.nodes if node[0] < filled]

        def work(thread: int) -> None:
            start, end = shares(self.width, self.threads)[thread]
            known = {node: vector[start:end] for node, vector in self.vectors.items()}
            for node in nodes:
                combine(node, known.get, filled, torch.Tensor.add_)

        if any(node not in self.vectors for node in nodes):
            self._over_threads(work)
        return {node: self.vectors[_first(node, self.vectors)] for node in nodes}

    def _over_threads(self, work: Any) -> None:
        if self.pool is None:
            work(0)
        else:
            for done in [self.pool.submit(work, thread) for thread in range(self.threads)]:
                done.result()

    def _update_counters(self, filled: int) -> None:
        """Update integer buffers, such as the number of batches seen, as a replica has them after one shard.

        A worker without rows in this batch has not counted; then all take the buffers of the first worker.
        """
        if self.models[0] is None:
            return
        someone_idle = any(start >= filled for start, _ in shares(self.shards, self.group.size))
        for mine, its in zip(self.model.buffers(), self.models[0].buffers(), strict=True):
            if not mine.is_floating_point():
                mine.copy_(its)
                if someone_idle and self.group.size > 1:
                    self.group.broadcast(mine)

    def close(self) -> None:
        if self.pool is not None:
            self.pool.shutdown(wait=False, cancel_futures=True)


def _add_lists(left: list[torch.Tensor], right: list[torch.Tensor]) -> list[torch.Tensor]:
    torch._foreach_add_(left, right)
    return left


def _first(node: Node, known: dict[Node, torch.Tensor]) -> Node:
    """The first of the known nodes below a node: its vector holds the sum."""
    while node not in known:
        node = (node[0], middle(node))
    return node


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
