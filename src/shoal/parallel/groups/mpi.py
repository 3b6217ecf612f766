"""Workers that are MPI ranks."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from shoal.parallel.groups.base import Group, Lost
from shoal.parallel.groups.shared import SharedMemory, share
from shoal.parallel.lazy import torch


class Mpi(Group):
    """MPI itself waits in a busy loop, which slows down other ranks on the same cores; so requests are polled."""

    scatters_rows = True

    def __init__(self, timeout: float) -> None:
        from mpi4py import MPI

        self.mpi, self.timeout = MPI, timeout
        self.comm = MPI.COMM_WORLD
        self.rank, self.size = self.comm.Get_rank(), self.comm.Get_size()
        self._finish(self.comm.Ibarrier())  # all have opened the memory
        _take_names_away()

    def _finish(self, request: Any) -> Any:
        with self.communication():
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

    def share(self, count: int) -> SharedMemory | None:
        return share(self, count, self.timeout)

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

    def gather_objects(self, value: Any) -> list[Any]:
        import pickle

        mine = torch.frombuffer(bytearray(pickle.dumps(value)), dtype=torch.uint8)
        lengths = self.all_gather(torch.tensor([mine.numel()])).tolist()
        padded = torch.zeros(max(lengths), dtype=torch.uint8)
        padded[: mine.numel()] = mine
        whole = self.all_gather(padded).view(self.size, -1)
        return [pickle.loads(row[:length].numpy().tobytes()) for row, length in zip(whole, lengths, strict=True)]


def _take_names_away() -> None:
    """MPICH names its memory in /dev/shm until it ends. Without a name it goes with the last rank, even if killed."""
    with suppress(OSError):  # not Linux, or another rank was first
        for name in set(re.findall(r"/dev/shm/mpich_shm_\w+$", Path("/proc/self/maps").read_text(), re.MULTILINE)):
            Path(name).unlink(missing_ok=True)
