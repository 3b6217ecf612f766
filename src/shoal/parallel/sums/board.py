"""Where the gradients of all workers meet: memory that they share, or messages between hosts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from shoal.parallel.exact.threads import Crew
from shoal.parallel.exact.tree_sum import Node, combine, cover, middle, shares
from shoal.parallel.groups import Group
from shoal.parallel.groups.shared import SharedMemory
from shoal.parallel.lazy import torch
from shoal.parallel.sums.layout import FlatLayout
from shoal.parallel.sums.optimizer import NewVector


class Board(ABC):
    """Each worker writes the sums of its shards into `vectors`, and updates the `parts` of the parameters.

    vectors   by node of the tree: those that the threads of this worker can sum alone
    parts     of the parameters, one for each thread of this worker
    """

    vectors: dict[Node, torch.Tensor]
    parts: list[Node]

    @abstractmethod
    def collect(self, filled: int) -> dict[Node, torch.Tensor]:
        """Once all workers have written: vectors from which each can sum its parts."""

    @abstractmethod
    def meet(self) -> None:
        """Once all workers are here, each sees what the others have written."""


class SharedBoard(Board):
    """All see all vectors: threads of one process, or processes of one host. `seats`: the nodes of every thread."""

    def __init__(
        self, seats: Sequence[list[Node]], rank: int, layout: FlatLayout, new: NewVector, memory: SharedMemory | None
    ) -> None:
        threads = len(seats) // (memory.size if memory is not None else 1)
        self.memory = memory
        self.all = {node: new(layout.width) for nodes in seats for node in nodes}
        mine = slice(rank * threads, (rank + 1) * threads)
        self.vectors = {node: self.all[node] for nodes in seats[mine] for node in nodes}
        self.parts = layout.parts(len(seats))[mine]

    def collect(self, filled: int) -> dict[Node, torch.Tensor]:
        self.meet()
        return self.all

    def meet(self) -> None:
        if self.memory is not None:
            self.memory.meet()


class MessageBoard(Board):
    """Workers on several hosts: each sums what it has, and the group sums the rest for all."""

    def __init__(
        self, nodes: Sequence[list[Node]], shards: int, layout: FlatLayout, new: NewVector, group: Group, crew: Crew
    ) -> None:
        self.group, self.crew, self.shards = group, crew, shards
        self.width = group.padded(layout.width)
        self.like = new(self.width)
        self.vectors = {node: new(self.width) for seat in nodes for node in seat}
        self.nodes = cover(shares(shards, group.size)[group.rank], (0, shards))
        self.parts = layout.parts(crew.size)

    def collect(self, filled: int) -> dict[Node, torch.Tensor]:
        """From sums of threads to sums of this worker, and of all; each thread takes a part of the vectors."""
        nodes = [node for node in self.nodes if node[0] < filled]

        def work(thread: int) -> None:
            start, end = shares(self.width, self.crew.size)[thread]
            known = {node: vector[start:end] for node, vector in self.vectors.items()}
            for node in nodes:
                combine(node, known.get, filled, torch.Tensor.add_)

        if any(node not in self.vectors for node in nodes):
            self.crew.run(work)
        sums = {node: self.vectors[_first(node, self.vectors)] for node in nodes}
        return {(0, self.shards): self.group.tree_sum(sums, self.shards, filled, self.like)}

    def meet(self) -> None:
        """Each worker has its own weights."""


def _first(node: Node, known: dict[Node, torch.Tensor]) -> Node:
    """The first of the known nodes below a node: its vector holds the sum."""
    while node not in known:
        node = (node[0], middle(node))
    return node
