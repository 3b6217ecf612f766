"""Worker processes on this machine, `local:4`: each is a loky pool of one.

A pool breaks as a whole when one of its processes ends. With one process each, only the task of that process is lost,
it is known which one it was, and a process that hangs can be ended alone.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
import time
from collections import deque
from collections.abc import Collection, Iterator
from concurrent.futures import BrokenExecutor, Future, TimeoutError
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from shoal.errors import UserError
from shoal.executors import worker
from shoal.executors.interface import Call, FailedOn, LostWorker, RemoteJob, Reply, WorkerInfo, Workers, library
from shoal.machine import thread_count

START_SECONDS = 120.0  # that processes may take to start
MAX_STARTS = 3  # of processes that end in one place before they have done anything
MAX_PROCESSES = 1024
PARENT_CHECK_SECONDS = 0.5


class LocalWorkers(Workers):
    def __init__(self, name: str) -> None:
        count = name.partition(":")[2]
        if not count.isdecimal() or not 1 <= int(count) <= MAX_PROCESSES:
            raise UserError(
                f"local:N needs a whole number of processes from 1 to {MAX_PROCESSES}, such as local:4; got {name!r}"
            )
        self.name, self.processes = name, int(count)
        self._lock = threading.RLock()
        self._pending: deque[tuple[Call, Future[Reply]]] = deque()
        self._seats: list[_Seat] = []
        self.notes: list[str] = []  # sentences for the user
        self._closed = False
        _loky()

    def prepare(self) -> None:
        """Start the processes. They import what they need while this one does something else."""
        threads = max(1, thread_count() // self.processes)
        self._seats = [_Seat(threads, f"process {number}") for number in range(self.processes)]
        for seat in self._seats:
            seat.greet()

    def start(self, job: RemoteJob) -> list[WorkerInfo]:
        """A process that ends while it starts is replaced, like one that ends later; some at least must start."""
        if not self._seats:
            self.prepare()
        deadline, reason, lost = time.monotonic() + START_SECONDS, "", []
        for seat in self._seats:
            try:
                seat.info = seat.hear(deadline)
            except (LostWorker, BrokenExecutor, TimeoutError) as error:
                reason = str(error) if isinstance(error, LostWorker) else _reason(error)
                lost.append(seat)
        remedy = "use fewer processes, or check their output"
        if len(lost) == len(self._seats):
            self.close()
            raise UserError(f"{self.name}: {reason}; {remedy}")
        if lost:
            self._seats = [seat for seat in self._seats if seat not in lost]
            count = f"{len(self._seats)} of {self.processes}"
            self.notes.append(f"{self.name}: only {count} processes could be started ({reason}); {remedy}")
            for seat in lost:
                seat.close()
        return self.present()

    def slots(self) -> int:
        return len(self._seats) or self.processes

    def present(self) -> list[WorkerInfo]:
        return [seat.info for seat in self._seats if seat.info is not None]

    def exclude(self, worker: WorkerInfo) -> bool:
        """The process is replaced."""
        with self._lock:
            for seat in self._seats:
                seat.replace = seat.replace or seat.is_one_of([worker.key])
        return True

    def submit(self, call: Call) -> Future[Reply]:
        future: Future[Reply] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("cannot submit after shutdown")
            self._pending.append((call, future))
        self._serve()
        return future

    def give_up(self, future: Future[Reply]) -> None:
        with self._lock:
            for seat in self._seats:
                if seat.future is future:
                    seat.kill()

    def forget(self, future: Future[Reply]) -> None:
        """Ending a process and starting another costs a second or two, a task that nobody wants may cost minutes."""
        if not future.cancel():
            self.give_up(future)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            for _, future in self._pending:
                future.cancel()
            self._pending.clear()
        for seat in self._seats:
            seat.close()

    def _serve(self) -> None:
        """Give the calls that wait to processes that have nothing to do."""
        with self._lock:
            while not self._closed and (found := self._next()) is not None:
                seat, call, future = found
                if not future.set_running_or_notify_cancel():
                    continue
                seat.future = future
                try:
                    inner = seat.submit(worker.run, call)
                except Exception as error:  # in a thread of a pool nobody else would see it
                    seat.future = None
                    future.set_exception(error)
                    continue
                inner.add_done_callback(partial(self._ended, seat, future))

    def _next(self) -> tuple[_Seat, Call, Future[Reply]] | None:
        """The first call that waits and may go to a process that has nothing to do."""
        idle = [seat for seat in self._seats if seat.future is None]
        for place, (call, future) in enumerate(self._pending if idle else ()):
            allowed = [seat for seat in self._seats if not seat.is_one_of(call.avoid)] or idle
            seat = next((seat for seat in idle if seat in allowed), None)
            if seat is not None:
                del self._pending[place]
                return seat, call, future
        return None

    def _ended(self, seat: _Seat, future: Future[Reply], inner: Future[Reply]) -> None:
        """Called by a thread of the pool."""
        with self._lock:
            seat.future = None
        error = None if inner.cancelled() else inner.exception()
        if inner.cancelled() or isinstance(error, BrokenExecutor) or self._closed:
            future.set_exception(LostWorker(_reason(error), seat.place))
        elif error is not None:
            future.set_exception(FailedOn(seat.info, error))
        else:
            future.set_result(inner.result())
        self._serve()


class _Seat:
    """The place of a process: when one has ended, the next task gets a new one."""

    def __init__(self, threads: int, place: str) -> None:
        self.place = place
        self.future: Future[Reply] | None = None  # of the task that it does
        self.info: WorkerInfo | None = None  # of its process
        self.replace = False  # its process, before it gets its next task
        self._pool: Any = None
        self._answer: Future[Reply]
        self._environment = {f"{library}_NUM_THREADS": str(threads) for library in ("OMP", "OPENBLAS", "MKL")}

    def is_one_of(self, keys: Collection[str]) -> bool:
        """Whether the process that gets the next task is one of these."""
        return self.info is not None and self.info.key in keys and not self.replace

    def greet(self) -> None:
        """Start a process, and do not wait for it."""
        self._answer = self.submit(worker.hello)

    def hear(self, deadline: float) -> WorkerInfo:
        """What the process is. One that ends before it has said that is replaced."""
        for left in reversed(range(MAX_STARTS)):
            try:
                info = WorkerInfo.of(self._answer.result(max(0.0, deadline - time.monotonic())))
                return replace(info, place=self.place)
            except (LostWorker, BrokenExecutor):
                if not left:
                    raise
                self.close()
                self.greet()
        raise AssertionError("MAX_STARTS is 1 or more")

    def submit(self, function: Any, *arguments: Any) -> Future[Reply]:
        reason = ""
        if self.replace:
            self.close(wait=False)
            self.replace = False
        for _ in range(2):
            try:
                with _without_interrupts():
                    pool = self._open()
                    future: Future[Reply] = pool.submit(function, *arguments)
                if self.info is not None:
                    self.info = replace(self.info, pid=next(iter(pool._processes), 0))
                return future
            except BrokenExecutor:  # it has ended, now or while it had nothing to do
                self.close(wait=False)
            except (OSError, UnboundLocalError) as error:  # no room for another process; loky stumbles over the error
                self.close(wait=False)
                reason = f" ({error.__context__ if isinstance(error, UnboundLocalError) else error})"
        future = Future()
        future.set_exception(LostWorker(f"a worker process could not be started{reason}"))
        return future

    def _open(self) -> Any:
        if self._pool is None:
            self._pool = _loky().ProcessPoolExecutor(
                1, timeout=None, initializer=_begin, initargs=(os.getpid(),), env=self._environment
            )
        return self._pool

    def kill(self) -> None:
        """End the process, even a stopped one. Its task fails, and the next one gets a new process."""
        for number in list(self._pool._processes) if self._pool is not None else []:
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        results = getattr(self._pool, "_result_queue", None)
        if results is not None:  # while this process could write there, loky would wait for the rest of half a result
            with contextlib.suppress(OSError):  # loky has just closed it itself
                results._writer.close()

    def close(self, wait: bool = True) -> None:
        """A thread of the pool, which calls when a task has ended, cannot wait for itself."""
        self.kill()
        if self._pool is not None:
            self._pool.shutdown(wait=wait, kill_workers=True)
            self._pool = None


def _reason(error: BaseException | None) -> str:
    """Why a worker is lost; loky's text has the signal in it."""
    if isinstance(error, TimeoutError):
        return f"a worker process did not start within {START_SECONDS:.0f} s"
    signals = re.findall(r"(SIG[A-Z]+)\(", str(error))
    return f"a worker process was ended by {signals[0]}" if signals else "a worker process has ended"


def _loky() -> Any:
    return library("loky", "local:N", "cluster")


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Processes started here never see Ctrl-C: a terminal sends it to them too, but it is for the search alone."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(parent: int) -> None:
    """First in a worker process."""
    import loky.process_executor

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    loky.process_executor._USE_PSUTIL = False  # it would take a large job, which is kept, for leaked memory
    loky.process_executor._MEMORY_LEAK_CHECK_DELAY = 60.0  # seconds between collections of garbage; 20 ms each
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    """A worker does not outlive the search, however that ended."""
    while os.getppid() == parent:
        time.sleep(PARENT_CHECK_SECONDS)
    os._exit(1)
