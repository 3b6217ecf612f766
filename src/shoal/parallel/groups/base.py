"""The contract of a group: how workers exchange numbers. Every wait has a limit."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from shoal.parallel.exact.tree_sum import Node, combine, cover, shares
from shoal.parallel.lazy import torch

if TYPE_CHECKING:
    from shoal.parallel.groups.shared import SharedMemory


class Lost(RuntimeError):
    """Another worker is gone or does not answer."""


class Group(ABC):
    """Workers that train together. All of them make the same calls in the same order."""

    rank: int
    size: int
    seconds = 0.0  # spent waiting and copying so far
    scatters_rows = False  # rank 0 sends each rank the rows that it needs

    def padded(self, width: int) -> int:
        """The length, rounded up so that a vector can be cut into equal chunks, one for each worker."""
        return -(-width // self.size) * self.size

    def tree_sum(self, sums: dict[Node, torch.Tensor], shards: int, filled: int, like: torch.Tensor) -> torch.Tensor:
        """The sum over all shards in the tree's order, from the nodes that each worker has summed.

        Only the first `filled` shards have rows; `like` is any vector of that kind, padded. Each worker sums one chunk
        of the vector for all: as much traffic as an all-reduce, if workers hold whole nodes.
        """
        root = (0, shards)
        if self.size == 1:
            return sums[root]
        with self.communication():
            held = [[node for node in cover(part, root) if node[0] < filled] for part in shares(shards, self.size)]
            chunk = like.numel() // self.size
            mine = held[self.rank]
            sent = torch.stack([sums[node] for node in mine]) if mine else like.new_empty(0, like.numel())
            parts = [sent[:, k * chunk : (k + 1) * chunk].reshape(-1) for k in range(self.size)]
            got = self.exchange(parts, [len(nodes) * chunk for nodes in held])
            known = {
                node: piece for nodes, part in zip(held, got, strict=True)
                for node, piece in zip(nodes, part.view(len(nodes), chunk), strict=True)
            }  # fmt: skip
            total = combine(root, known.get, filled, torch.add)
            assert total is not None, "a batch has at least one row"
            return self.all_gather(total)

    def share(self, count: int) -> SharedMemory | None:
        """Memory of `count` bytes that all workers see, if they are processes of one host; all call this."""
        return None

    @abstractmethod
    def exchange(self, parts: Sequence[torch.Tensor], sizes: Sequence[int]) -> list[torch.Tensor]:
        """All-to-all: part k goes to worker k; `sizes[k]` numbers come from worker k."""

    @abstractmethod
    def all_gather(self, chunk: torch.Tensor) -> torch.Tensor:
        """The chunks of all workers, of equal length, concatenated."""

    @abstractmethod
    def all_reduce(self, vector: torch.Tensor) -> None:
        """Sum over the workers, in place."""

    @abstractmethod
    def broadcast(self, vector: torch.Tensor) -> None:
        """Copy the first worker's numbers to all, in place."""

    @abstractmethod
    def send(self, vector: torch.Tensor, to: int) -> None:
        """Send to one worker."""

    @abstractmethod
    def receive(self, vector: torch.Tensor, source: int | None = None) -> int:
        """Receive into this vector, from one worker or from any; returns which."""

    def exchange_with(self, vector: torch.Tensor, to: int, source: int) -> torch.Tensor:
        """Send to one neighbour in a ring, and receive as many numbers from the other; all workers call this.

        A send may wait until it is received: so workers of even rank send first, the others receive first.
        """
        got = torch.empty_like(vector)
        if self.rank % 2 == 0:
            self.send(vector, to)
        self.receive(got, source)
        if self.rank % 2:
            self.send(vector, to)
        return got

    def scatter(self, parts: Sequence[torch.Tensor] | None, like: torch.Tensor) -> torch.Tensor:
        """Where `scatters_rows`: rank 0 sends part k to rank k. `like` has the size of this rank's part."""
        raise NotImplementedError

    @abstractmethod
    def gather_objects(self, value: Any) -> list[Any]:
        """The objects of all workers; for small ones."""

    def first_object(self, value: Any) -> Any:
        """The first worker's object."""
        return self.gather_objects(value if self.rank == 0 else None)[0]

    def close(self) -> None:  # noqa: B027, optional
        """Free connections."""

    @contextmanager
    def communication(self) -> Iterator[None]:
        """Add the time spent inside to `seconds`; calls may be nested."""
        begun = time.perf_counter()
        before = self.seconds
        try:
            yield
        finally:
            self.seconds = before + time.perf_counter() - begun


class Alone(Group):
    """One worker."""

    rank, size = 0, 1

    def exchange(self, parts: Sequence[torch.Tensor], sizes: Sequence[int]) -> list[torch.Tensor]:
        return list(parts)

    def all_gather(self, chunk: torch.Tensor) -> torch.Tensor:
        return chunk

    def all_reduce(self, vector: torch.Tensor) -> None: ...

    def broadcast(self, vector: torch.Tensor) -> None: ...

    def send(self, vector: torch.Tensor, to: int) -> None:
        raise AssertionError("a group of one has nobody to send to")

    def receive(self, vector: torch.Tensor, source: int | None = None) -> int:
        raise AssertionError("a group of one has nobody to receive from")

    def gather_objects(self, value: Any) -> list[Any]:
        return [value]
