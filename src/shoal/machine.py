"""Facts about this machine: threads, memory, instruction set, devices."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shoal import _native
from shoal.errors import UserError
from shoal.validate import whole

MOST_THREADS = 4096


def thread_count(threads: int | None = None) -> int:
    """Threads to use: what was asked for, else SHOAL_THREADS, else the cores this process may run on."""
    named = os.environ.get("SHOAL_THREADS") if threads is None else None
    if named:
        return whole("SHOAL_THREADS: threads", int(named) if named.isdecimal() else named, 1, MOST_THREADS)
    if threads is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return whole("threads", threads, 1, MOST_THREADS)


def instruction_set() -> str:
    """The one that the compiled kernel uses: what SHOAL_ISA names, else the widest that this processor has."""
    named, known = os.environ.get("SHOAL_ISA", ""), _native.instruction_sets()
    if named and named not in known:
        raise UserError(f"SHOAL_ISA must be one of {', '.join(known)} on this machine; got {named!r}")
    return str(_native.instruction_set())


@contextmanager
def using_instruction_set(name: str | None) -> Iterator[None]:
    """The kernel uses this one inside, and the one from before afterwards. None: no change."""
    before = os.environ.get("SHOAL_ISA")
    if name is None or name == instruction_set():
        yield
        return
    os.environ["SHOAL_ISA"] = name
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("SHOAL_ISA", None)
        else:
            os.environ["SHOAL_ISA"] = before


def available_memory() -> int:
    """Four fifths of the memory that is free now, in bytes; the rest is left to everybody else."""
    import psutil

    free = psutil.virtual_memory().available
    return min(free, _container_memory(free)) * 4 // 5


def peak_memory() -> int:
    """The most memory that this process has had so far, in bytes.

    Not ru_maxrss on Linux: a process inherits it from the one that started it, whatever it is itself.
    """
    status = Path("/proc/self/status")
    if status.exists():
        found = re.search(r"^VmHWM:\s+(\d+) kB", status.read_text(), re.M)
        if found:
            return int(found[1]) * 1024
    import psutil

    memory = psutil.Process().memory_info()
    return int(getattr(memory, "peak_wset", memory.rss))  # Windows has the peak; elsewhere what there is now


def _container_memory(otherwise: int) -> int:
    """What is left of the limit of a container (control group, version 2)."""
    try:
        with open("/sys/fs/cgroup/memory.max") as limit, open("/sys/fs/cgroup/memory.current") as used:
            return int(limit.read()) - int(used.read())
    except (OSError, ValueError):  # no such file, or "max": no limit
        return otherwise


def size_text(count: float) -> str:
    """1234567 -> '1.2 MB'."""
    power = 0
    while count >= 1000 and power < 3:
        count, power = count / 1000, power + 1
    digits = 0 if power == 0 or count >= 100 else 1
    return f"{count:.{digits}f} {('B', 'kB', 'MB', 'GB')[power]}"


def processor() -> str:
    """The name of the processor, as the system tells it."""
    try:
        with open("/proc/cpuinfo") as table:
            names = [line.split(":", 1)[1].strip() for line in table if line.startswith("model name")]
        if names:
            return names[0]
    except OSError:
        pass
    return platform.processor() or platform.machine()
