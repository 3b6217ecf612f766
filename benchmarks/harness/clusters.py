"""Where a search runs while it is disturbed: this process alone, worker processes, a Dask cluster, an MPI job."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from shutil import which

import psutil

from benchmarks.harness.machine import installed
from benchmarks.harness.searches import Attempt, alive, shoal, workers_among

STARTING = 60.0  # seconds that a scheduler may take to listen, or workers to find it
REGISTERED = "Registered to:"  # what a worker of Dask says then


class Cluster:
    """This process alone; other clusters change some of these."""

    name = "one process"
    needs: tuple[str, ...] = ()  # modules that have to be installed
    address = ""  # for --cluster

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def start(self) -> None:
        """Start what is there before the search."""

    def command(self, words: list[str]) -> list[str]:
        return shoal(words)

    def workers(self, attempt: Attempt) -> list[psutil.Process]:
        """Processes that do the search's tasks."""
        return attempt.workers()

    def end(self) -> None:
        """End what was started here."""


class Local(Cluster):
    name, needs, address = "local:2", ("loky",), "local:2"


class Dask(Cluster):
    """A scheduler and two workers, each with its nanny, as users start them."""

    count = 2
    name, needs = "dask, 2 workers", ("distributed",)

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.port = free_port()
        self.address = f"dask://127.0.0.1:{self.port}"
        self.scheduler: subprocess.Popen[bytes] | None = None
        self.nannies: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        self.start_scheduler()
        self.start_workers()

    def start_scheduler(self) -> None:
        page = ["--no-dashboard", "--dashboard-address", "127.0.0.1:0"]  # without the latter it takes a fixed port
        alone = ["--idle-timeout", "300s"]  # should this process be killed, scheduler and workers end by themselves
        place = ["--host", "127.0.0.1", "--port", str(self.port)]
        self.scheduler = self._run("dask_scheduler", *place, *page, *alone)
        self._wait_for(lambda: listening(self.port))

    def start_workers(self) -> None:
        before = self.said().count(REGISTERED)
        here = ["--host", "127.0.0.1", "--nthreads", "1", "--no-dashboard", "--local-directory", str(self.folder)]
        self.nannies += [self._run("dask_worker", f"tcp://127.0.0.1:{self.port}", *here) for _ in range(self.count)]
        self._wait_for(lambda: self.said().count(REGISTERED) == before + self.count)

    def said(self) -> str:
        return (self.folder / "dask.log").read_text(encoding="utf-8", errors="replace")

    def _wait_for(self, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + STARTING
        while not ready():
            if time.monotonic() > deadline:
                self.end()
                raise RuntimeError(f"the Dask cluster did not start:\n{self.said()[-2000:]}")
            time.sleep(0.05)

    def kill_scheduler(self) -> None:
        assert self.scheduler is not None
        self.scheduler.kill()
        self.scheduler.wait()

    def workers(self, attempt: Attempt) -> list[psutil.Process]:
        found = []
        for nanny in self.nannies:
            with suppress(psutil.NoSuchProcess):
                found += workers_among(psutil.Process(nanny.pid).children())
        return found

    def end(self) -> None:
        started = [process for process in (self.scheduler, *self.nannies) if process is not None]
        family = []
        for process in started:
            with suppress(psutil.NoSuchProcess):
                family += psutil.Process(process.pid).children(recursive=True)
        for process in started:
            process.kill()
            process.wait()
        for child in filter(alive, family):
            with suppress(psutil.NoSuchProcess):
                child.kill()
        self.scheduler, self.nannies = None, []

    def _run(self, command: str, *words: str) -> subprocess.Popen[bytes]:
        line = [sys.executable, "-m", f"distributed.cli.{command}", *words]
        with open(self.folder / "dask.log", "ab") as log:
            return subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)


class Mpi(Cluster):
    """Three ranks: one for the search, two that do its tasks."""

    name, needs, address = "mpi, 2 workers", ("mpi4py",), "mpi"

    def command(self, words: list[str]) -> list[str]:
        return [mpiexec(), "-n", "3", sys.executable, "-m", "mpi4py.futures", "-m", "shoal", *words]

    def workers(self, attempt: Attempt) -> list[psutil.Process]:
        return [process for process in attempt.workers() if rank(process) > 0]


CLUSTERS: dict[str, type[Cluster]] = {"serial": Cluster, "local": Local, "dask": Dask, "mpi": Mpi}


def missing(cluster: str) -> str:
    """What is not installed that a cluster needs, or nothing."""
    absent = [module for module in CLUSTERS[cluster].needs if not installed(module)]
    return ", ".join(absent) or ("mpiexec" if cluster == "mpi" and not mpiexec() else "")


def mpiexec() -> str:
    """The one of this Python's installation, else the system's; nothing where there is none."""
    return which("mpiexec", path=str(Path(sys.executable).parent)) or which("mpiexec") or ""


def rank(process: psutil.Process) -> int:
    """The number of an MPI process; -1: it is none."""
    with suppress(psutil.Error, ValueError):
        environment = process.environ()
        return int(environment.get("PMI_RANK") or environment.get("OMPI_COMM_WORLD_RANK") or -1)
    return -1


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        number: int = found.getsockname()[1]
        return number


def listening(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
