"""Decides whether a task or its worker is at fault when a task fails.

A task gives the same result everywhere. If it fails on one worker and another completes it, the worker is faulty, and
after a few of these it gets no more tasks. A task fails only if it failed on several workers, or on the only one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection
from concurrent.futures import BrokenExecutor, Future
from dataclasses import dataclass, field
from typing import Any

from shoal.executors.compatibility import who
from shoal.executors.interface import INSTALL_REMEDY, LostWorker, RemoteTask, WorkerInfo, Workers
from shoal.executors.limits import RetryLimits

LOST = (LostWorker, BrokenExecutor)
LOST_BY_NAME = {"KilledWorker", "CommClosedError", "WorkerLost", "ManagerLost"}  # of Dask, of Parsl
REMEDIES = {
    "No space left on device": "make room on its disk",
    "Disk quota exceeded": "make room on its disk",
    "Read-only file system": "let it write to its disk",
    "MemoryError": "give it more memory",
    "ModuleNotFoundError": INSTALL_REMEDY,
    "ImportError": INSTALL_REMEDY,
}


@dataclass(frozen=True)
class TaskFailure:
    """What happened to a task on a worker."""

    worker: WorkerInfo | None  # None: the executor cannot tell
    reason: str  # in a line
    at: int  # in the order of all replies

    @property
    def key(self) -> str:
        """Of the worker. Unknown workers count as different ones."""
        return f"unknown {self.at}" if self.worker is None else self.worker.key

    def __str__(self) -> str:
        return f"{who(self.worker)}: {self.reason}"

    @property
    def remedy(self) -> str:
        found = (remedy for words, remedy in REMEDIES.items() if words in self.reason)
        return next(found, "check that worker")


@dataclass(eq=False)
class TaskState:
    """A task of this round, and what has happened to it so far."""

    task: RemoteTask
    urgent: bool = False  # before the others, whatever it costs
    alone: bool = False  # only while nothing else runs, so that a lost worker can be attributed
    suspect: bool = False  # it, or the task that it was cut from, has ended a worker or failed
    with_content: bool = False  # the worker lacked the job
    lost: int = 0  # workers in a row
    lost_alone: int = 0  # of these, those that no other task can have ended
    lost_at: set[str] = field(default_factory=set)  # places of workers that were lost with it
    failures: list[TaskFailure] = field(default_factory=list)
    anywhere: bool = False  # also where it has failed, since nobody else takes it
    hangs: int = 0
    without_result: int = 0  # calls that were refused, cancelled or answered by something else
    finished: bool = False

    @property
    def failed_on(self) -> set[str]:
        return {failure.key for failure in self.failures}


class FailureLog:
    """Failures of the workers of a search."""

    def __init__(self, workers: Workers, note: Callable[[str], None], limits: RetryLimits) -> None:
        self.workers, self.note, self.limits = workers, note, limits
        self.accepted: list[WorkerInfo] = []  # workers that take part, as known at the start of a round
        self.excluded: set[str] = set()  # keys of workers that are not used any more
        self.first: TaskFailure | None = None  # of all
        self._replies = 0
        self._done: dict[str, int] = {}  # by worker: its last task that was done, in the order of all replies
        self._tasks: dict[str, set[str]] = defaultdict(set)  # by worker: those that failed there, and not elsewhere

    def others(self, keys: Collection[str]) -> bool:
        """Whether somebody takes part beside these workers and those that are excluded."""
        return any(info.key not in keys and info.key not in self.excluded for info in self._present())

    def avoid(self, failed_on: Collection[str]) -> tuple[str, ...]:
        """Whom a call must not go to: where it has failed, as long as there are others."""
        keys = {*failed_on, *self.excluded} if self.others(failed_on) else self.excluded
        return tuple(sorted(keys)) if self.others(()) else ()

    def at(self, places: Collection[str]) -> set[str]:
        """Workers that are in these places now."""
        return {info.key for info in self._present() if info.place in places}

    def elsewhere(self, places: Collection[str]) -> bool:
        """Whether somebody is in another place than these."""
        return any(info.place and info.place not in places for info in self._present())

    def add(self, worker: WorkerInfo | None, reason: str) -> TaskFailure:
        """Note a failure; the worker as its executor calls it."""
        if worker is not None:
            worker = next((info for info in self._present() if info.key == worker.key), worker)
        self._replies += 1
        found = TaskFailure(worker, reason, self._replies)
        self.first = self.first or found
        return found

    def completed(self, task: str, worker: WorkerInfo, failures: Collection[TaskFailure]) -> None:
        """A task is done; it may have failed elsewhere before."""
        self._replies += 1
        self._done[worker.key] = self._replies
        for failure in failures:
            faulty = failure.worker
            if faulty is None or faulty.key == worker.key or faulty.key in self.excluded:
                continue
            self._tasks[faulty.key].add(task)
            if len(self._tasks[faulty.key]) >= self.limits.failures_that_show_a_faulty_worker and self.others(
                [faulty.key]
            ):
                self._exclude(faulty, failure)

    def works(self, failures: Collection[TaskFailure]) -> bool:
        """Whether a worker has done anything since one of these failures of it: then it does not fail everything."""
        return any(one.worker is not None and self._done.get(one.worker.key, 0) > one.at for one in failures)

    def _exclude(self, worker: WorkerInfo, failure: TaskFailure) -> None:
        self.excluded.add(worker.key)
        self.workers.exclude(worker)
        self.note(
            f"{who(worker)} gets no more tasks: it failed {len(self._tasks[worker.key])} tasks that other workers "
            f"completed ({failure.reason}); {failure.remedy}"
        )

    def _present(self) -> list[WorkerInfo]:
        present = self.workers.present()
        return self.accepted if present is None else present


def is_loss(error: BaseException) -> bool:
    return isinstance(error, LOST) or type(error).__name__ in LOST_BY_NAME


def is_cancelled(future: Future[Any]) -> bool:
    """Whether a call has ended without running. Libraries also give that as an exception, which may be asyncio's."""
    return future.cancelled() or type(future.exception()).__name__ == "CancelledError"


def one_line(error: BaseException) -> str:
    text = last_line(str(error))
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
