"""All-reduce with a fixed order of summation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from shoal.parallel.loader import key
from shoal.parallel.threads import shard_pool, shard_threads
from shoal.parallel.tree_sum import Node, combine, cover, fold, middle, shares
from shoal.parallel.updaters.base import Items, split_rows
from shoal.parallel.updaters.whole_model import WholeModelUpdater

if TYPE_CHECKING:
    from shoal.parallel.groups import Group
    from shoal.parallel.job import Job


class AllReduceUpdater(WholeModelUpdater):
    """Each batch is cut into shards, their gradients are summed in a fixed order, and all workers take the same step.

    With `exact`, the shards are the same for any number of workers, and so are the bits. Without, there is one shard
    for each worker. A worker computes its shards in several threads.
    """

    shares_loss = True

    def __init__(self, job: Job, group: Group, model: nn.Module, rows: int) -> None:
        self.threads = threads = shard_threads(job, group.size)
        super().__init__(job, group, model, rows, threaded=threads > 1)
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
        sums = self._sum(filled)
        if self.group.size == 1:
            total = sums[(0, self.shards)]
        else:
            total = self.group.tree_sum(sums, self.shards, filled, self.like)
        loss = self.learner.apply(total, step)
        self.report_loss(loss, step)
        self._update_counters(filled)
        return (loss * rows, rows) if self.group.rank == 0 else (0.0, 0)

    def _compute(self, thread: int, items: Items, bounds: list[Node], step: int) -> None:
        """Gradients of a thread's shards, summed to the nodes that the thread holds."""

        def shard(k: int) -> list[torch.Tensor] | None:
            item = items[k - self.mine[0]]
            if item is None:
                return None
            share = (bounds[k][1] - bounds[k][0]) / bounds[-1][1]
            return self.learner.gradients(*item, share, key(self.job.seed, step, k), self.models[thread])

        for node in self.ranges[thread]:
            found = fold(node, shard, _add_lists)
            if found is not None:
                self.learner.pack(found, self.vectors[node])

    def _sum(self, filled: int) -> dict[Node, torch.Tensor]:
        """From sums of threads to sums of the worker; each thread takes a part of the vector."""
        nodes = [node for node in self.nodes if node[0] < filled]

        def work(thread: int) -> None:
            start, end = shares(self.width, self.threads)[thread]
            known = {n: vector[start:end] if n[0] < filled else None for n, vector in self.vectors.items()}
            for node in nodes:
                combine(node, known, torch.Tensor.add_)

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
