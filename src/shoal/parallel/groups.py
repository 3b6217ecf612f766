"""How workers talk: threads of one process, processes over torch.distributed, ranks of MPI. One contract for all.

Every wait has a limit. What a group spends waiting and copying is added up in `seconds`.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch

from shoal.parallel.sums import Node, combine, cover, shares


class Lost(RuntimeError):
    """Another worker is gone or does not answer."""


class Group(ABC):
    """Workers that train together. All of them make the same calls in the same order."""

    rank: int
    size: int
    seconds = 0.0

    def padded(self, width: int) -> int:
        """Vectors of this length can be cut into equal chunks, one for each worker."""
        return -(-width // self.size) * self.size

    def tree_sum(self, sums: dict[Node, torch.Tensor], shards: int, filled: int, like: torch.Tensor) -> torch.Tensor:
        """The sum over all shards, in the tree's order, from each worker's own nodes.

        Only the first `filled` shards have rows; `like` is any vector of that sort, padded.

        Each worker sums one chunk of the vector for all: as much traffic as an all-reduce, if workers hold whole nodes.
        """
        root = (0, shards)
        if self.size == 1:
            return _present(combine(root, _or_nothing(sums, cover(root, root), filled), torch.add))
        with self._talking():
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
            everything = [node for part in shares(shards, self.size) for node in cover(part, root)]
            total = _present(combine(root, _or_nothing(known, everything, filled), torch.add))
            return self.all_gather(total)

    @abstractmethod
    def exchange(self, parts: Sequence[torch.Tensor], sizes: Sequence[int]) -> list[torch.Tensor]:
        """Part k goes to worker k; from worker k come `sizes[k]` numbers."""

    @abstractmethod
    def all_gather(self, chunk: torch.Tensor) -> torch.Tensor:
        """The chunks of all workers, equally long, one after the other."""

    @abstractmethod
    def all_reduce(self, vector: torch.Tensor) -> None:
        """Sum over the workers, in place."""

    @abstractmethod
    def broadcast(self, vector: torch.Tensor) -> None:
        """The first worker's numbers for all, in place."""

    @abstractmethod
    def send(self, vector: torch.Tensor, to: int) -> None: ...

    @abstractmethod
    def receive(self, vector: torch.Tensor, source: int | None = None) -> int:
        """Into this vector, from this worker or from anyone; who it was comes back."""

    @abstractmethod
    def gather_objects(self, thing: Any) -> list[Any]:
        """What each worker has, for all; for small things."""

    def first_object(self, thing: Any) -> Any:
        """What the first worker has, for all."""
        return self.gather_objects(thing if self.rank == 0 else None)[0]

    def close(self) -> None:  # noqa: B027, most have nothing to close
        """End of the work."""

    @contextmanager
    def _talking(self) -> Iterator[None]:
        begun = time.perf_counter()
        before = self.seconds
        try:
            yield
        finally:  # what calls within have added is part of the same time
            self.seconds = before + time.perf_counter() - begun


def _or_nothing(known: dict[Node, torch.Tensor], nodes: Sequence[Node], filled: int) -> dict[Node, torch.Tensor | None]:
    """Nodes that start after the last shard with rows have no sum."""
    return {**known, **{node: None for node in nodes if node[0] >= filled}}


def _present(vector: torch.Tensor | None) -> torch.Tensor:
    assert vector is not None, "a batch has at least one row"
    return vector


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
        raise AssertionError("there is nobody to send to")

    def receive(self, vector: torch.Tensor, source: int | None = None) -> int:
        raise AssertionError("there is nobody to receive from")

    def gather_objects(self, thing: Any) -> list[Any]:
        return [thing]


class Meeting:
    """What threads of one process share."""

    def __init__(self, size: int, timeout: float) -> None:
        self.size, self.timeout = size, timeout
        self.barrier = threading.Barrier(size)
        self.slots: list[Any] = [None] * size
        self.boxes: dict[tuple[int, int], queue.Queue[torch.Tensor]] = {}
        self.arrived = [queue.Queue[int]() for _ in range(size)]
        self.lock = threading.Lock()

    def box(self, source: int, to: int) -> queue.Queue[torch.Tensor]:
        with self.lock:
            return self.boxes.setdefault((source, to), queue.Queue())


class Threads(Group):
    """Workers that are threads of this process."""

    def __init__(self, meeting: Meeting, rank: int) -> None:
        self.meeting, self.rank, self.size = meeting, rank, meeting.size

    def _wait(self) -> None:
        try:
            self.meeting.barrier.wait(self.meeting.timeout)
        except threading.BrokenBarrierError:
            raise Lost("another worker has failed or has not answered in time") from None

    def _swap(self, thing: Any) -> list[Any]:
        """Put something down, see what all have put down. Nobody may touch it before all have seen it."""
        with self._talking():
            self.meeting.slots[self.rank] = thing
            self._wait()
            seen = list(self.meeting.slots)
            self._wait()
            return seen

    def exchange(self, parts: Sequence[torch.Tensor], sizes: Sequence[int]) -> list[torch.Tensor]:
        return [given[self.rank] for given in self._swap([part.clone() for part in parts])]

    def all_gather(self, chunk: torch.Tensor) -> torch.Tensor:
        return torch.cat(self._swap(chunk.clone()))

    def all_reduce(self, vector: torch.Tensor) -> None:
        vector.copy_(torch.stack(self._swap(vector.clone())).sum(0))

    def broadcast(self, vector: torch.Tensor) -> None:
        vector.copy_(self._swap(vector.clone())[0])

    def send(self, vector: torch.Tensor, to: int) -> None:
        self.meeting.box(self.rank, to).put(vector.clone())
        self.meeting.arrived[to].put(self.rank)

    def receive(self, vector: torch.Tensor, source: int | None = None) -> int:
        with self._talking():
            deadline = time.monotonic() + self.meeting.timeout
            while time.monotonic() < deadline and not self.meeting.barrier.broken:
                try:
                    if source is None:
                        source = self.meeting.arrived[self.rank].get(timeout=0.2)
                    vector.copy_(self.meeting.box(source, self.rank).get(timeout=0.2))
                    return source
                except queue.Empty:
                    continue
            raise Lost("another worker has failed or has not answered in time")

    def gather_objects(self, thing: Any) -> list[Any]:
        return self._swap(thing)

    def close(self) -> None:
        """After an error: whoever waits for this worker stops waiting."""
        self.meeting.barrier.abort()


class Distributed(Group):
    """Processes over torch.distributed: gloo, or NCCL between GPUs."""

    def __init__(self, store: Any, rank: int, size: int, timeout: float, device: torch.device) -> None:
        import torch.distributed as dist

        self.rank, self.size, self.device = rank, size, device
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        limit = timedelta(seconds=timeout)
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=limit)
        self.dist = dist

    @contextmanager
    def _calling(self) -> Iterator[None]:
        """Errors of the network are losses of a worker."""
        with self._talking():
            try:
                yield
            except RuntimeError as error:
                raise Lost(f"another worker is gone or does not answer: {str(error).splitlines()[0]}") from None

    def exchange(self, parts: Sequence[torch.Tensor], sizes: Sequence[int]) -> list[torch.Tensor]:
        with self._calling():
            got = parts[0].new_empty(sum(sizes))
            self.dist.all_to_all_single(got, torch.cat(list(parts)), list(sizes), [part.numel() for part in parts])
            return list(got.split(list(sizes)))

    def all_gather(self, chunk: torch.Tensor) -> torch.Tensor:
        with self._calling():
            whole = chunk.new_empty(chunk.numel() * self.size)
            gather = getattr(self.dist, "all_gather_single", None) or self.dist.all_gather_into_tensor  # its newer name
            gather(whole, chunk.contiguous())
            return whole

    def all_reduce(self, vector: torch.Tensor) -> None:
        with self._calling():
            self.dist.all_reduce(vector)

    def broadcast(self, vector: torch.Tensor) -> None:
        with self._calling():
            self.dist.broadcast(vector, 0)

    def send(self, vector: torch.Tensor, to: int) -> None:
        with self._calling():
            self.dist.send(vector, to)

    def receive(self, vector: torch.Tensor, source: int | None = None) -> int:
        with self._calling():
            return int(self.dist.recv(vector, source))

    def gather_objects(self, thing: Any) -> list[Any]:
        with self._calling():
            things: list[Any] = [None] * self.size
            self.dist.all_gather_object(things, thing)
            return things

    def close(self) -> None:
        if self.dist.is_initialized():
            self.dist.destroy_process_group()


class Mpi(Group):
    """Ranks of MPI. Waits are polled, so that more ranks than cores do not spin each other out."""

    def __init__(self, timeout: float) -> None:
        from mpi4py import MPI

        self.mpi, self.timeout = MPI, timeout
        self.comm = MPI.COMM_WORLD
        self.rank, self.size = self.comm.Get_rank(), self.comm.Get_size()

    def _finish(self, request: Any) -> Any:
        with self._talking():
            status, begun = self.mpi.Status(), time.monotonic()
            while not request.Test(status):
                waited = time.monotonic() - begun
                if waited > self.timeout:
                    raise Lost(f"another rank has not answered for {self.timeout:g} s")
                if waited > 0.002:
                    time.sleep(0.0002)
                else:
                    os.sched_yield() if hasattr(os, "sched_yield") else time.sleep(0)
            return status

    def exchange(self, parts: Sequence[torch.Tensor], sizes: Sequence[int]) -> list[torch.Tensor]:
        sent = torch.cat(list(parts)).cpu().numpy()
        got = torch.empty(sum(sizes), dtype=parts[0].dtype)
        counts = [part.numel() for part in parts]
        self._finish(self.comm.Ialltoallv([sent, counts], [got.numpy(), list(sizes)]))
        return list(got.to(parts[0].device).split(list(sizes)))

    def all_gather(self, chunk: torch.Tensor) -> torch.Tensor:
        whole = torch.empty(chunk.numel() * self.size, dtype=chunk.dtype)
        self._finish(self.comm.Iallgather(chunk.contiguous().cpu().numpy(), whole.numpy()))
        return whole.to(chunk.device)

    def all_reduce(self, vector: torch.Tensor) -> None:
        total = torch.empty(vector.shape, dtype=vector.dtype)
        self._finish(self.comm.Iallreduce(vector.contiguous().cpu().numpy(), total.numpy()))
        vector.copy_(total)

    def broadcast(self, vector: torch.Tensor) -> None:
        copy = vector.detach().cpu().contiguous()
        self._finish(self.comm.Ibcast(copy.numpy(), 0))
        vector.copy_(copy)

    def scatter(self, parts: Sequence[torch.Tensor] | None, like: torch.Tensor) -> torch.Tensor:
        """Rows from the first rank: part k for rank k. `like` has the size of what this rank gets."""
        got = torch.empty_like(like)
        if self.rank == 0:
            assert parts is not None
            sent = torch.cat([part.reshape(-1) for part in parts]).numpy()
            self._finish(self.comm.Iscatterv([sent, [part.numel() for part in parts]], got.numpy(), 0))
        else:
            self._finish(self.comm.Iscatterv(None, got.numpy(), 0))
        return got

    def send(self, vector: torch.Tensor, to: int) -> None:
        self._finish(self.comm.Isend(vector.contiguous().cpu().numpy(), to))

    def receive(self, vector: torch.Tensor, source: int | None = None) -> int:
        copy = torch.empty(vector.shape, dtype=vector.dtype)
        status = self._finish(self.comm.Irecv(copy.numpy(), self.mpi.ANY_SOURCE if source is None else source))
        vector.copy_(copy)
        return int(status.Get_source())

    def gather_objects(self, thing: Any) -> list[Any]:
        import pickle

        mine = torch.frombuffer(bytearray(pickle.dumps(thing)), dtype=torch.uint8)
        lengths = self.all_gather(torch.tensor([mine.numel()])).tolist()
        padded = torch.zeros(max(lengths), dtype=torch.uint8)
        padded[: mine.numel()] = mine
        whole = self.all_gather(padded).view(self.size, -1)
        return [pickle.loads(row[:length].numpy().tobytes()) for row, length in zip(whole, lengths, strict=True)]
