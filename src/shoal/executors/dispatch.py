"""One loop over every kind of executor: it gives out tasks and outlives whatever happens to the workers."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path

from shoal.executors import worker
from shoal.executors.compatibility import TaskSettings, accept, choose_instruction_set, share
from shoal.executors.failures import FailureLog
from shoal.executors.interface import Call, Done, RemoteJob, RemoteTask, Reply, Skipped, Status, WorkerInfo, Workers
from shoal.executors.limits import RetryLimits
from shoal.executors.rounds import TaskRound

LIMITS = RetryLimits()
REMEMBERED_TASKS = 1000  # finished tasks whose times say how long is too long


class TaskPace:
    """Seconds that tasks took, and so how long is too long."""

    def __init__(self, seconds_per_cost: float = 0.0, limits: RetryLimits = LIMITS) -> None:
        self.expected, self.limits = seconds_per_cost, limits
        self.loading = 0.0  # the longest that a worker took to load the job
        self._seen: deque[tuple[float, float]] = deque(maxlen=REMEMBERED_TASKS)
        self._slowest: float | None = None  # None: to be found out; it is asked for every task in flight

    def saw(self, cost: float, seconds: float, loading: float) -> None:
        """Tasks that cost nothing say nothing of the others."""
        self.loading = max(self.loading, loading)
        if cost > 0:
            self._seen.append((cost, seconds))
            self._slowest = None

    def slowest(self) -> float:
        """Seconds per cost of the slowest; tasks much smaller than the others do not count. 0: not known."""
        if self._slowest is None:
            largest = max((cost for cost, _ in self._seen), default=0.0)
            rates = [seconds / cost for cost, seconds in self._seen if cost >= largest / 4]
            self._slowest = max(rates, default=self.expected)
        return self._slowest

    def limit(self, cost: float) -> float:
        """Seconds after which a task of that cost hangs."""
        if not self._seen and not self.expected:
            return float("inf")
        patience = self.limits.patience_seconds * (1.0 if self._seen else self.limits.patience_factor_at_start)
        return patience + self.limits.slowest_task_factor * (self.loading + self.slowest() * cost)


class Dispatcher:
    """Does tasks of one job on workers.

    seconds_per_cost  what tasks take, roughly, where that is known: then even the first one cannot hang for ever
    """

    def __init__(
        self,
        workers: Workers,
        job: RemoteJob,
        seconds_per_cost: float = 0.0,
        limits: RetryLimits = LIMITS,
    ) -> None:
        self.workers, self.job, self.status = workers, job, Status()
        self.limits, self.pace = limits, TaskPace(seconds_per_cost, limits)
        self.settings = TaskSettings("", 1)
        self.failures = FailureLog(workers, self.note, limits)
        self.left: list[Future[Reply]] = []  # of earlier rounds, which could not be cancelled
        self._token = secrets.token_hex(32)
        self._file = str(job.file) if job.file else None
        self._own_file: Path | None = None

    @property
    def instruction_set(self) -> str:
        """The one that all workers use."""
        return self.settings.instruction_set

    @property
    def accepted(self) -> list[WorkerInfo]:
        """Workers that take part, as known."""
        return self.failures.accepted

    def start(self) -> None:
        """Find out who is there; UserError in words if the search cannot run there."""
        infos = self.workers.start(self.job)
        chosen = choose_instruction_set(accept(infos, self.workers, None, self.note))
        self.failures.accepted = accept(infos, self.workers, chosen, self.note)
        self.settings = share(self.accepted, chosen)
        self.status.workers = self.workers.slots()
        here = worker.hello()["host"]
        if self._file is None and any(info.pid != os.getpid() and info.host == here for info in infos):
            self._write_file()

    def run(
        self, tasks: Sequence[RemoteTask], stop: Callable[[], bool], cut: Callable[[RemoteTask], Sequence[RemoteTask]]
    ) -> Iterator[Done | Skipped]:
        """Do these tasks, the most expensive first, and give each back when it is done.

        stop  asked several times a second: then what waits is cancelled, and what runs is abandoned
        cut   a task -> smaller ones that together are the same work; none where it cannot be cut
        """
        self._look_again()
        worker.STOPS[self._token] = stop
        doing = TaskRound(self, tasks, stop, cut)
        try:
            yield from doing.results()
        finally:
            doing.abandon()
            del worker.STOPS[self._token]
            self.status.busy = self.status.waiting = 0

    def close(self) -> None:
        """End the workers that were started for this. What still runs is not waited for."""
        try:
            self.workers.close()
        finally:
            worker.forget(self.job.key)
            if self._own_file is not None:
                self._own_file.unlink(missing_ok=True)
                self._own_file = None

    def __enter__(self) -> Dispatcher:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def note(self, text: str) -> None:
        if text not in self.status.notes:
            self.status.notes.append(text)

    def call(self, task: RemoteTask, with_content: bool, failed_on: Collection[str] = ()) -> Call:
        job, settings = self.job, self.settings
        payload = task.payload() if callable(task.payload) else task.payload
        return Call(
            task=task.name, payload=payload, key=job.key, load=job.load, work=job.work, file=self._file,
            content=job.content if with_content else None, threads=settings.threads, threads_on=settings.threads_on,
            instruction_set=settings.instruction_set, versions=worker.versions(), token=self._token,
            avoid=self.failures.avoid(failed_on),
        )  # fmt: skip

    def _look_again(self) -> None:
        """Workers may have come and gone since the last time."""
        infos = self.workers.present()
        if infos:
            self.failures.accepted = accept(infos, self.workers, self.settings.instruction_set, self.note)
            self.settings = share(self.accepted, self.settings.instruction_set)
        self.left = [future for future in self.left if not future.done()]

    def _write_file(self) -> None:
        """Workers of this machine map it into memory. Without it the content goes to each of them."""
        with contextlib.suppress(OSError):
            number, name = tempfile.mkstemp(prefix="shoal-job-")
            self._own_file = Path(name)
            with open(number, "wb") as file:
                file.write(self.job.content)
            self._file = name
