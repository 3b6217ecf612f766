"""Searches over 1,000, 10,000 and 100,000 small recipes: the time of each recipe, and the memory of the process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from benchmarks.harness import child
from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.measure import progress_bar
from benchmarks.harness.plots import COLORS, grid_of_axes, plain_ticks
from benchmarks.harness.report import Result
from benchmarks.harness.tables import ResultTable, significant
from benchmarks.harness.verdict import Target
from benchmarks.search.clusters import cluster_notes, cluster_table, costs_table, simulate_searches
from benchmarks.search.scale_child import EPOCHS, FEATURES, FOLDS, WIDTHS
from shoal.machine import size_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST = 100_000
MEMORY_BOUND = 1e9  # bytes, of the largest search
GROWTH_BOUND = 1.25  # of the time of a recipe, from the search in the middle to the largest


@benchmark(quick={"recipes": (300, 1_000, 3_000), "rows": 500, "simulated_rows": (500,), "workers": (1, 100)})
def scale(
    *,
    recipes: tuple[int, ...] = (1_000, 10_000, MOST),
    rows: int = 2_000,
    simulated_rows: tuple[int, ...] = (2_000, 20_000),
    workers: tuple[int, ...] = (1, 10, 100, 300, 1_000),
) -> Result:
    """Searches over up to 100,000 small recipes: time per recipe, peak memory, size of the run folder.

    recipes: Recipes.
    rows: Rows of the table.
    simulated_rows: Rows of the tables of the simulated searches.
    workers: Numbers of simulated workers.
    """
    found = []
    with progress_bar("scale", len(recipes) + len(simulated_rows)) as tick:
        for count in recipes:
            tick(f"{count:,} recipes")
            found.append(measure(count, rows))
        clusters = []
        for count in simulated_rows:
            tick(f"simulation, {count:,} rows")
            clusters.append(simulate_searches(count, workers))
    return Result(
        title="Many recipes: memory of the process and time per recipe",
        data={"searches": found, "clusters": clusters},
        tables=[table(found), costs_table(clusters), *(cluster_table(one) for one in clusters)],
        targets=targets(found), notes=[*notes(rows, found), *cluster_notes(clusters)], draw=lambda: draw(found),
    )  # fmt: skip


def measure(recipes: int, rows: int) -> dict[str, Any]:
    """A search in a process of its own: memory is never given back entirely."""
    return child.ask("benchmarks.search.scale_child", {"recipes": recipes, "rows": rows})


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


def notes(rows: int, found: Sequence[dict[str, Any]]) -> list[str]:
    spilled = [f"{one['recipes']:,}" for one in found if not one["samples_in_memory"]]
    where = f"; in a file for {', '.join(spilled)} recipes" if spilled else "; all in memory"
    return [
        f"A recipe is a network of {WIDTHS[0]} to {WIDTHS[-1]} neurons in {FOLDS} folds, trained for {EPOCHS} epochs "
        f"on {rows:,} rows of {FEATURES} numbers. That is what every recipe costs anyway.",
        "Seconds are those of fit, with a journal, and of the files that `shoal search` writes; starting Python and "
        "imports are not in them. Peak memory is that of the whole process; imports take "
        f"{size_text(found[0]['imports_bytes'])} of it.",
        f"Samples are the out-of-fold predictions that are kept of every recipe for the honest score{where}.",
    ]


def draw(found: Sequence[dict[str, Any]]) -> Figure:
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
