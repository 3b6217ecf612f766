"""What it costs to cut a search into shards: the same search in one process, with a journal, on workers, on Dask."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.machine import installed
from benchmarks.harness.measure import progress_bar
from benchmarks.harness.plots import COLORS, grid_of_axes
from benchmarks.harness.report import Result
from benchmarks.harness.tables import ResultTable, significant
from benchmarks.harness.verdict import Target
from shoal.errors import UserError
from shoal.machine import size_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from benchmarks.harness.clusters import Dask

CHILD = Path(__file__).with_name("cluster_child.py")
PLAIN, JOURNAL, OTHER = "one process", "one process, journal", "one process, other version"
DASK = {"Dask, 1 worker": 1, "Dask, 2 workers": 2}
NAMES = (PLAIN, JOURNAL, "local:1", "local:2", *DASK)
BOUND = 1.05  # times the search in one process
LONG = 10.0  # seconds of a search that the bound is for


@benchmark(quick={"recipes": 20, "rows": 500, "repeats": 1})
def cluster(*, recipes: int = 300, rows: int = 2_000, repeats: int = 3, other: Path | None = None) -> Result:
    """The same search in one process, with a journal, on worker processes and on Dask: time, CPU time, same bytes?

    recipes: Recipes of the search.
    rows: Rows of the table.
    repeats: Times that everything is measured; the best counts.
    other: A Python with another version of Shoal: its search in one process, too.
    """
    if other and shutil.which(other) is None:
        raise UserError(f"--other must be a Python that can be run; got '{other}'")
    names = [name for name in NAMES if not missing(name)] + [OTHER] * bool(other)
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    with progress_bar("cluster", repeats * len(names)) as tick:
        for turn in range(repeats):
            for k in range(len(names)):
                name = names[(k + turn) % len(names)]
                tick(name)
                found[name].append(measure(name, recipes, rows, other or Path()))
    data = {name: summary(runs, found[PLAIN]) for name, runs in found.items()}
    return Result(
        title="A search in shards, against the same search in one process",
        data={"searches": data}, tables=tables(data),
        targets=targets(data), notes=notes(recipes, rows, data), draw=lambda: draw(data),
    )  # fmt: skip


def missing(name: str) -> str:
    """What is not installed that it needs, or nothing."""
    needs = "loky" if name.startswith("local") else "distributed" if name in DASK else ""
    return needs if needs and not installed(needs) else ""


# ---- one search ----


def measure(name: str, recipes: int, rows: int, other: Path) -> dict[str, Any]:
    """One search in a process of its own; the workers of Dask are there before it begins."""
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as place:
        if name in DASK:
            return _on_dask(DASK[name], recipes, rows, Path(place))
        executor = name if name.startswith("local") else None
        python = str(other) if name == OTHER else sys.executable
        return _search(recipes, rows, executor, Path(place) if name == JOURNAL else None, python)


def _on_dask(workers: int, recipes: int, rows: int, folder: Path) -> dict[str, Any]:
    from benchmarks.harness.clusters import Dask

    cluster = Dask(folder)
    cluster.count = workers
    try:
        cluster.start()
        before = _processor_seconds(cluster)
        found = _search(recipes, rows, cluster.address, None)
        return found | {"cpu_seconds": found["cpu_seconds"] + _processor_seconds(cluster) - before}
    finally:
        cluster.end()


def _processor_seconds(cluster: Dask) -> float:
    """Of the scheduler and the workers so far."""
    import psutil

    assert cluster.scheduler is not None
    parents = [psutil.Process(process.pid) for process in (cluster.scheduler, *cluster.nannies)]
    family = [process for parent in parents for process in (parent, *parent.children(recursive=True))]
    return sum(sum(process.cpu_times()[:2]) for process in family)


def _search(
    recipes: int, rows: int, executor: str | None, folder: Path | None, python: str = sys.executable
) -> dict[str, Any]:
    asked = {
        "rows": rows, "recipes": recipes, "executor": executor,
        "journal": None if folder is None else str(folder / "journal"),
    }  # fmt: skip
    command = [python, "-P", str(CHILD), json.dumps(asked)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode:
        last = answer.stderr.strip().splitlines()[-1:] or ["no message"]
        raise RuntimeError(f"the search failed: {last[0]}")
    found: dict[str, Any] = json.loads(answer.stdout)
    return found | {"cpu_seconds": found["own_cpu_seconds"] + found["children_cpu_seconds"]}


# ---- what was found ----


def summary(runs: Sequence[dict[str, Any]], plain: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Best and median of all runs, and against the search in one process: the best by the best, and turn by turn."""
    found: dict[str, Any] = {"runs": list(runs), "sha256": sorted({run["sha256"] for run in runs})}
    for what in ("seconds", "cpu_seconds"):
        values, theirs = [run[what] for run in runs], [run[what] for run in plain]
        found[what] = {
            "best": min(values), "median": median(values), "ratio": min(values) / min(theirs),
            "median_ratio": median(mine / other for mine, other in zip(values, theirs, strict=True)),
        }  # fmt: skip
    return found


def tables(data: dict[str, Any]) -> list[ResultTable]:
    header = [
        "search", "seconds", "median", "against one process", "median", "CPU seconds", "median", "against one process",
        "median", "same weights",
    ]  # fmt: skip
    rows = []
    for name, found in data.items():
        values = [found[what][each] for what in ("seconds", "cpu_seconds") for each in found[what]]
        same = "yes" if found["sha256"] == data[PLAIN]["sha256"] else "NO"
        rows.append([name, *(significant(value, 3) for value in values), same])
    return [ResultTable("The same search, best and median of the repeats", header, rows), _on_workers(data)]


def _on_workers(data: dict[str, Any]) -> ResultTable:
    header = [
        "search", "at a time", "threads each", "shards", "sent", "received", "lost", "repeated",
    ]  # fmt: skip
    rows = []
    for name, found in data.items():
        one = min(found["runs"], key=lambda run: run["seconds"])["trained_on"]
        if one:
            rows.append([
                name, f"{one['slots']}", f"{one['threads']}", f"{one['shards']:,}",
                size_text(one["bytes_sent"]), size_text(one["bytes_received"]), f"{one['lost']}", f"{one['repeated']}",
            ])  # fmt: skip
    return ResultTable("On workers, in the best repeat", header, rows)


def targets(data: dict[str, Any]) -> list[Target]:
    plain = data[PLAIN]["seconds"]["best"]
    same = all(found["sha256"] == data[PLAIN]["sha256"] and len(found["sha256"]) == 1 for found in data.values())
    found = [Target("searches with the same weights", float(same), 1.0)]
    for name, one in data.items():
        if name == PLAIN:
            continue
        bound = "the other version" if name == OTHER else name
        ratio = one["seconds"]["ratio"]
        if name == OTHER:  # what the search in one process takes, by what it took there
            ratio = 1 / ratio
        found.append(Target(f"time against one process: {bound}", ratio, BOUND, False, "x", complete=plain > LONG))
    return found


def notes(recipes: int, rows: int, data: dict[str, Any]) -> list[str]:
    found = [
        f"{recipes:,} recipes on {rows:,} rows; seconds are those of fit, in which worker processes "
        "are started too. The workers of Dask run before. CPU seconds are those of all processes together.",
        "Ratios: the best by the best of the search in one process; then the median of the ratios of each turn.",
    ]
    left_out = [f"{name} ({missing(name)} is not installed)" for name in NAMES if missing(name)]
    if left_out:
        found.append(f"Not measured: {', '.join(left_out)}.")
    if data[PLAIN]["seconds"]["best"] <= LONG:
        found.append(f"The bound is for searches over {LONG:g} s, and this one is shorter.")
    return found


def draw(data: dict[str, Any]) -> Figure:
    figure, ((left, right),) = grid_of_axes(1, 2, width=5.0, height=3.6)
    for axis, what, label in ((left, "seconds", "seconds"), (right, "cpu_seconds", "CPU seconds")):
        bars = axis.bar(list(data), [found[what]["best"] for found in data.values()], color=COLORS["native"], width=0.6)
        axis.bar_label(bars, [f"{found[what]['ratio']:.2f}x" for found in data.values()], padding=3, fontsize=8)
        axis.set(ylabel=label)
        axis.tick_params(axis="x", labelsize=7, rotation=30)
    return figure
