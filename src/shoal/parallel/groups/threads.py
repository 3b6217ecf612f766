"""Workers that are threads of one process."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from shoal.parallel.groups.base import Group, Lost
from shoal.parallel.lazy import torch


class Rendezvous:
    """What the threads of a group share."""

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


class InProcess(Group):
    """Workers in one process. All collective operations are made of one: to meet, and exchange objects."""

    def meet(self, value: Any, combine: Callable[[list[Any]], Any] = list) -> Any:
        """What `combine` makes of the values of all workers, once all are here."""
        raise NotImplementedError

    def exchange(self, parts: Sequence[torch.Tensor], sizes: Sequence[int]) -> list[torch.Tensor]:
        return [given[self.rank] for given in self.meet([part.clone() for part in parts])]

    def all_gather(self, chunk: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.meet(chunk.clone(), torch.cat)
        return found

    def all_reduce(self, vector: torch.Tensor) -> None:
        vector.copy_(self.meet(vector.clone(), lambda vectors: torch.stack(vectors).sum(0)))

    def broadcast(self, vector: torch.Tensor) -> None:
        vector.copy_(self.meet(vector.clone() if self.rank == 0 else None)[0])

    def gather_objects(self, value: Any) -> list[Any]:
        return list(self.meet(value))


class Threads(InProcess):
    """Workers that are threads of this process."""

    def __init__(self, rendezvous: Rendezvous, rank: int) -> None:
        self.rendezvous, self.rank, self.size = rendezvous, rank, rendezvous.size

    def _wait(self) -> None:
        try:
            self.rendezvous.barrier.wait(self.rendezvous.timeout)
        except threading.BrokenBarrierError:
            raise Lost("another worker has failed or has not answered in time") from None

    def meet(self, value: Any, combine: Callable[[list[Any]], Any] = list) -> Any:
        """Nobody may change his value before all have read it."""
        with self.communication():
            self.rendezvous.slots[self.rank] = value
            self._wait()
            seen = list(self.rendezvous.slots)
            self._wait()
        return combine(seen)

    def send(self, vector: torch.Tensor, to: int) -> None:
        self.rendezvous.box(self.rank, to).put(vector.clone())
        self.rendezvous.arrived[to].put(self.rank)

    def receive(self, vector: torch.Tensor, source: int | None = None) -> int:
        with self.communication():
            deadline = time.monotonic() + self.rendezvous.timeout
            while time.monotonic() < deadline and not self.rendezvous.barrier.broken:
                try:
                    sender = self.rendezvous.arrived[self.rank].get(timeout=0.2) if source is None else source
                    # Who received from a given source has left its notice of arrival: then the box is empty.
                    box = self.rendezvous.box(sender, self.rank)
                    vector.copy_(box.get_nowait() if source is None else box.get(timeout=0.2))
                    return sender
                except queue.Empty:
                    continue
            raise Lost("another worker has failed or has not answered in time")

    def close(self) -> None:
        """After an error: workers that wait for this one stop waiting."""
        self.rendezvous.barrier.abort()
