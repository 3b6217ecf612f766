"""Is a budget a budget? Whole commands on tables that are hard to fit into it, timed from start to end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.measure import progress_bar
from benchmarks.harness.plots import COLORS, grid_of_axes
from benchmarks.harness.report import Result
from benchmarks.harness.tables import ResultTable, significant
from benchmarks.harness.verdict import Target
from shoal.validate import one_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LATE, LATE_SHARE = 2.0, 0.05  # seconds that a command may take too long, or this share of its budget if that is more


@dataclass(frozen=True)
class Case:
    """A generated table and the seconds it gets."""

    rows: int
    numbers: int
    categories: int
    classes: int
    budget: float

    def words(self) -> str:
        kinds = f"{self.numbers} numbers" + (f", {self.categories} categories" if self.categories else "")
        return f"{self.rows:,} rows, {kinds}, {self.classes} classes"


CASES = {
    "long": Case(1_000_000, 20, 0, 2, 60.0),
    "classes": Case(20_000, 20, 0, 200, 20.0),
    "wide": Case(500, 2_000, 0, 2, 20.0),
    "adult": Case(48_842, 6, 8, 2, 20.0),
    "columns": Case(400, 5_000, 0, 2, 10.0),
    "tiny 6": Case(178, 13, 0, 3, 6.0),
    "tiny 8": Case(178, 13, 0, 3, 8.0),
    "tiny 30": Case(178, 13, 0, 3, 30.0),
}


@benchmark(quick={"share": 0.05, "budget": 8.0, "repeats": 1})
def budget(
    *, cases: tuple[str, ...] = tuple(CASES), budget: float | None = None, share: float = 1.0, repeats: int = 3
) -> Result:
    """Is a budget a budget? `shoal search` on tables that are hard to fit into it, whole commands.

    cases: long, classes, wide, adult, columns, tiny 6, tiny 8, tiny 30.
    budget: Seconds of each command; by default 6 to 60, as the case says.
    share: Share of the rows.
    repeats: Runs of each case; the slowest counts.
    """
    for name in cases:
        one_of("--cases", name, CASES)
    measured: dict[str, dict[str, Any]] = {}
    with progress_bar("budget", len(cases) * repeats) as tick, tempfile.TemporaryDirectory() as folder:
        for run in range(repeats):
            for name in cases:
                tick(f"{name}, run {run + 1}")
                found = measure(name, budget or CASES[name].budget, share, Path(folder) / str(run))
                earlier = measured.get(name, {"seconds": 0.0, "all_seconds": []})
                slowest = found if found["seconds"] > earlier["seconds"] else earlier
                measured[name] = slowest | {"all_seconds": [*earlier["all_seconds"], found["seconds"]]}
    return Result(
        title="Whole commands against their budgets", data={"cases": measured},
        tables=[table(measured)], targets=targets(measured), notes=notes(), draw=lambda: draw(measured),
    )  # fmt: skip


def measure(name: str, budget: float, share: float, folder: Path) -> dict[str, Any]:
    """One `shoal search` in a process of its own: seconds from its start to its end, phases, peak memory."""
    case = CASES[name]
    rows = min(case.rows, max(200, int(case.rows * share)))
    folder.mkdir(exist_ok=True)
    file, out = folder / f"{name}.csv", folder / name
    write_table(file, Case(rows, case.numbers, case.categories, min(case.classes, rows // 20), budget))
    words = ["search", file, "--target", "y", "--task", "classification", "--budget", budget, "--out", out]
    begun = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "shoal", *map(str, words)], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begun
    if os.waitstatus_to_exitcode(status):
        raise RuntimeError(f"shoal search ended with code {os.waitstatus_to_exitcode(status)} on the table {name!r}")
    known = json.loads((out / "settings.json").read_text())
    file.unlink()
    return {
        "table": Case(rows, case.numbers, case.categories, case.classes, budget).words(),
        "budget": budget, "seconds": seconds, "processor_seconds": usage.ru_utime + usage.ru_stime,
        "phases": known["result"]["phases"], "left_out": known["search"]["effort"],
        "peak_bytes": usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024), "load": os.getloadavg()[0],
    }  # fmt: skip


def write_table(path: Path, case: Case, seed: int = 0) -> None:
    """Numbers and categories from which the classes can be told, though not always."""
    random = np.random.default_rng(seed)
    sizes = random.integers(2, 43, case.categories)
    mixing = random.normal(size=(case.numbers, case.classes))
    effects = [random.normal(size=(size, case.classes)) for size in sizes]
    names = [*(f"x{j}" for j in range(case.numbers)), *(f"c{j}" for j in range(case.categories)), "y"]
    with path.open("w") as file:
        print(*names, sep=",", file=file)
        for start in range(0, case.rows, 10_000):
            count = min(10_000, case.rows - start)
            numbers = random.normal(size=(count, case.numbers))
            codes = [random.integers(size, size=count) for size in sizes]
            score = numbers @ mixing * (3 / np.sqrt(case.numbers)) + random.gumbel(size=(count, case.classes))
            score += sum((effect[code] for effect, code in zip(effects, codes, strict=True)), np.zeros(()))
            texts = [[f"{x:.5f}" for x in row] for row in numbers.tolist()]
            for k, (row, y) in enumerate(zip(texts, score.argmax(axis=1).tolist(), strict=True)):
                print(*row, *(f"v{code[k]}" for code in codes), y, sep=",", file=file)


def allowed(budget: float) -> float:
    return max(LATE, LATE_SHARE * budget)


def targets(measured: dict[str, dict[str, Any]]) -> list[Target]:
    return [
        Target(
            f"{name}, budget {found['budget']:g} s", found["seconds"], found["budget"] + allowed(found["budget"]),
            at_least=False, unit=" s",
        )
        for name, found in measured.items()
    ]  # fmt: skip


def table(measured: dict[str, dict[str, Any]]) -> ResultTable:
    head = ["table", "budget", "seconds", "all runs", "reading", "encoding", "search", "end"]
    head += ["memory", "load", "left out"]
    rows = []
    for name, found in measured.items():
        phases = list(found["phases"].values())
        left_out = ", ".join(f"{key}: {value}" for key, value in found["left_out"].items()) or "nothing"
        rows.append([
            f"{name}: {found['table']}", f"{found['budget']:g}", significant(found["seconds"]),
            ", ".join(f"{seconds:.1f}" for seconds in sorted(found["all_seconds"])),
            *(significant(seconds) for seconds in phases[:3]), significant(found["seconds"] - sum(phases[:3])),
            f"{found['peak_bytes'] / 1e9:.1f} GB", f"{found['load']:.1f}", left_out,
        ])  # fmt: skip
    return ResultTable("Seconds of whole commands", head, rows)


def notes() -> list[str]:
    return [
        f"A command may be late by {LATE:g} s, or by {LATE_SHARE:.0%} of its budget if that is more.",
        "The slowest run of each case counts; its phases are shown.",
        "Reading includes the start of Python and libraries; the end is ensemble, honest score, report and files.",
        "The load is what the machine had to do at the end of each command, this one included (1 for each busy core).",
    ]


def draw(measured: dict[str, dict[str, Any]]) -> Figure:
    figure, ((axis,),) = grid_of_axes(1, 1, width=6.4)
    names = list(measured)[::-1]
    share: Callable[[str], float] = lambda name: measured[name]["seconds"] / measured[name]["budget"]  # noqa: E731
    bars = axis.barh(names, [share(name) for name in names], color=COLORS["native"], height=0.5)
    axis.bar_label(bars, fmt="%.2f", padding=3)
    for k, name in enumerate(names):
        most = 1 + allowed(measured[name]["budget"]) / measured[name]["budget"]
        axis.plot([most] * 2, [k - 0.35, k + 0.35], color="0.3", linewidth=2)
    axis.set(xlabel="seconds taken, as a share of the budget (the line is the most allowed)", xlim=(0, 1.5))
    return figure
