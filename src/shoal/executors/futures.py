"""Any executor of `concurrent.futures`: processes, threads, mpi4py.futures, a Dask client's, executorlib, Parsl."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from dataclasses import replace
from typing import Any

from shoal.errors import UserError
from shoal.executors import worker
from shoal.executors.failures import is_cancelled
from shoal.executors.interface import INSTALL_REMEDY, Call, RemoteJob, Reply, WorkerInfo, Workers

GREETING_SECONDS = 120.0  # in which the first worker must have answered
OTHERS_SECONDS = 10.0  # for the others, after the first
CALLS_TO_COUNT_WORKERS = 16  # calls that count the workers of an executor that does not say how many it has
COUNTING_PAUSE = 0.05  # seconds that each of these takes, so that all workers get one


class FutureWorkers(Workers):
    def __init__(self, executor: Executor, name: str = "") -> None:
        self.name = name or type(executor).__name__
        self._hanging: set[Future[Reply]] = set()
        self._broken = False
        self.use(executor)

    def use(self, executor: Executor) -> None:
        self._executor, self._given, self._size = executor, executor, _size(executor)

    def start(self, job: RemoteJob) -> list[WorkerInfo]:
        calls = [self._begin(worker.hello, COUNTING_PAUSE) for _ in range(self._size or CALLS_TO_COUNT_WORKERS)]
        _wait(lambda: any(call.done() for call in calls), GREETING_SECONDS)
        if any(call.done() for call in calls):
            _wait(lambda: all(call.done() for call in calls), OTHERS_SECONDS)
        ended = [call for call in calls if call.done()]
        answers = [WorkerInfo.of(self._answer(call)) for call in ended if not is_cancelled(call)]
        infos = {info.key: info for info in answers}
        if ended and not infos:
            raise UserError(f"{self.name}: the executor cancels its calls; give one that runs them")
        if not infos:
            raise UserError(
                f"{self.name}: no worker answered within {GREETING_SECONDS:.0f} s; check that the executor has workers"
            )
        self._size = self._size or len(infos)
        return _spread(list(infos.values()), self._size)

    def _answer(self, answer: Future[Reply]) -> Reply:
        try:
            return answer.result()
        except ModuleNotFoundError as missing:
            raise UserError(
                f"{self.name}: a worker has no package {missing.name!r}, or an older one; {INSTALL_REMEDY}"
            ) from None
        except (Exception, SystemExit) as error:
            raise UserError(f"{self.name}: a worker failed to start ({type(error).__name__}: {error})") from error

    def slots(self) -> int:
        self._hanging = {future for future in self._hanging if not future.done()}
        return max(0, self._size - len(self._hanging))

    def submit(self, call: Call) -> Future[Reply]:
        return self._begin(worker.run, call)

    def _begin(self, function: Any, *arguments: Any) -> Future[Reply]:
        try:
            future = self._executor.submit(function, *arguments)
        except BrokenExecutor:
            self._broken = True
            raise
        except RuntimeError as error:
            if "shutdown" not in str(error):
                raise
            raise UserError(f"{self.name}: the executor was shut down; give one that still runs") from None
        if not callable(getattr(future, "add_done_callback", None)):
            raise UserError(
                f"{self.name}: submit() must return a concurrent.futures.Future; it returned {type(future).__name__}"
            )
        return future

    def restart(self) -> None:
        """A pool of processes that broke or hangs is replaced by one like it; others have to repair themselves."""
        broken = self._broken or bool(getattr(self._executor, "_broken", False))
        if not broken and not self._hanging:
            return
        new = _like(self._executor, self._size)
        if new is None:
            why = "is broken" if broken else "hangs"
            raise UserError(f"{self.name}: the executor {why}: a worker was lost; start a new one, and search again")
        self._end(self._executor)
        self._executor, self._hanging, self._broken = new, set(), False

    def give_up(self, future: Future[Reply]) -> None:
        """Whose process it is cannot be known: its slot is not used any more."""
        self._hanging.add(future)

    def close(self) -> None:
        """The executor belongs to whoever made it, unless it had to be replaced."""
        if self._executor is not self._given:
            self._end(self._executor)

    @staticmethod
    def _end(pool: Executor) -> None:
        for process in list((getattr(pool, "_processes", None) or {}).values()):
            if process.is_alive():
                os.kill(process.pid, signal.SIGKILL)
        pool.shutdown(wait=False)


def _wait(is_over: Callable[[], bool], seconds: float) -> None:
    """Not by `concurrent.futures.wait`, which does not notice a call that was cancelled before anybody took it."""
    end = time.monotonic() + seconds
    while not is_over() and time.monotonic() < end:
        time.sleep(0.01)


def _like(pool: Any, size: int) -> Executor | None:
    """A new pool of processes like this one; None: it is none that we know."""
    if type(pool) is ProcessPoolExecutor:
        return ProcessPoolExecutor(
            size, mp_context=pool._mp_context, initializer=pool._initializer, initargs=pool._initargs
        )  # fmt: skip
    if type(pool).__module__.partition(".")[0] == "loky":
        import loky

        found: Executor = loky.ProcessPoolExecutor(size, initializer=pool._initializer, initargs=pool._initargs)
        return found
    return None


def _size(executor: Executor) -> int:
    """Tasks that it does at the same time; 0: it does not say."""
    for name in ("_max_workers", "num_workers"):
        found = getattr(executor, name, None)
        if isinstance(found, int) and found > 0:
            return found
    return 0


def _spread(infos: list[WorkerInfo], size: int) -> list[WorkerInfo]:
    """The slots of an executor, shared out among the workers that have answered: some may have answered for others."""

    shares = Counter(index % len(infos) for index in range(max(size, len(infos))))
    return [replace(info, slots=shares[index]) for index, info in enumerate(infos)]
