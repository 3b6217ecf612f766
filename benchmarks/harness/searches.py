"""One command, started as often as it takes to end, and the processes that belong to it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

WEIGHTS, JOURNAL = Path("model") / "weights.safetensors", "journal"
HELPERS = ("resource_tracker", "semaphore_tracker", "forkserver import main")  # of Python: they do no tasks
LOOK = 0.05  # seconds between two looks at a process


class Attempt:
    """One start of the command, in a session of its own."""

    def __init__(self, command: Sequence[str], folder: Path, log: Path) -> None:
        self.begun = time.perf_counter()
        self.log = log
        with open(log, "wb") as file:
            self.process = subprocess.Popen(
                command, cwd=folder, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
            )
        self._seen: set[psutil.Process] = set()
        self.seconds = 0.0  # that it took, when it has ended

    @property
    def running(self) -> bool:
        if self.process.poll() is None:
            return True
        self.seconds = self.seconds or time.perf_counter() - self.begun
        return False

    def wait(self, until: float) -> bool:
        """Wait for its end, at most until so many seconds after its start; whether it has ended."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(max(0.0, self.begun + until - time.perf_counter()))
        return not self.running

    def kill(self) -> None:
        """kill -9, of the process that was started and of no other."""
        self.family()
        self.process.kill()
        self.process.wait()
        assert not self.running

    @property
    def code(self) -> int | None:
        return self.process.returncode

    @property
    def found(self) -> int:
        """Results of earlier attempts that it found, as it says."""
        said = re.search(r"resuming: ([\d,]+) results", self.said())
        return int(said[1].replace(",", "")) if said else 0

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def family(self) -> list[psutil.Process]:
        """Processes that it has started, and theirs, that are still there, also without it."""
        with suppress(psutil.NoSuchProcess):
            self._seen |= set(psutil.Process(self.process.pid).children(recursive=True))
        self._seen |= {process for process in psutil.process_iter() if session(process) == self.process.pid}
        self._seen -= {process for process in self._seen if process.pid == self.process.pid}
        return [process for process in self._seen if alive(process)]

    def workers(self) -> list[psutil.Process]:
        """Those of its family that do tasks."""
        return workers_among(self.family())

    def end(self, patience: float = 20.0) -> int:
        """End all that is left of it, and say how many processes did not end by themselves."""
        if self.running:
            self.kill()
        deadline = time.perf_counter() + patience
        while self.family() and time.perf_counter() < deadline:
            time.sleep(LOOK)
        left = self.family()
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        return len(left)


@dataclass
class Story:
    """A search from its first start to its end, with all that happened to it."""

    command: Sequence[str]
    folder: Path  # where it is started; the run is in `folder / "out"`
    attempts: list[Attempt] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    left_behind: int = 0

    @property
    def out(self) -> Path:
        return self.folder / "out"

    @property
    def files(self) -> list[Path]:
        """Those of the journal."""
        return sorted((self.out / JOURNAL).glob("*.safetensors"))

    @property
    def shards(self) -> int:
        """Finished ones that the journal has."""
        return len(list((self.out / JOURNAL).glob("shard-*.safetensors")))

    def start(self) -> Attempt:
        attempt = Attempt(self.command, self.folder, self.folder / f"attempt-{len(self.attempts) + 1}.log")
        self.attempts.append(attempt)
        return attempt

    def finish(self, limit: float, attempt: Attempt | None = None, starts: int = 3) -> bool:
        """Wait for the end of an attempt, and start again where that one failed; whether the search was finished."""
        for _ in range(starts):
            attempt = attempt or self.start()
            if not attempt.wait(limit):
                attempt.kill()
                return False
            if attempt.code == 0:
                return True
            attempt = None
        return False

    def end(self) -> None:
        self.left_behind = sum(attempt.end() for attempt in self.attempts)

    @property
    def seconds(self) -> float:
        return sum(attempt.seconds for attempt in self.attempts)

    def weights(self) -> bytes:
        """What the search has made; nothing if it was not finished."""
        path = self.out / WEIGHTS
        return path.read_bytes() if path.is_file() else b""


def search_words(table: Path, target: str, recipes: int, cluster: str = "") -> list[str]:
    words = ["search", str(table), "--target", target, "--recipes", str(recipes), "--out", "out"]
    return words + (["--cluster", cluster] if cluster else [])


def shoal(words: Iterable[str]) -> list[str]:
    return [sys.executable, "-m", "shoal", *words]


def workers_among(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Processes that do tasks: those that have started no other, but for helpers."""
    found = []
    for process in processes:
        with suppress(psutil.Error):
            line = " ".join(process.cmdline())
            if any(word in line for word in HELPERS) or "python" not in Path(process.exe()).name:
                continue
            if not workers_among(process.children()):
                found.append(process)
    return found


def busy(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Those that compute at the moment: the clock of those that wait stands still."""
    before = [(process, _processor_seconds(process)) for process in processes]
    time.sleep(LOOK)
    return [process for process, seconds in before if _processor_seconds(process) > seconds]


def alive(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def session(process: psutil.Process) -> int:
    """The number of the process that a session began with."""
    with suppress(OSError):
        return os.getsid(process.pid)
    return -1


def send(process: psutil.Process, number: signal.Signals) -> None:
    os.kill(process.pid, number)


def _processor_seconds(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0  # it has ended
    return times.user + times.system


def write_table(path: Path, rows: int | None = None) -> Path:
    """scikit-learn's table of 569 tumours, or some of them: 30 numbers, two classes."""
    from sklearn.datasets import load_breast_cancer

    found = load_breast_cancer()
    names = [*(name.replace(" ", "_") for name in found.feature_names), "target"]
    lines = [[*row, int(y)] for row, y in zip(found.data.tolist(), found.target, strict=True)]
    path.write_text("\n".join(",".join(map(str, line)) for line in [names, *lines[:rows]]) + "\n")
    return path
