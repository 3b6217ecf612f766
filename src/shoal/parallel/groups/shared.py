"""Memory that the workers of one host share, whether processes or MPI ranks.

It has no name: the first worker makes it, and the others open it through /proc. So the system frees it with the last
process that maps it, whoever is killed; no other user can open it; and the size of /dev/shm does not limit it.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import secrets
import threading
import time
from typing import Any

from shoal.machine import available_memory, thread_count
from shoal.parallel.groups.base import Group, Lost
from shoal.parallel.lazy import torch

LINE = 64  # bytes of a cache line: the counter of each worker has one
SECONDS_OF_SPINNING = 1e-3  # waiting is mostly shorter; to sleep and to be woken takes longer than a short wait
SECONDS_ASLEEP = 1e-4


class SharedMemory:
    """A piece of memory, and a place where all workers wait for each other."""

    def __init__(self, memory: mmap.mmap, rank: int, size: int, timeout: float) -> None:
        self.memory, self.rank, self.size, self.timeout = memory, rank, size, timeout
        self.turns = memoryview(memory)[: size * LINE].cast("q")
        self.turn = 0
        self.free = size * LINE  # first byte that nobody has
        self.spinning = SECONDS_OF_SPINNING if size <= thread_count() else 0.0
        self.fence = threading.Lock()

    def new_vector(self, width: int, dtype: torch.dtype) -> torch.Tensor:
        """Zeros that all workers see. All ask for the same vectors in the same order."""
        vector = torch.frombuffer(self.memory, dtype=dtype, count=width, offset=self.free)
        self.free += bytes_of(width, dtype)
        return vector

    def meet(self) -> None:
        """Wait until all workers are here. What each wrote before, all can read afterwards."""
        self.turn += 1
        with self.fence:  # a lock is a memory barrier, on any processor: what was written comes before the counter
            pass
        self.turns[self.rank * LINE // 8] = self.turn
        begun = time.perf_counter()
        for other in range(self.size):
            while self.turns[other * LINE // 8] < self.turn:
                self._pause(time.perf_counter() - begun)
        with self.fence:
            pass

    def _pause(self, waited: float) -> None:
        if waited > self.timeout:
            raise Lost(f"another worker has not answered for {self.timeout:g} s")
        if waited < self.spinning:
            os.sched_yield()
        else:
            time.sleep(SECONDS_ASLEEP)


def can_share() -> bool:
    """Whether this system has memory without a name that others can open: Linux."""
    return hasattr(os, "memfd_create")


def bytes_of(width: int, dtype: torch.dtype) -> int:
    """What a vector takes, up to the next cache line."""
    return -(-width * dtype.itemsize // LINE) * LINE


def share(group: Group, count: int, timeout: float) -> SharedMemory | None:
    """Memory of `count` bytes for all workers of a group, which all call this; None if they cannot have it.

    They are on several hosts, the system is not Linux, or there is too little memory.
    """
    count += group.size * LINE
    made = _new_memory(count) if group.rank == 0 else None
    place = group.first_object(made[1] if made else None)
    memory = made[0] if made else _opened(place, count) if place else None
    everyone = all(group.gather_objects(memory is not None))
    if made:
        os.close(made[1]["file"])
    return SharedMemory(memory, group.rank, group.size, timeout) if everyone and memory is not None else None


def _new_memory(count: int) -> tuple[mmap.mmap, dict[str, Any]] | None:
    """The memory, and where others find it."""
    if not can_share() or count > available_memory():
        return None
    name = f"shoal-{secrets.token_hex(8)}"
    try:
        file = os.memfd_create(name)
    except OSError:
        return None
    try:
        os.fchmod(file, 0o600)
        os.posix_fallocate(file, 0, count)  # now, not when it is first used
        place = {"process": os.getpid(), "file": file, "name": name, "network": _network()}
        return mmap.mmap(file, count), place
    except OSError:
        os.close(file)
        return None


def _opened(place: dict[str, Any], count: int) -> mmap.mmap | None:
    """The memory of the first worker. On another host the file is missing, or another one.

    A process with a network of its own counts as another host: it was put there to be one.
    """
    if place["network"] != _network():
        return None
    path = f"/proc/{place['process']}/fd/{place['file']}"
    with contextlib.suppress(OSError):
        if os.readlink(path) == f"/memfd:{place['name']} (deleted)":
            file = os.open(path, os.O_RDWR)
            try:
                return mmap.mmap(file, count)
            finally:
                os.close(file)
    return None


def _network() -> str:
    """The network that this process sees; other containers and namespaces have others."""
    with contextlib.suppress(OSError):
        return os.readlink("/proc/self/ns/net")
    return ""
