"""The code that runs in a worker: it keeps the job, ensures equal bits, and does one task at a time."""

from __future__ import annotations

import hashlib
import importlib
import mmap
import os
import socket
import threading
import time
import traceback
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

from shoal import _native
from shoal.executors import replies
from shoal.executors.interface import Call, Reply, process_key
from shoal.machine import available_memory, using_instruction_set
from shoal.runs.versions import versions_for_bits

KEPT_JOBS = 2
AVOIDING_SECONDS = 0.2  # that a worker waits before it sends back what it must not do: others take it meanwhile


def hello(pause: float = 0.0) -> Reply:
    """What this worker is, as plain values: see WorkerInfo. With a pause, so that other workers take other calls."""
    time.sleep(pause)
    return _fixed() | {"memory": available_memory()}


@cache
def versions() -> dict[str, str]:
    return versions_for_bits()


def run(call: Call) -> Reply:
    """Do a task. Whatever happens in it comes back as a reply, with the reason in words."""
    began = time.perf_counter()
    seconds = loading = 0.0
    if process_key(_host(), os.getpid()) in call.avoid:
        time.sleep(AVOIDING_SECONDS)
        return _reply(call, replies.AVOIDED, b"")
    try:
        reason = mismatch(versions(), _native.instruction_sets(), call.versions, call.instruction_set)
        if reason:
            return _reply(call, replies.REFUSED, reason.encode())
        with _settings(call) as threads:
            job, is_new = _loaded(call.key, call.load, lambda: _content(call))
            loading = time.perf_counter() - began if is_new else 0.0
            began = time.perf_counter()
            content = function(call.work)(job, call.payload, threads)
            seconds = time.perf_counter() - began
        if not isinstance(content, bytes):
            raise TypeError(f"{call.work} must return bytes; got {type(content).__name__}")
        return _reply(call, replies.DONE, content, seconds, loading)
    except _Missing:
        return _reply(call, replies.MISSING, b"")
    except MemoryError:
        return _reply(call, replies.MEMORY, traceback.format_exc().encode())
    except (OSError, ImportError):
        return _reply(call, replies.ENVIRONMENT, traceback.format_exc().encode())
    except (Exception, SystemExit):
        return _reply(call, replies.FAILED, traceback.format_exc().encode())


def receive(key: str, load: str, begin: int, piece: bytes, size: int) -> None:
    """Take a piece of a job's content, and load the job with the last one. Several searches may send the same job."""
    with _loading:
        if (key, load) in _JOBS:
            return
        if key not in _pieces:
            _pieces[key] = mmap.mmap(-1, size)
        _pieces[key][begin : begin + len(piece)] = piece
        content = _pieces.pop(key) if begin + len(piece) == size else None
    if content is not None:
        _check_hash(content, key)
        _loaded(key, load, lambda: content)


def forget(key: str) -> None:
    """Free the memory of a job."""
    with _loading:
        _pieces.pop(key, None)
        for known in [known for known in _JOBS if known[0] == key]:
            del _JOBS[known]


def function(name: str) -> Callable[..., Any]:
    """ "module:function" -> the function."""
    module, _, attribute = name.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
    return found


# --- ending a task that runs in the process of the search: nothing else can end it

STOPS: dict[str, Callable[[], bool]] = {}  # by token, in the process of the search
_token: ContextVar[str] = ContextVar("token", default="")


class TaskStopped(Exception):
    """Raised by work that has seen `stopping()`."""


def stopping() -> bool:
    """Should this task end, because its search does? Work asks this several times a second, and raises TaskStopped."""
    stop = STOPS.get(_token.get())
    return stop is not None and stop()


# --- the job


class _Missing(Exception):
    """This process has not got the job and cannot get it by itself."""


_JOBS: OrderedDict[tuple[str, str], Any] = OrderedDict()  # by key and load: the latest few that were loaded here
_pieces: dict[str, mmap.mmap] = {}  # of jobs that are being received
_loading = threading.RLock()  # a job is loaded once, by the first thread that needs it; the others wait


def _loaded(key: str, load: str, read: Callable[[], Any]) -> tuple[Any, bool]:
    """The job of that key, and whether it was loaded now, from what `read` gives."""
    with _loading:
        is_new = (key, load) not in _JOBS
        if is_new:
            _JOBS[key, load] = function(load)(read())
        _JOBS.move_to_end((key, load))
        while len(_JOBS) > KEPT_JOBS:
            _JOBS.popitem(last=False)
        return _JOBS[key, load], is_new


def _content(call: Call) -> bytes | mmap.mmap:
    """The job's content from its file, mapped into memory, if this machine sees that file; else what came along."""
    mapped = _mapped(call.file) if call.file else None
    if mapped is not None and hashlib.sha256(mapped).hexdigest() == call.key:
        return mapped
    if call.content is None:
        raise _Missing
    _check_hash(call.content, call.key)
    return call.content


def _check_hash(content: bytes | mmap.mmap, key: str) -> None:
    if hashlib.sha256(content).hexdigest() != key:
        raise ValueError("the content of the job does not have the hash that was sent with it")


def _mapped(file: str) -> mmap.mmap | None:
    try:
        with open(file, "rb") as opened:
            return mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError):  # no such file here, not ours to read, or empty
        return None


# --- the process


def mismatch(versions_there: Mapping[str, str], sets_there: Sequence[str], versions_here: Mapping[str, str],
             wanted: str | None) -> str:  # fmt: skip
    """Why a worker ("there") cannot give the same bits as the search ("here"); empty if it can."""
    for name, here in versions_here.items():
        there = versions_there.get(name)
        if there != here:
            return f"it has {name} {there or 'of no known version'}, and the search has {name} {here}"
    if wanted and wanted not in sets_there:
        return f"it has the instruction sets {', '.join(sets_there)}, and the search uses {wanted}"
    return ""


_entering = threading.Condition()
_queue: deque[object] = deque()  # tasks that are about to begin, in order
_inside = 0  # tasks that run in this process now
_in_use = ""  # their instruction set
_restore: Callable[[], None] = lambda: None  # noqa: E731


@contextmanager
def _settings(call: Call) -> Iterator[int]:
    """The instruction set of the kernel, and threads for libraries: put back when the last task of this process ends.

    All tasks of a search have the same. The kernel reads SHOAL_ISA at each call, so a task of another search, which
    uses another instruction set, waits for its turn.
    """
    threads = call.threads_on.get(_host(), call.threads)
    _enter(call.instruction_set, threads)
    outer = _token.set(call.token)
    try:
        yield threads
    finally:
        _token.reset(outer)
        _leave()


def _enter(instruction_set: str, threads: int) -> None:
    global _inside, _in_use, _restore
    me = object()
    with _entering:
        _queue.append(me)
        try:
            _entering.wait_for(lambda: _queue[0] is me and (not _inside or _in_use == instruction_set))
            if _inside == 0:
                _restore, _in_use = _set(instruction_set, threads), instruction_set
            _inside += 1
        finally:
            _queue.remove(me)
            _entering.notify_all()


def _leave() -> None:
    global _inside
    with _entering:
        _inside -= 1
        if _inside == 0:
            _restore()
        _entering.notify_all()


def _set(instruction_set: str, threads: int) -> Callable[[], None]:
    """Change the settings of this process; how to put them back."""
    stack = ExitStack()
    stack.enter_context(using_instruction_set(instruction_set))
    stack.callback(_controller().limit(limits=threads).restore_original_limits)
    return stack.close


def _after_fork() -> None:
    """A process made by fork has none of the tasks of its parent, and locks must not stay as they were there."""
    global _inside, _entering, _loading
    _inside, _entering, _loading = 0, threading.Condition(), threading.RLock()
    _queue.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@cache
def _controller() -> Any:
    """The BLAS and OpenMP libraries of this process: finding them takes milliseconds, so it is done once."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@cache
def _host() -> str:
    return socket.gethostname()


def _fixed() -> Reply:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return {
        "host": _host(),
        "pid": os.getpid(),
        "cores": cores,
        "instruction_sets": list(_native.instruction_sets()),
        "versions": versions(),
    }


def _reply(call: Call, status: str, content: bytes, seconds: float = 0.0, loading: float = 0.0) -> Reply:
    return replies.make(call, status, content, seconds, loading, _fixed() | {"memory": 0})
