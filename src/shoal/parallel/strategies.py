"""Strategies that give every worker the whole model: how a round of rows becomes new weights.

A round is what all workers agree after: one batch for most, many batches of its own for local SGD. Rounds follow each
other through the order of an epoch, so that a run can go on at any round with any number of workers.
"""

from __future__ import annotations

import copy
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from shoal.parallel.feed import Pair, epoch_order, key, rows_in
from shoal.parallel.groups import Group
from shoal.parallel.job import Job
from shoal.parallel.learner import Learner
from shoal.parallel.randomness import keyed
from shoal.parallel.sums import Node, combine, cover, fold, middle, shares
from shoal.parallel.threads import shard_pool

Items = Sequence[Pair | None]


class Strategy(ABC):
    """One worker's side of it."""

    together = False  # whether all workers have to look at the same rows to evaluate

    def __init__(self, job: Job, group: Group, model: nn.Module, rows: int) -> None:
        self.job, self.group, self.rows = job, group, rows
        self.model = model
        self.notes: dict[str, list[float]] = {}  # more to tell about an epoch, as means
        self.see: Callable[[float, int], None] = lambda loss, step: None  # told the loss of each step, to look for NaN

    def total_steps(self) -> int:
        """Steps of the optimiser in the whole run."""
        return self.job.epochs * self.steps_in(self.rows)

    def round_rows(self) -> int:
        """Rows that all workers use together in a round."""
        return self.job.batch_size

    def steps_in(self, rows: int) -> int:
        """Steps of the optimiser that so many rows make."""
        return -(-rows // self.job.batch_size)

    @abstractmethod
    def parts(self, rows: torch.Tensor) -> list[torch.Tensor]:
        """Rows that this worker will need in a round, as `round` takes them."""

    @abstractmethod
    def round(self, items: Items, rows: int, step: int) -> tuple[float, int]:
        """Train on a round of so many rows; the sum of the loss over rows of this worker, and how many these are."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Model and optimiser, whole, on the first worker at least. All workers call this together."""

    @abstractmethod
    def load(self, state: dict[str, Any]) -> None: ...

    def evaluated(self) -> nn.Module:
        """What to evaluate now."""
        return self.model

    def finish(self) -> None:  # noqa: B027, most have nothing left to do
        """After the last round."""

    def close(self) -> None:  # noqa: B027
        """Let go of threads."""


class OneWorker(Strategy):
    """`serial` and `blas`: the plain loop."""

    def __init__(self, job: Job, group: Group, model: nn.Module, rows: int) -> None:
        super().__init__(job, group, model, rows)
        self.learner = Learner(model, job, self.total_steps())

    def parts(self, rows: torch.Tensor) -> list[torch.Tensor]:
        return [rows]

    def round(self, items: Items, rows: int, step: int) -> tuple[float, int]:
        (inputs, target) = given(items[0])
        learner = self.learner
        learner.optimizer.zero_grad(set_to_none=True)
        if learner.is_random(inputs):
            with keyed(key(self.job.seed, step, 0), threading.current_thread() is not threading.main_thread()):
                loss = learner.loss(self.model(inputs), target)
        else:
            loss = learner.loss(self.model(inputs), target)
        loss.backward()
        learner.schedule.set(step)
        learner.optimizer.step()
        value = float(loss.detach())
        self.see(value, step)
        return value * rows, rows

    def state(self) -> dict[str, Any]:
        return self.learner.state()

    def load(self, state: dict[str, Any]) -> None:
        self.learner.load(state)


class AllReduce(Strategy):
    """Each batch is cut into shards, their gradients are summed in a fixed order, and everybody takes the same step.

    With `exact` the shards are the same for any number of workers, and so are the bits. Without, there is one shard for
    each worker. Within a worker, shards go over threads: with one worker that is all the parallelism there is.
    """

    def __init__(self, job: Job, group: Group, model: nn.Module, rows: int, threads: int) -> None:
        super().__init__(job, group, model, rows)
        self.threads = threads
        self.learner = Learner(model, job, self.total_steps(), threaded=threads > 1)
        self.shards = job.shards if job.exact else group.size * threads
        self.least = fewest_rows(model)
        self.mine = shares(self.shards, group.size)[group.rank]
        root = (0, self.shards)
        self.nodes = cover(self.mine, root)  # whole nodes of the tree that this worker can sum
        first, last = self.mine
        lanes = [(first + start, first + end) for start, end in shares(last - first, threads)]
        self.lanes = [cover(lane, root) for lane in lanes]  # and those that each of its threads can
        self.width = group.padded(self.learner.width)
        self.like = self.learner.new_vector(self.width)
        self.vectors = {node: self.learner.new_vector(self.width) for lane in self.lanes for node in lane}
        has_buffers = any(True for _ in model.buffers())
        self.models = [self.learner.replica() if threads > 1 or has_buffers else None for _ in range(threads)]
        self.pool = shard_pool(threads) if threads > 1 else None

    def _bounds(self, rows: int) -> list[Node]:
        """Where the shards of a batch begin and end; the last ones of a small batch are empty."""
        return dealt(rows, self.shards, self.least)

    def parts(self, rows: torch.Tensor) -> list[torch.Tensor]:
        return [rows[start:end] for start, end in self._bounds(len(rows))[self.mine[0] : self.mine[1]]]

    def round(self, items: Items, rows: int, step: int) -> tuple[float, int]:
        bounds = self._bounds(rows)
        filled = sum(end > start for start, end in bounds)
        if items and items[0] is not None:
            self.learner.is_random(items[0][0])  # before threads are about
        self._over_threads(lambda thread: self._compute(thread, items, bounds, step))
        sums = self._sum(filled)
        if self.group.size == 1:
            total = sums[(0, self.shards)]
        else:
            total = self.group.tree_sum(sums, self.shards, filled, self.like)
        loss = self.learner.apply(total, step)
        self.see(loss, step)
        self._count(filled)
        return (loss * rows, rows) if self.group.rank == 0 else (0.0, 0)

    def _compute(self, thread: int, items: Items, bounds: list[Node], step: int) -> None:
        """Gradients of a thread's shards, each added to its neighbour's while both are at hand."""

        def shard(k: int) -> list[torch.Tensor] | None:
            item = items[k - self.mine[0]]
            if item is None:
                return None
            share = (bounds[k][1] - bounds[k][0]) / bounds[-1][1]
            return self.learner.gradients(*item, share, key(self.job.seed, step, k), self.models[thread])

        for node in self.lanes[thread]:
            found = fold(node, shard, _add_lists)
            if found is not None:
                self.learner.pack(found, self.vectors[node])

    def _sum(self, filled: int) -> dict[Node, torch.Tensor]:
        """From nodes of threads to nodes of the worker; threads take columns."""
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

    def _count(self, filled: int) -> None:
        """Counters among the buffers, such as the number of batches seen: as a replica has them after one shard.

        A worker without rows in this batch has counted nothing: then all take the counters of the first.
        """
        if self.models[0] is None:
            return
        idle = any(start >= filled for start, _ in shares(self.shards, self.group.size))
        for mine, its in zip(self.model.buffers(), self.models[0].buffers(), strict=True):
            if not mine.is_floating_point():
                mine.copy_(its)
                if idle and self.group.size > 1:
                    self.group.broadcast(mine)

    def state(self) -> dict[str, Any]:
        return self.learner.state()

    def load(self, state: dict[str, Any]) -> None:
        self.learner.load(state)

    def close(self) -> None:
        if self.pool is not None:
            self.pool.shutdown(wait=False, cancel_futures=True)


class Ddp(Strategy):
    """Torch's own DistributedDataParallel: close to the exact sum, and communication hidden behind computation."""

    def __init__(self, job: Job, group: Group, model: nn.Module, rows: int) -> None:
        super().__init__(job, group, model, rows)
        self.learner, self.least = Learner(model, job, self.total_steps()), fewest_rows(model)
        self.wrapped: Any = None  # when there are rows to see whether all parameters are used

    def _wrap(self, inputs: Any, target: Any) -> Any:
        from torch.nn.parallel import DistributedDataParallel

        trial = copy.deepcopy(self.model)
        loss = self.learner.loss(trial(inputs), target)
        grads = torch.autograd.grad(loss, [p for p in trial.parameters() if p.requires_grad], allow_unused=True)
        device = self.learner.parameters[0].device
        wrapped = DistributedDataParallel(
            self.model, device_ids=[device] if device.type == "cuda" else None,
            find_unused_parameters=any(grad is None for grad in grads),
        )  # fmt: skip
        wrapped.register_comm_hook(None, _summing(self.group))
        return wrapped

    def evaluated(self) -> nn.Module:
        """Running means are each worker's own between two steps; those of the first one count."""
        for buffer in self.model.buffers():
            self.group.broadcast(buffer)
        return self.model

    def parts(self, rows: torch.Tensor) -> list[torch.Tensor]:
        start, end = dealt(len(rows), self.group.size, self.least)[self.group.rank]
        return [rows[start:end] if end > start else rows[: self.least]]  # nobody stays away: rows that count nothing

    def round(self, items: Items, rows: int, step: int) -> tuple[float, int]:
        inputs, target = given(items[0])
        start, end = dealt(rows, self.group.size, self.least)[self.group.rank]
        learner = self.learner
        if self.wrapped is None:
            self.wrapped = self._wrap(inputs, target)
        learner.optimizer.zero_grad(set_to_none=True)
        with keyed(key(self.job.seed, step, self.group.rank), False):
            loss = learner.loss(self.wrapped(inputs), target) * ((end - start) / rows)
        loss.backward()
        learner.schedule.set(step)
        learner.optimizer.step()
        value = float(loss.detach()) * rows
        self.see(value / max(end - start, 1), step)
        return value, end - start

    def state(self) -> dict[str, Any]:
        return self.learner.state()

    def load(self, state: dict[str, Any]) -> None:
        self.learner.load(state)


def _summing(group: Group) -> Any:
    """Sums a bucket of gradients, and notes how long that took. Losses are scaled, so nothing is divided here."""
    import torch.distributed as dist

    def sum_up(_, bucket):  # type: ignore[no-untyped-def] # torch refuses annotations that are text
        begun = time.perf_counter()
        future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()

        def done(ended: Any) -> Any:
            group.seconds += time.perf_counter() - begun
            return ended.value()[0]

        return future.then(done)

    return sum_up


class LocalSgd(Strategy):
    """Workers train alone on rows of their own; weights are averaged every few steps, every epoch, or at the end.

    Another algorithm than all-reduce: what it finds depends on the number of workers. `batch_size` is each worker's.
    """

    def __init__(self, job: Job, group: Group, model: nn.Module, rows: int, threaded: bool) -> None:
        super().__init__(job, group, model, rows)
        self.learner = Learner(model, job, self.total_steps(), threaded=threaded)
        self.vector = self.learner.new_vector(self.learner.width)
        self.owner = torch.empty(rows, dtype=torch.int64)  # for a whole epoch alone, each worker keeps its own rows
        order = epoch_order(rows, job.seed, -1, job.shuffle)
        for worker, (start, end) in enumerate(shares(rows, group.size)):
            self.owner[order[start:end]] = worker

    def round_rows(self) -> int:
        every = self.job.average_every
        return self.rows if isinstance(every, str) else every * self.job.batch_size * self.group.size

    def steps_in(self, rows: int) -> int:
        return -(-rows // (self.job.batch_size * self.group.size))

    def parts(self, rows: torch.Tensor) -> list[torch.Tensor]:
        if isinstance(self.job.average_every, str):
            mine = rows[self.owner[rows] == self.group.rank]
        else:
            start, end = shares(len(rows), self.group.size)[self.group.rank]
            mine = rows[start:end]
        return batches(mine, self.job.batch_size, fewest_rows(self.model))

    def round(self, items: Items, rows: int, step: int) -> tuple[float, int]:
        total, seen = 0.0, 0
        for k, item in enumerate(items):
            inputs, target = given(item)
            seed = key(self.job.seed, step + k, 2 + self.group.rank)
            self.learner.gradient(inputs, target, 1.0, seed, self.vector)
            count = rows_in(target)
            loss = self.learner.apply(self.vector, step + k)
            self.see(loss, step + k)
            total += loss * count
            seen += count
        if self.job.average_every != "end":
            self._average(seen, rows)
        return total, seen

    def _average(self, seen: int, rows: int) -> None:
        """The mean of all workers' weights and optimiser moments, each counted by its rows."""
        moments = self._moments()
        sizes = [self.learner.weights(), *[moment.reshape(-1).to(self.vector.dtype) for moment in moments]]
        vector = torch.cat(sizes) * (seen / rows)
        self.group.all_reduce(vector)
        pieces = vector.split([len(part) for part in sizes])
        self.learner.set_weights(pieces[0])
        for moment, piece in zip(moments, pieces[1:], strict=True):
            moment.copy_(piece.view_as(moment))

    def _moments(self) -> list[torch.Tensor]:
        """Of all parameters, in order. A worker without rows has none yet: a step of nothing makes them."""
        if not self.learner.optimizer.state:
            before = self.learner.weights()
            self.learner.apply(torch.zeros_like(self.vector), 0)
            self.learner.set_weights(before)
        states = [self.learner.optimizer.state[p] for p in self.learner.parameters if p in self.learner.optimizer.state]
        return [value for state in states for _, value in sorted(state.items()) if isinstance(value, torch.Tensor)]

    def evaluated(self) -> nn.Module:
        if self.job.average_every != "end":
            return self.model
        average = self.learner.weights() * self._share()
        self.group.all_reduce(average)
        other = copy.deepcopy(self.model)
        Learner(other, self.job, 1).set_weights(average)
        return other

    def _share(self) -> float:
        start, end = shares(self.rows, self.group.size)[self.group.rank]
        return (end - start) / self.rows

    def finish(self) -> None:
        if self.job.average_every == "end":
            start, end = shares(self.rows, self.group.size)[self.group.rank]
            self._average(end - start, self.rows)

    def state(self) -> dict[str, Any]:
        if self.job.average_every != "end":
            return self.learner.state()
        return {"workers": self.group.gather_objects(self.learner.state())}

    def load(self, state: dict[str, Any]) -> None:
        if "workers" not in state:
            self.learner.load(state)
            return
        states = state["workers"]
        if len(states) != self.group.size:
            raise ValueError(
                f"the checkpoint holds {len(states)} workers that have not been averaged yet; "
                f"go on with workers={len(states)}, not {self.group.size}"
            )
        self.learner.load(states[self.group.rank])


def dealt(rows: int, parts: int, least: int) -> list[Node]:
    """Rows dealt out in equal parts of at least so many; where there are too few, the last parts are empty.

    >>> dealt(7, 4, 2)
    [(0, 3), (3, 5), (5, 7), (7, 7)]
    """
    filled = min(parts, max(1, rows // least))
    return shares(rows, filled) + [(rows, rows)] * (parts - filled)


def batches(rows: torch.Tensor, size: int, least: int) -> list[torch.Tensor]:
    """Rows in batches; a last one that is too small is joined to the one before."""
    parts = list(rows.split(size)) if len(rows) else []
    if len(parts) > 1 and len(parts[-1]) < least:
        parts[-2:] = [torch.cat(parts[-2:])]
    return parts


def _add_lists(left: list[torch.Tensor], right: list[torch.Tensor]) -> list[torch.Tensor]:
    torch._foreach_add_(left, right)
    return left


def _first(node: Node, known: dict[Node, torch.Tensor]) -> Node:
    """The first of the known nodes that make up a node: the one that its sum is in."""
    while node not in known:
        node = (node[0], middle(node))
    return node


def fewest_rows(model: nn.Module) -> int:
    """Rows that a shard needs: batch normalisation cannot do with one."""
    return 2 if any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules()) else 1


def given(item: Pair | None) -> Pair:
    assert item is not None, "a part without rows"
    return item
