"""Trainings whose workers are killed or stopped at random moments: found how soon, with the same bits, what is left?"""

from __future__ import annotations

import math
import os
import re
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import median
from typing import TYPE_CHECKING, Any

import psutil

from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.child import CHECKOUT, command
from benchmarks.harness.measure import progress_bar
from benchmarks.harness.plots import COLORS, grid_of_axes
from benchmarks.harness.report import Result
from benchmarks.harness.searches import LOOK, Attempt, alive, send
from benchmarks.harness.tables import ResultTable, significant
from benchmarks.harness.verdict import Target
from benchmarks.parallel.workers import mpi_missing
from shoal.validate import one_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CHILD = "benchmarks.parallel.killed_child"
STEPS = 1200  # of a training
LATE = 10.0  # seconds after which a lost worker must be found
LIMIT = 600.0  # seconds after which a training hangs
SHM = Path("/dev/shm")


@dataclass(frozen=True)
class Kind:
    words: str
    backend: str
    signal: signal.Signals = signal.SIGKILL
    everyone: bool = False  # all processes of the run, the launcher too; the same command resumes
    beside: bool = False  # another run at the same time, undisturbed


KINDS = {
    "worker-killed": Kind("a worker killed", "processes"),
    "worker-stopped": Kind("a worker stopped", "processes", signal.SIGSTOP),
    "rank-killed": Kind("an MPI rank killed", "mpi"),
    "rank-stopped": Kind("an MPI rank stopped", "mpi", signal.SIGSTOP),
    "all-killed": Kind("all processes killed", "processes", everyone=True),
    "all-ranks-killed": Kind("all processes of an MPI run killed", "mpi", everyone=True),
    "two-runs": Kind("a worker killed, another run beside", "processes", beside=True),
}


@benchmark(needs=("torch",), quick={"kinds": ("worker-killed", "all-killed"), "kills": 2})
def killed(
    *, kinds: tuple[str, ...] = tuple(KINDS), kills: int = 100, together: int = 5, seed: int | None = None
) -> Result:
    """Workers that share a batch, killed and stopped at random moments: found how soon? The same bits?

    kinds: Kinds of faults.
    kills: Faults of each kind.
    together: Faults in one training at most.
    seed: Seed of moments, sizes and workers; by default another one each time.
    """
    for name in kinds:
        one_of("--kinds", name, KINDS)
    seed = int.from_bytes(os.urandom(4), "little") if seed is None else seed
    found: dict[str, list[dict[str, Any]]] = {}
    absent = {name: mpi_missing() for name in kinds if KINDS[name].backend == "mpi" and mpi_missing()}
    with progress_bar("killed", len(kinds) * kills) as tick, tempfile.TemporaryDirectory() as folder:
        for name in kinds:
            chance, done = Random(f"{seed} {name}"), 0
            found[name] = []
            while done < kills and name not in absent and len(found[name]) < 3 * kills:
                place = Path(folder, f"{name}-{len(found[name])}")
                place.mkdir()
                wanted = min(chance.randint(1, together), kills - done)
                found[name].append(Training(KINDS[name], draw_case(chance), place, chance).play(wanted))
                for _ in found[name][-1]["faults"]:
                    tick(name)
                done += len(found[name][-1]["faults"])
    return Result(
        title="Trainings whose workers are killed and stopped", settings={"seed": seed},
        data={"kinds": found, "not_measured": absent}, tables=[table(found)],
        targets=targets(found, kills >= killed.settings({})["kills"]), notes=notes(absent), draw=lambda: draw(found),
    )  # fmt: skip


def draw_case(chance: Random) -> dict[str, Any]:
    """Sizes, workers and blocks at random."""
    rows, batch = chance.randint(100, 900), chance.randint(12, 96)
    workers = chance.randint(2, 4)
    return {
        "seed": chance.randrange(1 << 30), "rows": rows, "dropout": chance.choice([0.0, 0.3]),
        "hidden": [chance.randint(3, 400) for _ in range(chance.randint(1, 3))], "workers": workers,
        "job": {
            "optimizer": chance.choice(["sgd", "adam", "adamw"]), "learning_rate": 0.003, "batch_size": batch,
            "epochs": math.ceil(STEPS / math.ceil(rows / batch)), "shards": chance.randint(workers, 8),
        },
    }  # fmt: skip


@dataclass
class Training:
    """One training, as often started as it takes, and what was done to it."""

    kind: Kind
    case: dict[str, Any]
    folder: Path
    chance: Random
    attempts: list[Attempt] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    found_after: list[float] = field(default_factory=list)  # seconds from each fault to the note about it
    left_behind: int = 0

    def start(self, place: str = "run", backend: str = "", workers: int = 0) -> Attempt:
        how: dict[str, Any] = {"backend": backend or self.kind.backend, "workers": workers or self.case["workers"]}
        if workers == 0:
            how |= {"checkpoint": str(self.folder / place), "checkpoint_every": self.chance.randint(5, 60)}
        log = self.folder / f"{place}-{len(self.attempts)}.log"
        return Attempt(command(CHILD, {"case": self.case, "how": how}), CHECKOUT, log)

    def play(self, wanted: int) -> dict[str, Any]:
        before = names_in_shared_memory()
        right = _ended(self.start("alone", "threads", 1))
        beside = self.start("beside") if self.kind.beside else None
        try:
            said = self._disturbed(wanted)
        finally:
            others = [beside] if beside else []
            second = _ended(beside) if beside else said
            self.left_behind += sum(attempt.end() for attempt in (*self.attempts, *others))
        texts = [attempt.said() for attempt in self.attempts]
        same = right != "" and said == right == second
        return {
            "case": self.case, "faults": self.faults, "found_after": self.found_after, "same": same,
            "resumed": sum(text.count("resuming from the checkpoint") for text in texts),
            "left_behind": self.left_behind, "left_in_shared_memory": len(names_in_shared_memory() - before),
            **({} if same else {"said": [text[-2000:].replace(str(self.folder), "...") for text in texts]}),
        }  # fmt: skip

    def _disturbed(self, wanted: int) -> str:
        """Faults at random moments; returns the checksum of the weights in the end."""
        self.attempts.append(self.start())
        for share in sorted(self.chance.uniform(0.02, 0.95) for _ in range(wanted)):
            attempt = self.attempts[-1]
            if not _has_come(attempt, share):
                break
            time.sleep(self.chance.uniform(0, 0.3))
            if not attempt.running or not (workers := attempt.workers()):
                break
            if self.kind.everyone:
                self._kill_all(attempt, share)
            else:
                self._hit(attempt, self.chance.choice(workers), share)
        return _ended(self.attempts[-1])

    def _kill_all(self, attempt: Attempt, share: float) -> None:
        family = attempt.family()
        for process in [psutil.Process(attempt.process.pid), *family]:
            with suppress(psutil.NoSuchProcess, ProcessLookupError):
                send(process, signal.SIGKILL)
        attempt.process.wait()
        self.faults.append(f"all {len(family) + 1} processes at {share:.0%}")
        self.left_behind += attempt.end()
        self.attempts.append(self.start())

    def _hit(self, attempt: Attempt, worker: psutil.Process, share: float) -> None:
        notes, begun = len(_restarts(attempt)), time.perf_counter()
        with suppress(ProcessLookupError):
            send(worker, self.kind.signal)
        while attempt.running and len(_restarts(attempt)) == notes and time.perf_counter() - begun < LIMIT:
            time.sleep(LOOK)
        if len(_restarts(attempt)) > notes:  # else it had ended
            self.faults.append(f"{self.kind.signal.name} at {share:.0%}")
            self.found_after.append(time.perf_counter() - begun)
        elif alive(worker):
            send(worker, signal.SIGKILL)


def names_in_shared_memory() -> set[str]:
    """Files of Shoal, and of libraries that it starts, in /dev/shm; none on systems without it."""
    return (
        {path.name for path in SHM.iterdir() if re.search("shoal|torch|gloo|mpich|ucx", path.name)}
        if SHM.is_dir()
        else set()
    )


def _restarts(attempt: Attempt) -> list[str]:
    return re.findall("restarting from the last checkpoint", attempt.said())


def _has_come(attempt: Attempt, share: float) -> bool:
    """Wait until the training is so far, since its last restart; whether it has come there before its end."""
    begun = time.perf_counter()
    while attempt.running and time.perf_counter() - begun < LIMIT:
        since = attempt.said().rpartition("restarting from the last checkpoint")[2]
        if any(float(value) >= share for value in re.findall(r"^progress ([\d.]+)\n", since, re.MULTILINE)):
            return True
        time.sleep(LOOK)
    return False


def _ended(attempt: Attempt) -> str:
    """The checksum that it says, once it has ended; nothing if it failed or hangs."""
    attempt.wait(LIMIT)
    found = re.search(r"^weights (\w+)$", attempt.said(), re.MULTILINE)
    return found[1] if found and not attempt.running and attempt.code == 0 else ""


def _all(found: list[dict[str, Any]], name: str) -> Iterator[Any]:
    for training in found:
        yield from training[name]


def table(measured: dict[str, list[dict[str, Any]]]) -> ResultTable:
    header = ["fault", "faults", "trainings", "same bits", "resumed", "found after, median", "at most",
              "processes left", "left in /dev/shm"]  # fmt: skip
    rows = []
    for name, found in measured.items():
        late = list(_all(found, "found_after"))
        rows.append([
            KINDS[name].words, str(len(list(_all(found, "faults")))), str(len(found)),
            f"{sum(training['same'] for training in found)} of {len(found)}",
            str(sum(training["resumed"] for training in found)),
            f"{significant(median(late))} s" if late else "-", f"{significant(max(late))} s" if late else "-",
            str(sum(training["left_behind"] for training in found)),
            str(sum(training["left_in_shared_memory"] for training in found)),
        ])  # fmt: skip
    return ResultTable("Killed and stopped", header, rows)


def targets(measured: dict[str, list[dict[str, Any]]], whole: bool) -> list[Target]:
    made = []
    for name, found in measured.items():
        share = sum(training["same"] for training in found) / len(found) if found else None
        made.append(Target(f"{name}: trainings with the same bits", share, 1.0, complete=whole))
        late = list(_all(found, "found_after"))
        if late:
            made.append(Target(f"{name}: found after, at most", max(late), LATE, False, " s", complete=whole))
    every = [training for found in measured.values() for training in found]
    left = sum(training["left_in_shared_memory"] + training["left_behind"] for training in every)
    return [*made, Target("processes and names in /dev/shm that were left", left, 1, False, complete=whole)]


def notes(absent: dict[str, str]) -> list[str]:
    return [
        "Each training has other sizes, workers, shards and checkpoints, drawn at random. It must end with the bits of "
        "one undisturbed worker.",
        "Found after: from the signal to the note that the workers are started again. If all processes are killed, the "
        "same command resumes from the checkpoint.",
        *(f"{name} was not measured: {why}." for name, why in absent.items()),
    ]


def draw(measured: dict[str, list[dict[str, Any]]]) -> Figure:
    figure, ((axis,),) = grid_of_axes(1, 1, width=8.0, height=3.2)
    late = {name: list(_all(found, "found_after")) for name, found in measured.items()}
    for place, values in enumerate(late.values()):
        axis.scatter(values, [place] * len(values), s=18, alpha=0.4, color=COLORS["native"])
    axis.axvline(LATE, color="black", linewidth=0.8)
    axis.set_yticks(range(len(late)), list(late))
    axis.set(xlabel="seconds until a lost worker is found (a line: the limit)", xlim=(0, None))
    return figure
