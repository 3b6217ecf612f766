"""Is `shoal plan` right as users type it? Plans and trainings with the same arguments, on networks drawn at random."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.measure import progress_bar
from benchmarks.harness.plots import COLORS, grid_of_axes
from benchmarks.harness.report import Result
from benchmarks.harness.tables import ResultTable, significant
from benchmarks.harness.verdict import Target
from benchmarks.planner.subjects import DRAWN, HERE, Subject, find_subject
from benchmarks.planner.validation import NEITHER, Judged

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EPOCHS = 4
STRATEGIES = {
    "all-reduce, exact": ("--strategy", "allreduce"),
    "all-reduce": ("--strategy", "allreduce", "--close"),
    "parameter server": ("--strategy", "parameter_server"),
    "local SGD": ("--strategy", "local_sgd", "--average-every", "8"),
}
ALONE = ("serial", "blas")  # one worker: with one thread or all, whichever is faster
KEPT = 5 / 6  # share of the rows that are trained on; the others are for validation


@dataclass(frozen=True)
class Case:
    """What is typed after `shoal plan` and `shoal train`."""

    subject: Subject
    batch: int
    backend: str
    strategy: str
    workers: int

    @property
    def common(self) -> list[str]:
        rows = round(self.subject.rows / KEPT)
        return ["--data", "mnist", "--rows", str(rows), "--net", self.subject.net, "--batch-size", str(self.batch),
                "--epochs", str(EPOCHS)]  # fmt: skip

    @property
    def together(self) -> list[str]:
        return [*self.common, "--backend", self.backend, "--workers", str(self.workers), *STRATEGIES[self.strategy]]


@benchmark(name="planner-typed", needs=("torch",), quick={"networks": 1, "backends": ("threads",)})
def planner_typed(
    *,
    networks: int = 12,
    backends: tuple[str, ...] = ("threads", "processes"),
    workers: int = 2,
    seed: int | None = None,
) -> Result:
    """`shoal plan --no-accuracy ARGS` against `shoal train ARGS`, as users type them, on random networks.

    networks: Networks and batch sizes.
    backends: threads, processes, mpi.
    workers: Workers of each training.
    seed: Seed of the networks; by default another one each time.
    """
    seed = int.from_bytes(os.urandom(4), "little") if seed is None else seed
    cases = draw_cases(Random(seed), networks, backends, workers)
    judged: list[Judged] = []
    checks: list[float] = []
    with progress_bar("planner-typed", len(cases)) as tick, tempfile.TemporaryDirectory() as folder:
        for case in cases:
            tick(f"{case.subject.net}, {case.backend}, {case.strategy}")
            plan = planned(case, Path(folder))
            checks.append(plan["machine"]["check"]["error"])
            judged.append(judge(case, plan, Path(folder)))
    whole = planner_typed.is_whole(networks=networks, backends=backends, workers=workers)
    content = {"cases": [{**one.as_dict(), "check": check} for one, check in zip(judged, checks, strict=True)]}
    return Result(
        title="`shoal plan` and `shoal train`, as they are typed", data=content, tables=[table(judged, checks)],
        targets=targets(judged, whole), notes=notes(), draw=lambda: draw(judged), settings={"seed": seed},
    )  # fmt: skip


def draw_cases(chance: Random, networks: int, backends: Sequence[str], workers: int) -> list[Case]:
    """For each network one of its batch sizes, with each backend and a strategy at random."""
    subjects = [find_subject(f"{DRAWN}:{chance.randrange(1 << 30)}") for _ in range(networks)]
    return [
        Case(subject, chance.choice(subject.batches), backend, chance.choice(list(STRATEGIES)), workers)
        for subject in subjects
        for backend in backends
    ]


def judge(case: Case, plan: dict[str, Any], folder: Path) -> Judged:
    """The plan's row for these workers, beside what the same training takes, and one worker."""
    one, many = (next(row for row in plan["rows"] if row["nodes"] == nodes) for nodes in (1, case.workers))
    alone = min(trained([*case.common, "--strategy", strategy], folder) for strategy in ALONE)
    measured = trained(case.together, folder)
    return Judged(
        case.subject.net, case.backend, HERE, case.strategy, case.workers, case.batch, many["seconds_per_epoch"],
        measured, one["seconds_per_epoch"] / many["seconds_per_epoch"], alone / measured,
    )  # fmt: skip


def planned(case: Case, folder: Path) -> dict[str, Any]:
    """The plan, as its file has it."""
    _shoal(["plan", *case.together, "--no-accuracy", "--json", "plan.json", "--out", "plan.html"], folder)
    found: dict[str, Any] = json.loads((folder / "plan.json").read_text())
    return found


def trained(words: Sequence[str], folder: Path) -> float:
    """Seconds of an epoch, as `shoal train` prints them when it ends."""
    log = folder / "train.jsonl"
    log.unlink(missing_ok=True)
    _shoal(["train", *words, "--log", f"jsonl:{log.name}"], folder)
    ended = json.loads(log.read_text().splitlines()[-1])
    return float(ended["scores"]["seconds_per_epoch"])


def _shoal(words: Sequence[str], folder: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "shoal", *words], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"shoal {' '.join(words)} failed: {done.stderr.strip()[-500:]}")


def table(judged: Sequence[Judged], checks: Sequence[float]) -> ResultTable:
    right = {True: "right", False: "WRONG", None: "neither"}
    rows = [
        [one.net, str(one.batch), one.backend, one.strategy, significant(one.predicted), significant(one.measured),
         f"{100 * one.error:+.0f}%", f"{one.predicted_speedup:.2f}x", f"{one.measured_speedup:.2f}x", right[one.right],
         f"{100 * check:+.0f}%"]
        for one, check in zip(judged, checks, strict=True)
    ]  # fmt: skip
    header = ["network", "batch", "backend", "strategy", "predicted, s", "measured, s", "error", "predicted speed-up",
              "measured", "verdict", "the plan's check"]  # fmt: skip
    return ResultTable("Seconds of an epoch", header, rows)


def targets(judged: Sequence[Judged], whole: bool) -> list[Target]:
    errors = [abs(one.error) for one in judged]
    verdicts = [one.right for one in judged if one.right is not None]
    near = 100 * statistics.fmean(error <= 0.2 for error in errors)
    right = 100 * statistics.fmean(verdicts) if verdicts else None
    return [
        Target("median error of time", 100 * statistics.median(errors), 5, False, "%", complete=whole),
        Target("time within 20%", near, 95, True, "%", complete=whole),
        Target("verdict right", right, 95, True, "%", complete=whole),
    ]


def notes() -> list[str]:
    return [
        "Each case is `shoal plan --no-accuracy ARGS`, then `shoal train ARGS`, each started once. No case is measured "
        "again, and none is left out.",
        f"Measured is the median of {EPOCHS} epochs, as `shoal train` prints it. One worker is `--strategy serial` or "
        "`blas`, whichever is faster.",
        f"Measured speed-ups within {100 * NEITHER:.0f}% of 1 are neither faster nor slower.",
        "The plan's check: how far it was from a step that it measured itself. If it is large, the machine was busy.",
    ]


def draw(judged: Sequence[Judged]) -> Figure:
    figure, ((axis,),) = grid_of_axes(1, 1, width=5.0, height=4.4)
    for backend, color in zip(dict.fromkeys(one.backend for one in judged), COLORS.values(), strict=False):
        points = [(one.measured, one.predicted) for one in judged if one.backend == backend]
        axis.scatter(*zip(*points, strict=True), s=24, alpha=0.6, color=color, label=backend)
    ends = [bound([one.measured for one in judged]) for bound in (min, max)]
    axis.plot(ends, ends, color="black", linewidth=0.8)
    axis.set(xscale="log", yscale="log", xlabel="measured, seconds of an epoch", ylabel="predicted")
    axis.legend(frameon=False, fontsize=8)
    return figure
