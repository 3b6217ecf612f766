"""Workers that are processes, connected by torch.distributed."""

from __future__ import annotations

import atexit
import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from shoal.parallel.groups.base import Group, Lost
from shoal.parallel.groups.shared import SharedMemory, share
from shoal.parallel.lazy import torch


class Distributed(Group):
    """Processes over torch.distributed: gloo, or NCCL between GPUs."""

    def __init__(self, store: Any, rank: int, size: int, timeout: float, device: torch.device) -> None:
        import torch.distributed as dist

        self.rank, self.size, self.timeout = rank, size, timeout
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        limit = timedelta(seconds=timeout)
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=limit)
        self.dist = dist
        # Threads of gloo may still hold tensors of the last message. They end when the process group is freed; DDP has
        # it in a reference cycle, and a thread that drops a tensor after the interpreter has ended aborts the process.
        atexit.unregister(gc.collect)
        atexit.register(gc.collect)

    @contextmanager
    def _calling(self) -> Iterator[None]:
        """An error of the network means that another worker is lost."""
        with self.communication():
            try:
                yield
            except RuntimeError as error:
                raise Lost(f"another worker is gone or does not answer: {str(error).splitlines()[0]}") from None

    def share(self, count: int) -> SharedMemory | None:
        return share(self, count, self.timeout)

    def exchange(self, parts: Sequence[torch.Tensor], sizes: Sequence[int]) -> list[torch.Tensor]:
        with self._calling():
            got = parts[0].new_empty(sum(sizes))
            self.dist.all_to_all_single(got, torch.cat(list(parts)), list(sizes), [part.numel() for part in parts])
            return list(got.split(list(sizes)))

    def all_gather(self, chunk: torch.Tensor) -> torch.Tensor:
        with self._calling():
            whole = chunk.new_empty(chunk.numel() * self.size)
            gather = getattr(self.dist, "all_gather_single", None) or self.dist.all_gather_into_tensor  # the newer name
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

    def gather_objects(self, value: Any) -> list[Any]:
        with self._calling():
            values: list[Any] = [None] * self.size
            self.dist.all_gather_object(values, value)
            return values

    def close(self) -> None:
        if self.dist.is_initialized():
            self.dist.destroy_process_group()
