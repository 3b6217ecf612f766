"""The launcher: starts workers, monitors them, and restarts them from the last checkpoint when one is lost."""

from __future__ import annotations

import os
import platform
import queue
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.errors import MissingPackage
from shoal.files.plain_files import read_bytes, remove
from shoal.parallel.checkpoint import TEMPORARY, temporary_place
from shoal.parallel.divergence import Diverged
from shoal.parallel.events import Notify, pass_on
from shoal.parallel.exact.threads import threads_per_worker
from shoal.parallel.groups import Lost
from shoal.parallel.launch import payload
from shoal.parallel.launch.environment import OWN
from shoal.parallel.launch.failures import WorkerError, WorkerLost
from shoal.parallel.launch.heartbeat import PEER_LOST, STOPPED, Event, HeartbeatMonitor
from shoal.parallel.lazy import nn, torch
from shoal.parallel.worker import Result
from shoal.runs.lock import process_numbers

if TYPE_CHECKING:
    from torch.utils.data import Dataset

    from shoal.parallel.job import Job

SECONDS_TO_CONNECT = 120.0
SECONDS_TO_EXPLAIN = 1.5  # why a worker ended
SECONDS_TO_END = 5.0
SECONDS_BETWEEN_PAUSES = 1.0  # workers are asked again to pause: some may have connected since
MARKER = ".shoal-launcher"  # in the folder of a launcher
OnMessage = Callable[[dict[str, Any]], Any]  # receives what the first worker sends; a true answer asks it to stop
PROGRAM = "shoal.parallel.launch.rank"  # what a worker runs, with the folder of its payload


@dataclass
class Failure:
    """Why an attempt ended: an error to raise, or a loss to recover from."""

    rank: int
    reason: str
    error: WorkerError | None = None


def launch(
    job: Job,
    model: nn.Module,
    train: Dataset[Any],
    valid: Dataset[Any] | None,
    notify: Notify,
    stop: threading.Event | None = None,
) -> Result:
    """Train with workers that this process starts, and restarts up to `job.restarts` times. `stop` ends them."""
    with own_folder() as folder:
        if job.checkpoint is None:
            job = replace(job, checkpoint=temporary_place(folder / "checkpoint"))
        else:
            job = replace(job, checkpoint=str(Path(job.checkpoint).absolute()))
        payload.write(folder, job, model, train, valid)
        stopped = False

        def on_message(message: dict[str, Any]) -> bool:
            nonlocal stopped
            stopped |= pass_on(message, notify)
            return stopped

        try:
            supervise(job, folder, on_message, stop=stop)
        except WorkerError as error:
            if error.kind == Diverged.__name__:  # not the error of one worker: all diverge
                raise Diverged(error.reason) from None
            raise
        return _result(folder, model)


@contextmanager
def own_folder() -> Iterator[Path]:
    """A temporary folder for the files that a launcher and its workers exchange."""
    _remove_stale_folders()
    folder = Path(tempfile.mkdtemp(prefix=f"{TEMPORARY}{os.getpid()}-"))
    (folder / MARKER).write_text(_marker(), encoding="utf-8")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def supervise(
    job: Job,
    folder: Path,
    on_message: OnMessage,
    program: str = PROGRAM,
    stop: threading.Event | None = None,
    pause: Callable[[], bool] | None = None,
) -> None:
    """Run a program in every worker until all are done. When one is lost, all restart, `job.restarts` times at most.

    `pause`, once true, asks the workers to save a checkpoint and end; `stop` ends them at once.
    """
    for number in range(job.restarts + 1):
        failure = Attempt(job, folder, number, on_message, program, stop, pause).run()
        if failure is None:
            return
        if failure.error is not None:
            raise failure.error
        if number == job.restarts or (pause is not None and pause()):
            break
        if job.allow_fewer and job.workers > 1 and job.method.can_lose_workers(job):
            job = job.with_workers(job.workers - 1)
        on_message({"note": f"worker {failure.rank} {failure.reason}; restarting from the last checkpoint "
                            f"with {job.workers} worker{'s' * (job.workers > 1)}"})  # fmt: skip
    assert failure is not None
    raise WorkerLost(f"worker {failure.rank} {failure.reason}. Shoal restarted the workers {number} times")


def _remove_stale_folders() -> None:
    """Remove folders of launchers that were killed: they have the marker, and the process in the name is gone."""
    import psutil

    if os.name != "posix":  # others have no user numbers, which tell whose folder it is
        return
    for place in Path(tempfile.gettempdir()).glob(f"{TEMPORARY}[0-9]*-*"):
        number = place.name.removeprefix(TEMPORARY).split("-")[0]
        with suppress(OSError):  # another launcher may remove it at the same time
            if number.isdecimal() and not psutil.pid_exists(int(number)) and _is_of_a_launcher(place):
                remove(place)


def _marker() -> str:
    """With the place where the process number in the name means something: containers may share a temporary folder."""
    return f"Files of a launcher of Shoal on {platform.node()}, processes {process_numbers()}\n"


def _is_of_a_launcher(place: Path) -> bool:
    status = place.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        return False
    return read_bytes(place / MARKER) == _marker().encode()


def _result(folder: Path, model: nn.Module) -> Result:
    content = torch.load(folder / "result.pt", weights_only=True)
    model.load_state_dict(content["model"])
    return Result(model, content["history"], content["metrics"])


@dataclass
class Attempt:
    """One set of workers, from start to end."""

    job: Job
    folder: Path
    number: int
    on_message: OnMessage
    program: str
    stop: threading.Event | None
    pause: Callable[[], bool] | None

    def __post_init__(self) -> None:
        self.asked = 0.0  # when the workers were last asked to pause
        self.monitor = HeartbeatMonitor()
        self.store = local_store()
        self.processes: list[subprocess.Popen[bytes]] = []
        self.connected: set[int] = set()
        self.done: set[int] = set()

    def run(self) -> Failure | None:
        try:
            self._start()
            return self._watch()
        finally:
            self._end()

    def _start(self) -> None:
        job = self.job
        threads = str(threads_per_worker(job))
        own = {
            "SHOAL_MONITOR": self.monitor.address, "SHOAL_STORE": f"127.0.0.1:{self.store.port}", OWN: str(os.getpid()),
            "SHOAL_ATTEMPT": str(self.number), "SHOAL_WORKERS": str(job.workers),
            "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, **loopback_only(),
            "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
            "PYTHONSAFEPATH": "1",  # a random.py in the user's folder must not hide the standard library's
        }  # fmt: skip
        program = [sys.executable, "-m", self.program, str(self.folder)]
        if job.backend == "mpi":
            self._run([local_mpi_launcher(), "-n", str(job.ranks), *program], own)
            return
        for rank in range(job.ranks):
            self._run(program, {**own, "SHOAL_RANK": str(rank)})

    def _run(self, command: list[str], own: dict[str, str]) -> None:
        self.processes.append(
            subprocess.Popen(command, env={**os.environ, **own}, stdin=subprocess.DEVNULL, start_new_session=True)
        )

    def _watch(self) -> Failure | None:
        """Wait until all are done or something is wrong."""
        deadline = time.monotonic() + SECONDS_TO_CONNECT
        while True:
            if self.stop is not None and self.stop.is_set():
                raise Lost("stopped from outside")
            if self.pause is not None and self.pause() and time.monotonic() - self.asked > SECONDS_BETWEEN_PAUSES:
                self.asked = time.monotonic()
                self.monitor.pause()
            failure = self._listen(0.05)
            if failure is not None:
                return failure
            if len(self.done) == self.job.ranks:
                return None
            if len(self.connected) < self.job.ranks and time.monotonic() > deadline:
                return Failure(-1, f"or another did not start within {SECONDS_TO_CONNECT:g} s")
            failure = self._failed_process()
            if failure is not None:
                return failure

    def _listen(self, seconds: float) -> Failure | None:
        try:
            event = self.monitor.events.get(timeout=seconds)
        except queue.Empty:
            return None
        if event.kind == "connected":
            self.connected.add(event.rank)
        elif event.kind == "done":
            self.done.add(event.rank)
        elif event.kind == "progress":
            self._answer(event)
        elif event.kind == "error":
            return self._failed(event)
        elif event.kind in ("lost", "lost another"):
            return self._why(event.rank, event.content["reason"], secondary=event.kind != "lost")
        return None

    def _answer(self, event: Event) -> None:
        awaited = event.content.pop("awaits_answer", False)
        answer = bool(self.on_message(event.content))
        if awaited:
            self.monitor.answer(event.rank, answer)

    def _failed(self, event: Event) -> Failure:
        return Failure(event.rank, "failed", WorkerError(event.rank, self.job.ranks, event.content))

    def _failed_process(self) -> Failure | None:
        for rank, process in enumerate(self.processes):
            code = process.poll()
            if code is not None and code != 0:
                mine = rank if self.job.backend != "mpi" else 0
                return self._why(mine, _exit_reason(code), secondary=code in (PEER_LOST, STOPPED))
        return None

    def _why(self, rank: int, reason: str, secondary: bool) -> Failure:
        """A worker ended: wait a moment for the cause. Other workers fail because of it, and may be noticed first."""
        found = None if secondary else Failure(rank, reason)
        deadline = time.monotonic() + SECONDS_TO_EXPLAIN
        while time.monotonic() < deadline:
            try:
                event = self.monitor.events.get(timeout=0.1)
            except queue.Empty:
                continue
            if event.kind == "error":
                return self._failed(event)
            if event.kind == "lost" and found is None:
                found = Failure(event.rank, event.content["reason"])
            if event.kind == "progress":
                self._answer(event)
        found = found or Failure(rank, reason)
        return Failure(found.rank, self._exit_of(found.rank) or found.reason)

    def _exit_of(self, rank: int) -> str | None:
        """How a worker's process ended; unknown under MPI, whose processes are not our children."""
        if self.job.backend == "mpi" or not 0 <= rank < len(self.processes):
            return None
        code = self.processes[rank].poll()
        return None if code in (None, PEER_LOST, STOPPED) else _exit_reason(code)

    def _end(self) -> None:
        """End all workers that still run."""
        if len(self.done) < self.job.ranks:
            self.monitor.stop()
        deadline = time.monotonic() + SECONDS_TO_END
        for process in self.processes:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.monitor.kill_all()
        self.monitor.close()
        del self.store


def local_store() -> torch.distributed.TCPStore:
    """Where workers find each other. By itself torch would listen on every interface."""
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    port = bound.getsockname()[1]
    return torch.distributed.TCPStore(
        "127.0.0.1", port, is_master=True, wait_for_workers=False, master_listen_fd=bound.detach()
    )  # fmt: skip


def loopback_only() -> dict[str, str]:
    """Environment in which gloo and MPICH, too, listen on the loopback interface at most, unless the user chose one.

    MPICH moves data by UCX or libfabric. UCX needs no network between ranks of one machine; libfabric wants one.
    """
    import psutil

    names = [name for name, found in psutil.net_if_addrs().items() if any(one.address == "127.0.0.1" for one in found)]
    networks = dict.fromkeys(("GLOO_SOCKET_IFNAME", "FI_TCP_IFACE", "FI_SOCKETS_IFACE"), names[0]) if names else {}
    wanted = networks | {"UCX_TLS": "self,sm"}
    return {name: os.environ.get(name) or value for name, value in wanted.items()}


def _exit_reason(code: int) -> str:
    """In words.

    >>> _exit_reason(3), _exit_reason(-9)
    ('ended with exit code 3', 'was killed by SIGKILL')
    """
    if code >= 0:
        return f"ended with exit code {code}"
    names = {int(number): number.name for number in signal.Signals}
    return f"was killed by {names.get(-code, f'signal {-code}')}"


def local_mpi_launcher() -> str:
    """As `mpi_launcher`, for ranks on this machine. MPICH has a program for that which listens on no network; its
    mpiexec listens on all of them."""
    found = Path(mpi_launcher())
    beside = found.resolve().with_name("mpiexec.gforker")
    is_mpich = found.resolve().name in ("mpiexec", "mpiexec.hydra", "mpiexec.mpich")
    return str(beside) if is_mpich and os.access(beside, os.X_OK) else str(found)


def mpi_launcher() -> str:
    """The program that starts MPI ranks, beside this Python or on the path."""
    from importlib.util import find_spec

    beside = Path(sys.executable).parent / "mpiexec"
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if find_spec("mpi4py") is None or found is None:
        missing = "mpi4py is not installed" if find_spec("mpi4py") is None else "there is no mpiexec"
        raise MissingPackage(f"backend 'mpi' needs MPI, and {missing}: pip install mpi4py mpich")
    return found
