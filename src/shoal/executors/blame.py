"""Who is to blame for a task that failed: the task, or its worker?

A task gives the same everywhere. If it fails on one worker and another completes it, the worker is at fault; after a
few of these it gets no more tasks. A task is at fault only if it failed on several workers, or on the only one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass

from shoal.executors.interface import WorkerInfo, Workers
from shoal.executors.team import who

TASKS = 2  # that fail on a worker and that others complete, until it is not used any more
REMEDIES = {
    "No space left on device": "make room on its disk",
    "Disk quota exceeded": "make room on its disk",
    "Read-only file system": "let it write to its disk",
    "MemoryError": "give it more memory",
    "ModuleNotFoundError": "install there what is here",
    "ImportError": "install there what is here",
}


@dataclass(frozen=True)
class Failure:
    """What happened to a task on a worker."""

    worker: WorkerInfo | None  # None: the executor cannot tell
    reason: str  # in a line
    at: int  # in the order of all replies

    def __str__(self) -> str:
        return f"{who(self.worker)}: {self.reason}"

    @property
    def remedy(self) -> str:
        found = (remedy for words, remedy in REMEDIES.items() if words in self.reason)
        return next(found, "see what is wrong there")


class Blame:
    """Failures of the workers of a search."""

    def __init__(self, workers: Workers, note: Callable[[str], None]) -> None:
        self.workers, self.note = workers, note
        self.accepted: list[WorkerInfo] = []  # workers that take part, as known at the start of a round
        self.excluded: set[str] = set()  # keys of workers that are not used any more
        self.first: Failure | None = None  # of all
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

    def failure(self, worker: WorkerInfo | None, reason: str) -> Failure:
        """Note a failure; the worker as its executor calls it."""
        if worker is not None:
            worker = next((info for info in self._present() if info.key == worker.key), worker)
        self._replies += 1
        found = Failure(worker, reason, self._replies)
        self.first = self.first or found
        return found

    def completed(self, task: str, worker: WorkerInfo, failures: Collection[Failure]) -> None:
        """A task is done; it may have failed elsewhere before."""
        self._replies += 1
        self._done[worker.key] = self._replies
        for failure in failures:
            culprit = failure.worker
            if culprit is None or culprit.key == worker.key or culprit.key in self.excluded:
                continue
            self._tasks[culprit.key].add(task)
            if len(self._tasks[culprit.key]) >= TASKS and self.others([culprit.key]):
                self._exclude(culprit, failure)

    def works(self, failures: Collection[Failure]) -> bool:
        """Whether a worker has done anything since one of these failures of it: then it does not fail everything."""
        return any(one.worker is not None and self._done.get(one.worker.key, 0) > one.at for one in failures)

    def _exclude(self, worker: WorkerInfo, failure: Failure) -> None:
        self.excluded.add(worker.key)
        self.workers.exclude(worker)
        self.note(
            f"{who(worker)} is not used any more: it failed {TASKS} tasks that other workers completed "
            f"({failure.reason}); {failure.remedy}"
        )

    def _present(self) -> list[WorkerInfo]:
        present = self.workers.present()
        return self.accepted if present is None else present
