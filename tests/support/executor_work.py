"""Work for tests of executors. It runs in the workers, leaves traces in a folder, and does there what it is told.

A job is {"folder": ..., "text": ...}; a task is {"name": ..., "parts": [[name, what to do], ...]}.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import resource
import signal
import struct
import sys
import time
from pathlib import Path
from typing import Any

from shoal import _native
from shoal.executors import worker


def load(content: Any) -> dict[str, str]:
    job: dict[str, str] = json.loads(bytes(content[:]))
    trace(job, "loads", "")
    return job


def work(job: dict[str, str], payload: bytes, threads: int) -> bytes:
    """A line for each part; the same wherever it is done."""
    task = json.loads(payload)
    trace(job, "tasks", task["name"])
    lines = []
    for part, told in task["parts"]:
        DOING.get(told, nothing)(job, part, len(task["parts"]))
        lines.append(line(job["text"], part))
        if told == "tell":
            trace(job, "told", f"{threads} {_native.instruction_set()}")
    return b"\n".join(lines)


def line(text: str, part: str) -> bytes:
    return hashlib.sha256(f"{text} {part}".encode()).hexdigest().encode()


def trace(job: dict[str, str], kind: str, text: str) -> None:
    """One line that says who and what; short lines of several processes do not mix."""
    with open(Path(job["folder"]) / kind, "ab", buffering=0) as file:
        file.write(f"{os.getpid()} {text}\n".encode())


def traces(folder: Path, kind: str) -> list[tuple[int, str]]:
    """What was done so far: pairs of a process and a text."""
    file = folder / kind
    lines = [line.partition(" ") for line in file.read_text().splitlines()] if file.exists() else []
    return [(int(process), text) for process, _, text in lines]


def nothing(_job: dict[str, str], _part: str, _size: int) -> None:
    pass


def wait(job: dict[str, str], part: str, _size: int) -> None:
    """Until the test says so, or the search ends."""
    trace(job, "waits", part)
    while not (Path(job["folder"]) / "go").exists():
        if worker.stopping():
            raise worker.Stopped
        time.sleep(0.01)


def nap(_job: dict[str, str], _part: str, _size: int) -> None:
    time.sleep(0.02)


def die(job: dict[str, str], part: str, _size: int) -> None:
    trace(job, "deaths", part)
    os.kill(os.getpid(), signal.SIGKILL)


def die_at_once() -> None:
    """In the place of `worker.hello`."""
    os.kill(os.getpid(), signal.SIGKILL)


def stop_once(job: dict[str, str], part: str, _size: int) -> None:
    if not traces(Path(job["folder"]), "stops"):
        trace(job, "stops", part)
        os.kill(os.getpid(), signal.SIGSTOP)


def half_once(job: dict[str, str], part: str, _size: int) -> None:
    """The beginning of a message where loky sends results; then it goes no further."""
    if traces(Path(job["folder"]), "halves"):
        return
    frame = sys._getframe()
    while frame.f_code.co_name != "_process_worker":
        assert frame.f_back is not None
        frame = frame.f_back
    os.write(frame.f_locals["result_queue"]._writer.fileno(), struct.pack("!i", 1000) + b"half")
    trace(job, "halves", part)
    signal.pause()


def fail(job: dict[str, str], part: str, _size: int) -> None:
    trace(job, "failures", part)
    raise ArithmeticError(f"{part} cannot be done")


def fail_once(job: dict[str, str], part: str, size: int) -> None:
    if not traces(Path(job["folder"]), "failures"):
        fail(job, part, size)


def memory_hog(job: dict[str, str], part: str, size: int) -> None:
    """Needs memory for all parts of the task, in a process that may have little more than it has."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (100 << 20), before[1]))
    try:
        trace(job, "allocations", f"{size}")
        bytearray(size * (60 << 20))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def no_file(job: dict[str, str], part: str, _size: int) -> None:
    (Path(job["folder"]) / part).read_bytes()


def fail_here(job: dict[str, str], part: str, _size: int) -> None:
    """The disk of the first process that comes here is full from then on."""
    full = Path(job["folder"]) / "full"
    with contextlib.suppress(FileExistsError):
        full.symlink_to(f"{os.getpid()}")
    if full.readlink() == Path(f"{os.getpid()}"):
        trace(job, "failures", part)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    time.sleep(0.02)


DOING = {
    "fail here": fail_here,
    "no file": no_file,
    "wait": wait,
    "nap": nap,
    "die": die,
    "stop once": stop_once,
    "half once": half_once,
    "fail": fail,
    "fail once": fail_once,
    "memory": memory_hog,
}
