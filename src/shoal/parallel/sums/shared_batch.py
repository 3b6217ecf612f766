"""A worker of all-reduce: gradients of its shards of a batch, their sum, a part of the step of the optimiser."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from shoal.parallel.data.loader import Loader, key
from shoal.parallel.data.ownership import split_rows
from shoal.parallel.exact.threads import Crew, shard_threads
from shoal.parallel.exact.tree_sum import Node, combine, cover, middle, shares
from shoal.parallel.groups.shared import bytes_of
from shoal.parallel.lazy import nn, torch
from shoal.parallel.strategies.updater import Items, WholeModelUpdater, given
from shoal.parallel.sums.board import Board, MessageBoard, SharedBoard
from shoal.parallel.sums.layout import FlatLayout
from shoal.parallel.sums.optimizer import FlatOptimizer, can_be_flat, moment_names

if TYPE_CHECKING:
    from shoal.parallel.groups import Group
    from shoal.parallel.job import Job

BY_MESSAGES = (
    "the workers send their gradients to each other: they cannot share memory, since they are on several hosts, or the "
    "system is not Linux, or has too little memory"
)


class SharedBatchUpdater(WholeModelUpdater):
    """Each batch is cut into shards, their gradients are summed in a fixed order, and all take the same step.

    With `exact`, the shards are the same for any number of workers, and so are the bits. Without, there is one shard
    for each worker. A worker computes its shards in several threads. Each thread of each worker then sums a part of
    the gradient and updates that part of the weights: workers of one host share gradients, weights and the optimiser's
    moments in memory. Optimisers that have no name may need all gradients at once: then every worker takes its steps.
    """

    shares_loss = True

    def __init__(self, job: Job, group: Group, model: nn.Module, train: Loader) -> None:
        super().__init__(job, group, model, train)
        learner = self.learner
        threads = shard_threads(job, group.size)
        learner.threaded |= threads > 1
        self.crew = Crew(threads)
        self.shards = job.shard_count if job.exact else group.size * threads
        self.seats = _seats(self.shards, group.size, threads)
        self.mine = shares(self.shards, group.size)[group.rank]
        tail = [torch.zeros(1), *learner.buffers]
        self.layout = FlatLayout(learner.parameters, tail)
        flat = can_be_flat(job, model, learner.parameters) and list(learner.named.values()) == learner.parameters
        self.board, new = self._board(len(moment_names(job)) + 1 if flat else 1)
        self.flat = FlatOptimizer(job, self.layout, learner.named, learner.steps, new) if flat else None
        self.total = None if flat else new(self.layout.count)
        self.places = {node: self._views(vector) for node, vector in self.board.vectors.items()}
        has_buffers = any(True for _ in model.buffers())
        self.has_counters = any(not buffer.is_floating_point() for buffer in model.buffers())
        self.models = [learner.replica() if threads > 1 or has_buffers else None for _ in range(threads)]

    def _board(self, more: int) -> tuple[Board, Callable[[int], torch.Tensor]]:
        """The board, and what makes vectors beside it. `more`: vectors as long as the parameters that are needed."""
        group, layout, dtype = self.group, self.layout, self.learner.most_precise.dtype
        nodes = sum(map(len, self.seats))
        count = nodes * bytes_of(layout.width, dtype) + more * bytes_of(layout.count, dtype)
        on_cpu = self.learner.most_precise.device.type == "cpu"
        memory = group.share(count) if group.size > 1 and on_cpu else None
        if memory is None and group.size > 1:
            self.note = BY_MESSAGES if self.job.backend != "threads" else ""
            own = self.seats[group.rank * self.crew.size : (group.rank + 1) * self.crew.size]
            new = self.learner.new_vector
            return MessageBoard(own, self.shards, layout, new, group, self.crew), new

        def new_vector(width: int) -> torch.Tensor:
            return self.learner.new_vector(width) if memory is None else memory.new_vector(width, dtype)

        return SharedBoard(self.seats, group.rank, layout, new_vector, memory), new_vector

    def _views(self, vector: torch.Tensor) -> list[torch.Tensor]:
        return [*self.layout.views(vector), *self.layout.tail_views(vector[self.layout.count :])]

    # ---- a round ----

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
        self.crew.run(lambda thread: self._compute(thread, items, bounds, step))
        with self.group.communication():
            vectors = self.board.collect(filled)
        loss = self._sum_tails(vectors, filled)
        self.crew.run(lambda thread: self._update(thread, vectors, filled, step))
        with self.group.communication():
            self.board.meet()
        self._finish_step(step)
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

        for node in self.seats[self.group.rank * self.crew.size + thread]:
            if node[0] < filled:
                _write(node, shard, filled, self.places[node])

    def _sum_tails(self, vectors: dict[Node, torch.Tensor], filled: int) -> float:
        """Every worker sums losses and buffers, which are few numbers; returns the loss."""
        tails = {node: vector[self.layout.count : self.layout.width] for node, vector in vectors.items()}
        tail = combine((0, self.shards), tails.get, filled, torch.add)
        assert tail is not None, "a batch has at least one row"
        loss, *values = self.layout.tail_views(tail)
        for buffer, value in zip(self.learner.buffers, values, strict=True):
            buffer.copy_(value)
        return float(loss)

    def _update(self, thread: int, vectors: dict[Node, torch.Tensor], filled: int, step: int) -> None:
        """Sum a part of the gradient, and take the step of the optimiser there."""
        start, end = part = self.board.parts[thread]
        known = {node: vector[start:end] for node, vector in vectors.items()}
        with torch.no_grad():
            gradient = combine((0, self.shards), known.get, filled, torch.Tensor.add_)
            assert gradient is not None
            if self.flat is not None:
                self.flat.step(part, gradient, step)
            elif self.total is not None:
                self.total[start:end] = gradient

    def _finish_step(self, step: int) -> None:
        if self.flat is not None:
            self.flat.finish_step()
        elif self.total is not None:
            for parameter, gradient in zip(self.learner.parameters, self.layout.views(self.total), strict=True):
                parameter.grad = gradient.to(parameter.dtype)
            self.learner.step(step)

    def _update_counters(self, filled: int) -> None:
        """Update integer buffers, such as the number of batches seen, as a replica has them after one shard.

        A worker without rows in this batch has not counted; then all take the buffers of the first worker.
        """
        if self.models[0] is None or not self.has_counters:
            return
        someone_idle = any(start >= filled for start, _ in shares(self.shards, self.group.size))
        for mine, its in zip(self.model.buffers(), self.models[0].buffers(), strict=True):
            if not mine.is_floating_point():
                mine.copy_(its)
                if someone_idle and self.group.size > 1:
                    self.group.broadcast(mine)

    # ---- checkpoints, and the end ----

    def state(self) -> dict[str, Any]:
        if self.flat is None:
            return super().state()
        if self.group.rank > 0:
            return {}
        model = {name: value.detach().cpu().clone() for name, value in self.model.state_dict().items()}
        return {"model": model, "optimizer": self.flat.state()}

    def load(self, state: dict[str, Any]) -> None:
        if self.flat is None:
            super().load(state)
            return
        self.model.load_state_dict(state["model"])
        self.flat.load(state["optimizer"])

    def close(self) -> None:
        self.crew.close()
        if self.flat is not None:
            self.flat.give_back()
        for parameter in self.learner.parameters:
            parameter.grad = None


def _seats(shards: int, workers: int, threads: int) -> list[list[Node]]:
    """For each thread of each worker, the nodes of the tree that it can sum alone."""
    return [
        cover((first + start, first + end), (0, shards))
        for first, last in shares(shards, workers)
        for start, end in shares(last - first, threads)
    ]


def _write(
    node: Node, shard: Callable[[Node], list[torch.Tensor] | None], filled: int, places: list[torch.Tensor]
) -> None:
    """The sum at a node; its last addition writes it where it belongs."""
    halved = node[1] - node[0] > 1 and middle(node) < filled
    first = combine((node[0], middle(node)) if halved else node, shard, filled, _add_lists)
    second = combine((middle(node), node[1]), shard, filled, _add_lists) if halved else None
    assert first is not None, "a node without rows has nothing to write"
    with torch.no_grad():
        if second is None:
            torch._foreach_copy_(places, first)
        else:
            for place, left, right in zip(places, first, second, strict=True):
                torch.add(left, right, out=place)


def _add_lists(left: list[torch.Tensor], right: list[torch.Tensor]) -> list[torch.Tensor]:
    torch._foreach_add_(left, right)
    return left
