"""Every kind of executor, for the suite that they share, and tasks for it."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from shoal.executors.dispatch import Dispatcher
from shoal.executors.find import find_workers
from shoal.executors.interface import Call, Done, RemoteJob, RemoteTask, Reply, Skipped, WorkerInfo, Workers
from support import dask_cluster, executor_work


@contextmanager
def _named(name: str | None) -> Iterator[Workers]:
    yield find_workers(name)


@contextmanager
def _threads() -> Iterator[Workers]:
    with ThreadPoolExecutor(2) as pool:
        yield find_workers(pool)


@contextmanager
def _processes() -> Iterator[Workers]:
    """Processes by spawn: a fork of a process with threads may hang. None is left behind, not even a stopped one."""
    pool = ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn"))
    try:
        yield find_workers(pool)
    finally:
        for process in list((pool._processes or {}).values()):
            process.kill()
        pool.shutdown()


@contextmanager
def _dask(workers: int) -> Iterator[Workers]:
    """Workers with nannies, which start another one when one has ended."""
    cluster = dask_cluster.shared(workers)
    try:
        yield find_workers(cluster.name)
    finally:
        cluster.mend()


@dataclass(frozen=True)
class Kind:
    """A kind of executor: how to get workers, and what can be done to them in a test."""

    make: Callable[[], AbstractContextManager[Workers]]
    slots: int
    in_process: bool = False  # tasks run in the process of the test: it must not be killed
    replaces: bool = True  # a worker that ended is replaced by itself or by us
    kills: int = 3  # workers that a poisonous task may end
    brings_job: bool = False  # calls never carry it
    slow: bool = False  # it takes seconds until a worker that was killed is replaced


def dask(workers: int) -> Kind:
    """A worker may have begun the task that waited there before we know that the one before it is done: if it ends
    then, the one before is blamed, once for each of the four others. Who is guilty takes two more."""
    return Kind(lambda: _dask(workers), workers, kills=5 + 4, brings_job=True, slow=workers == 1)


def named(name: str) -> Kind:
    """One that the command line has a name for."""
    return Kind(lambda: _named(name), 1)


KINDS = {
    "serial": Kind(lambda: _named(None), 1, in_process=True),
    "threads": Kind(_threads, 2, in_process=True),
    "processes": Kind(_processes, 2, kills=5),
    "local:1": Kind(lambda: _named("local:1"), 1),
    "local:2": Kind(lambda: _named("local:2"), 2),
    "dask, 1 worker": dask(1),
    "dask, 2 workers": dask(2),
}  # fmt: skip


class Watched(Workers):
    """Workers that a test watches, and between which and the dispatcher it may put its hands."""

    def __init__(self, workers: Workers) -> None:
        self.workers, self.name = workers, workers.name
        self.calls: list[Call] = []
        self.restarts = 0
        self.change_infos: Callable[[list[WorkerInfo]], list[WorkerInfo]] = lambda infos: infos
        self.change_call: Callable[[Call], Call] = lambda call: call
        self.change_reply: Callable[[Call, Reply], object] = lambda _, reply: reply

    @property
    def ahead(self) -> int:  # type: ignore[override]
        return self.workers.ahead

    @property
    def notes(self) -> Sequence[str]:  # type: ignore[override]
        return self.workers.notes

    def start(self, job: RemoteJob) -> list[WorkerInfo]:
        return self.change_infos(self.workers.start(job))

    def slots(self) -> int:
        return self.workers.slots()

    def submit(self, call: Call) -> Future[Reply]:
        self.calls.append(call)
        inner = self.workers.submit(self.change_call(call))
        outer: _Outer = _Outer(inner)
        inner.add_done_callback(lambda done: outer.settle(done, lambda reply: self.change_reply(call, reply)))
        return outer

    def restart(self) -> None:
        self.restarts += 1
        self.workers.restart()

    def give_up(self, future: Future[Reply]) -> None:
        self.workers.give_up(_inner(future))

    def close(self) -> None:
        self.workers.close()

    def forget(self, future: Future[Reply]) -> None:
        self.workers.forget(_inner(future))

    def refuse(self, worker: WorkerInfo) -> bool:
        return self.workers.refuse(worker)

    def exclude(self, worker: WorkerInfo) -> bool:
        return self.workers.exclude(worker)

    def present(self) -> list[WorkerInfo] | None:
        infos = self.workers.present()
        return None if infos is None else self.change_infos(infos)


class _Outer(Future[Reply]):
    def __init__(self, inner: Future[Reply]) -> None:
        super().__init__()
        self.inner = inner

    def settle(self, done: Future[Reply], change: Callable[[Reply], object]) -> None:
        if done.cancelled():
            self.cancel()
            self.set_running_or_notify_cancel()
        elif done.exception() is not None:
            self.set_exception(done.exception())
        else:
            self.set_result(change(done.result()))  # type: ignore[arg-type]


def _inner(future: Future[Reply]) -> Future[Reply]:
    assert isinstance(future, _Outer)
    return future.inner


@dataclass
class Bench:
    """A folder for traces, a job, and tasks for it."""

    folder: Path
    file: Path | None = None
    text: str = "job"
    job: RemoteJob = field(init=False)

    def __post_init__(self) -> None:
        content = json.dumps({"folder": str(self.folder), "text": self.text}).encode()
        self.job = RemoteJob.of(content, "support.executor_work:load", "support.executor_work:work", self.file)

    def traces(self, kind: str) -> list[tuple[int, str]]:
        return executor_work.traces(self.folder, kind)

    def go(self) -> None:
        """Let the tasks end that wait."""
        (self.folder / "go").touch()

    def stay(self) -> None:
        """Let the next ones wait again."""
        (self.folder / "go").unlink()

    def expected(self, tasks: Sequence[RemoteTask]) -> dict[str, bytes]:
        """What these tasks must give, by part: however they were cut, and wherever they were done."""
        return {part: executor_work.line(self.text, part) for task in tasks for part, _ in parts_of(task)}


def task_of(name: str, parts: Sequence[str] | dict[str, str], cost: float = 1.0, memory: int = 0) -> RemoteTask:
    """A task of these parts, and what to do for each: nothing, or what `executor_work.DOING` says."""
    told = parts if isinstance(parts, dict) else dict.fromkeys(parts, "")
    payload = {"name": name, "parts": list(told.items())}
    return RemoteTask(name, json.dumps(payload).encode(), cost, memory)


def tasks_of(count: int) -> list[RemoteTask]:
    """Harmless ones, of two parts each."""
    return [task_of(f"task{i}", [f"part{i}a", f"part{i}b"], cost=float(i + 1)) for i in range(count)]


def parts_of(task: RemoteTask) -> list[tuple[str, str]]:
    return [(part, told) for part, told in json.loads(task.payload)["parts"]]


def cut(task: RemoteTask) -> list[RemoteTask]:
    """Two halves; nothing where there is only one part."""
    parts = parts_of(task)
    half = len(parts) // 2
    halves = [parts[:half], parts[half:]] if half else []
    return [
        task_of(
            f"{task.name}.{i}", dict(half), task.cost * len(half) / len(parts), task.memory * len(half) // len(parts)
        )
        for i, half in enumerate(halves)
    ]


def never() -> bool:
    return False


def run(dispatcher: Dispatcher, tasks: Sequence[RemoteTask], stop: Callable[[], bool] = never) -> list[Done | Skipped]:
    return list(dispatcher.run(tasks, stop, cut))


def gained(results: Sequence[Done | Skipped]) -> dict[str, bytes]:
    """What came back, by part. Nothing may come back twice."""
    found: dict[str, bytes] = {}
    for result in results:
        if isinstance(result, Done):
            lines = dict(zip([part for part, _ in parts_of(result.task)], result.content.splitlines(), strict=True))
            assert not found.keys() & lines.keys()
            found |= lines
    return found


def skipped(results: Sequence[Done | Skipped]) -> dict[str, str]:
    """Parts that nobody could do, with the reason."""
    lost = [result for result in results if isinstance(result, Skipped)]
    return {part: result.reason for result in lost for part, _ in parts_of(result.task)}


class KillOnce:
    """Given as `stop`: ends the first worker that waits, and lets the others go on. Never asks for an end."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.killed = bench, list[int]()

    def __call__(self) -> bool:
        waits = self.bench.traces("waits")
        if waits and not self.killed:
            self.killed.append(waits[0][0])
            os.kill(self.killed[0], signal.SIGKILL)
            self.bench.go()
        return False
