"""Searches over 1,000, 10,000 and 100,000 small recipes: the time of each recipe, and the memory of the process."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from shoal.bench.harness.machine import describe, require
from shoal.bench.harness.measure import progress_bar
from shoal.bench.harness.report import Result
from shoal.bench.harness.tables import ResultTable, significant
from shoal.bench.harness.verdict import Target
from shoal.bench.search.clusters import cluster_notes, cluster_table, costs_table, simulated
from shoal.bench.search.scale_child import EPOCHS, FEATURES, FOLDS, WIDTHS
from shoal.machine import size_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST = 100_000
MEMORY_BOUND = 1e9  # bytes, of the largest search
GROWTH_BOUND = 1.25  # of the time of a recipe, from the search in the middle to the largest


@dataclass(frozen=True)
class Settings:
    recipes: tuple[int, ...] = (1_000, 10_000, MOST)
    rows: int = 2_000
    simulated: tuple[int, ...] = (2_000, 20_000)  # rows of the tables of the simulated searches
    workers: tuple[int, ...] = (1, 10, 100, 300, 1_000)


QUICK = Settings(recipes=(300, 1_000, 3_000), rows=500, simulated=(500,), workers=(1, 100))


def run(settings: Settings) -> Result:
    require("matplotlib")
    begun, machine = time.perf_counter(), describe()
    found = []
    with progress_bar("scale", len(settings.recipes) + len(settings.simulated)) as tick:
        for recipes in settings.recipes:
            tick(f"{recipes:,} recipes")
            found.append(measure(recipes, settings.rows))
        clusters = []
        for rows in settings.simulated:
            tick(f"simulation, {rows:,} rows")
            clusters.append(simulated(rows, settings.workers))
    return Result(
        name="scale", title="Many recipes: memory of the process and time per recipe", machine=machine,
        settings=asdict(settings), data={"searches": found, "clusters": clusters},
        tables=[table(found), costs_table(clusters), *(cluster_table(one) for one in clusters)],
        targets=targets(found), notes=[*notes(settings, found), *cluster_notes(clusters)], draw=lambda: draw(found),
        seconds=time.perf_counter() - begun,
    )  # fmt: skip


def measure(recipes: int, rows: int) -> dict[str, Any]:
    """A search in a process of its own: memory is never given back entirely."""
    command = [sys.executable, "-m", "shoal.bench.search.scale_child", json.dumps({"recipes": recipes, "rows": rows})]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode:
        last = answer.stderr.strip().splitlines()[-1:] or ["no message"]
        raise RuntimeError(f"the search over {recipes:,} recipes failed: {last[0]}")
    result: dict[str, Any] = json.loads(answer.stdout)
    return result


def each(found: dict[str, Any], what: str = "seconds") -> float:
    """Milliseconds per recipe."""
    return float(1e3 * found[what] / found["recipes"])


def targets(found: Sequence[dict[str, Any]]) -> list[Target]:
    last = found[-1]
    complete = last["recipes"] >= MOST
    growth = each(last, "cpu_seconds") / each(found[-2], "cpu_seconds") if len(found) > 1 else None
    memory = last["peak_bytes"] / 1e9
    return [
        Target(f"peak memory of {MOST:,} recipes", memory, MEMORY_BOUND / 1e9, False, " GB", complete=complete),
        Target(
            "CPU time per recipe, against that of a tenth as many", growth, GROWTH_BOUND, False, "x", complete=complete
        ),
    ]


def table(found: Sequence[dict[str, Any]]) -> ResultTable:
    rows = [
        [
            f"{one['recipes']:,}", significant(one["seconds"]), significant(each(one)),
            significant(each(one, "cpu_seconds")), size_text(one["peak_bytes"]), size_text(one["sample_bytes"]),
            size_text(sum(one["files"].values())), size_text(one["journal_bytes"]),
        ]
        for one in found
    ]  # fmt: skip
    header = [
        "recipes",
        "seconds",
        "ms per recipe",
        "CPU ms per recipe",
        "peak memory",
        "samples",
        "results",
        "journal",
    ]
    return ResultTable("Searches, each in a process of its own, files included", header, rows)


def notes(settings: Settings, found: Sequence[dict[str, Any]]) -> list[str]:
    spilled = [f"{one['recipes']:,}" for one in found if not one["samples_in_memory"]]
    where = f"; in a file for {', '.join(spilled)} recipes" if spilled else "; all in memory"
    return [
        f"A recipe is a network of {WIDTHS[0]} to {WIDTHS[-1]} neurons in {FOLDS} folds, trained for {EPOCHS} epochs "
        f"on {settings.rows:,} rows of {FEATURES} numbers. That is what every recipe costs anyway.",
        "Seconds are those of fit, with a journal, and of the files that `shoal search` writes; starting Python and "
        "imports are not in them. Peak memory is that of the whole process; imports take "
        f"{size_text(found[0]['imports_bytes'])} of it.",
        f"Samples are the out-of-fold predictions that are kept of every recipe for the honest score{where}.",
    ]


def draw(found: Sequence[dict[str, Any]]) -> Figure:
    from shoal.bench.harness.plots import COLORS, grid_of_axes, plain_ticks

    figure, ((left, right),) = grid_of_axes(1, 2)
    counts = [one["recipes"] for one in found]
    left.plot(counts, [each(one) for one in found], "o-", color=COLORS["native"], label="elapsed")
    left.plot(counts, [each(one, "cpu_seconds") for one in found], "s--", color=COLORS["vmap"], label="CPU")
    left.legend(frameon=False)
    right.plot(counts, [one["peak_bytes"] / 1e6 for one in found], "o-", color=COLORS["native"])
    right.axhline(MEMORY_BOUND / 1e6, color="0.3", linewidth=2)
    for axis, label in ((left, "ms per recipe"), (right, "peak memory, MB")):
        axis.set(xscale="log", xlabel="recipes", ylabel=label, ylim=(0, None))
        plain_ticks(axis, counts)
    return figure
