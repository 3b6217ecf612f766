"""A real Dask scheduler and its workers, as processes of this machine."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil

from support.waiting import wait_until

TESTS = Path(__file__).parents[1]
Variables = dict[str, str]


def jobs_kept() -> int:
    """In a worker."""
    from shoal.executors import worker

    return len(worker._JOBS)


def tasks_held(dask_scheduler: Any) -> list[str]:
    return list(dask_scheduler.tasks)


def worker_count(dask_scheduler: Any) -> int:
    return len(dask_scheduler.workers)


class Cluster:
    """Each process has a session of its own; `close` ends all of them."""

    def __init__(
        self, folder: Path, workers: int = 0, nanny: bool = False, threads: int = 1, host: str = "127.0.0.1",
        scheme: str = "tcp", variables: Variables | None = None, prefix: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.folder, self.count, self.nanny, self.threads = folder, workers, nanny, threads
        self.host, self.scheme = host, scheme
        self.variables, self.prefix = variables or {}, list(prefix)
        self.workers: list[subprocess.Popen[bytes]] = []
        self.address = ""
        self.scheduler = self._start_scheduler(0)
        self.add(workers)

    @property
    def name(self) -> str:
        """What a user gives as --cluster."""
        return self.address.replace("tcp://", "dask://")

    def add(
        self, count: int = 1, variables: Variables | None = None, prefix: Sequence[str] = (), host: str = "",
        options: Sequence[str] = (),
    ) -> list[int]:  # fmt: skip
        """Start workers and wait until the scheduler knows them; their processes, or those of their nannies."""
        where = ["--host", host or self.host, "--nthreads", str(self.threads), "--local-directory", str(self.folder)]
        options = [*where, "--nanny" if self.nanny else "--no-nanny", *options]
        before = self._registered()
        started = [self._run("worker", [self.address, *options], prefix, variables) for _ in range(count)]
        self.workers += started
        wait_until(lambda: self._registered() >= before + count)
        return [worker.pid for worker in started]

    def mend(self) -> None:
        """As many workers as at the start, whatever a test did to them; new ones where one was stopped."""
        for process in self.processes():
            if process.status() == psutil.STATUS_STOPPED:
                process.kill()
                if not self.nanny:
                    wait_until(lambda: any(worker.poll() is not None for worker in self.workers))
        self.workers = [worker for worker in self.workers if worker.poll() is None]
        while len(self.workers) > self.count:
            self._end(self.workers.pop())
        self.add(self.count - len(self.workers))
        wait_until(lambda: self.ask(worker_count) == self.count)  # nannies start others

    def processes(self) -> list[psutil.Process]:
        """Of workers, and of their nannies."""
        parents = [psutil.Process(worker.pid) for worker in self.workers if worker.poll() is None]
        return [process for parent in parents for process in [parent, *parent.children(recursive=True)]]

    def pids(self) -> list[int]:
        """Of workers without nannies."""
        return [worker.pid for worker in self.workers if worker.poll() is None]

    def ask(self, question: Callable[..., Any]) -> Any:
        """What the scheduler answers to somebody else."""
        from distributed import Client

        with Client(self.address, set_as_default=False) as client:
            return client.run_on_scheduler(question)

    def ask_workers(self, question: Callable[..., Any]) -> list[Any]:
        from distributed import Client

        with Client(self.address, set_as_default=False) as client:
            return list(client.run(question).values())

    def end_scheduler(self) -> None:
        self.scheduler.kill()
        self.scheduler.wait()

    def restart_scheduler(self) -> None:
        """At the same address. The workers of the old one end by themselves."""
        self.scheduler = self._start_scheduler(int(self.address.rpartition(":")[2]))

    def close(self) -> None:
        for process in [*self.workers, self.scheduler]:
            self._end(process)

    @staticmethod
    def _end(process: subprocess.Popen[bytes]) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def _registered(self) -> int:
        """Times that a worker was accepted by the scheduler so far."""
        return sum(file.read_text().count("Registered to:") for file in self.folder.glob("worker-*.log"))

    def _start_scheduler(self, port: int) -> subprocess.Popen[bytes]:
        file = self.folder / "scheduler.json"
        file.unlink(missing_ok=True)
        options = ["--host", self.host, "--port", str(port), "--protocol", self.scheme, "--scheduler-file", str(file)]
        options += ["--idle-timeout", "600s"]  # nothing of it outlives tests that were killed; workers end with it
        started = self._run("scheduler", options, self.prefix)
        text = wait_until(lambda: file.exists() and file.read_text().rstrip().endswith("}") and file.read_text())
        self.address = json.loads(text)["address"]
        return started

    def _run(
        self, kind: str, options: list[str], prefix: Sequence[str], variables: Variables | None = None
    ) -> subprocess.Popen[bytes]:
        page = ["--no-dashboard", "--dashboard-address", "127.0.0.1:0"]  # it would listen on all networks
        command = [*prefix, sys.executable, "-m", f"distributed.cli.dask_{kind}", *options, *page]
        path = os.pathsep.join(part for part in (str(TESTS), os.environ.get("PYTHONPATH")) if part)
        environment = {**os.environ, "PYTHONPATH": path, **self.variables, **(variables or {})}
        number = len(list(self.folder.glob(f"{kind}-*.log")))
        with open(self.folder / f"{kind}-{number}.log", "wb") as log:
            return subprocess.Popen(
                command, stdout=log, stderr=log, env=environment, cwd=self.folder, start_new_session=True
            )


_shared: dict[int, Cluster] = {}


def shared(workers: int) -> Cluster:
    """One with so many workers, which have nannies. Starting one takes seconds, so tests share it, and mend it."""
    if not _shared:
        atexit.register(close_shared)
    if workers not in _shared or _shared[workers].scheduler.poll() is not None:
        _shared[workers] = Cluster(Path(tempfile.mkdtemp(prefix="shoal-dask-")), workers, nanny=True)
    return _shared[workers]


def close_shared() -> None:
    """End them: even idle ones take a few per cent of a core for each process."""
    while _shared:
        _, cluster = _shared.popitem()
        cluster.close()
        shutil.rmtree(cluster.folder, ignore_errors=True)
