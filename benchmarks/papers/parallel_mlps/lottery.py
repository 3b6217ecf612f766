"""A million random networks: how good is the best, and does it stay ahead when all are trained?"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.engine.tools.tables import load
from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.measure import progress_bar
from benchmarks.harness.plots import COLORS, grid_of_axes
from benchmarks.harness.report import Result
from benchmarks.harness.tables import ResultTable, significant
from benchmarks.harness.verdict import Target
from benchmarks.papers.parallel_mlps.random_networks import DEFAULT, Lottery, lottery
from shoal.machine import peak_memory

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BINS = 60
MINUTES = 5.0


@benchmark(
    name="tools-lottery",
    quick={"tables": ("penguins",), "million": 5_000, "networks": 2_000, "trained": 50, "keep": 20},
)
def tools_lottery(
    *,
    tables: tuple[str, ...] = ("vehicle", "heart-disease", "cmc", "concrete"),
    million: int = 1_000_000,
    networks: int = 100_000,
    trained: int = 1000,
    keep: int = 100,
) -> Result:
    """A million random networks: how good is the best, and does it stay ahead when all are trained?

    tables: Names of tables.
    million: Networks on the first table.
    networks: Networks on the others.
    trained: Networks that are trained afterwards.
    keep: The best ones among them.
    """
    found = []
    with progress_bar("lottery", 2 * len(tables)) as tick:
        for k, case in enumerate(load(tables)):
            for solve in (False, True):
                tick(f"{case.name}{', solved' * solve}")
                count = million if k == 0 else networks
                started = time.perf_counter()
                drawn = lottery(
                    case.X, case.y, count=count, solve=solve, trained=trained, keep=keep,
                    task=case.task,
                )  # fmt: skip
                found.append(summary(case.name, drawn, time.perf_counter() - started))
    whole = tools_lottery.is_whole(tables=tables, million=million, networks=networks, trained=trained, keep=keep)
    data = {"lotteries": found, "peak_bytes": peak_memory()}
    return Result(
        title=f"The best of {million:,} random networks", settings={"recipe": str(DEFAULT)}, data=data,
        tables=[table(data)], targets=targets(million, trained, found, whole), notes=notes(trained, keep, data),
        draw=lambda: draw(found),
    )  # fmt: skip


def summary(name: str, drawn: Lottery, seconds: float) -> dict[str, Any]:
    counts, edges = np.histogram(np.maximum(drawn.scores, -1.0), BINS)
    keep = len(drawn.winners)
    return {
        "name": name, "solved": drawn.solved, "count": len(drawn.scores), "metric": drawn.metric, "seconds": seconds,
        "best": drawn.best, "median": drawn.median, "best_on_new_rows": drawn.best_on_new_rows,
        "median_on_new_rows": float(np.median(drawn.new_scores[keep:])),
        "correlation": [drawn.correlation, drawn.low, drawn.high], "lead": list(drawn.lead),
        "trained_mean": float(np.mean(drawn.trained_scores[keep:])), "winners": keep,
        "histogram": {"counts": counts.tolist(), "edges": edges.tolist()},
    }  # fmt: skip


def targets(million: int, trained: int, found: list[dict[str, Any]], whole: bool) -> list[Target]:
    minutes = max(one["seconds"] for one in found if one["count"] == million) / 60
    what = f"{million:,} networks scored, and {trained:,} trained"
    return [Target(what, minutes, MINUTES, at_least=False, unit=" min", complete=whole)]


def table(data: dict[str, Any]) -> ResultTable:
    rows = []
    for one in data["lotteries"]:
        lead, low, high = one["lead"]
        value, least, most = one["correlation"]
        rows.append([
            one["name"], "last layer solved" if one["solved"] else "untrained", f"{one['count']:,}",
            f"{one['median']:.3f}", f"{one['best']:.3f}", f"{one['median_on_new_rows']:.3f}",
            f"{one['best_on_new_rows']:.3f}", f"{one['trained_mean']:.3f}",
            f"{value:+.2f} ({least:+.2f} to {most:+.2f})", f"{lead:+.4f} ({low:+.4f} to {high:+.4f})",
            significant(one["seconds"]),
        ])  # fmt: skip
    header = [
        "table", "how", "networks", "median", "best", "median, new rows", "best, new rows", "trained, new rows",
        "rank correlation with trained", "lead of the best after training", "seconds",
    ]  # fmt: skip
    return ResultTable("Accuracy, or R2", header, rows)


def notes(trained: int, keep: int, data: dict[str, Any]) -> list[str]:
    return [
        f"Networks of one recipe, {DEFAULT}, that differ in their seed. New rows are those that nothing was chosen or "
        "fitted on.",
        f"After training: {trained:,} networks drawn at random and the {keep} best are trained from "
        "the weights that were drawn; the lead is the mean of the best less the mean of the others, on new rows.",
        f"Peak memory of the whole benchmark: {data['peak_bytes'] / 1e6:.0f} MB.",
    ]


def draw(found: list[dict[str, Any]]) -> Figure:
    names = list(dict.fromkeys(one["name"] for one in found))
    figure, axes = grid_of_axes(1, len(names), width=3.4, height=3.0)
    for axis, name in zip(axes[0], names, strict=True):
        for one in found:
            if one["name"] == name:
                color = COLORS["vmap"] if one["solved"] else COLORS["native"]
                density = np.array(one["histogram"]["counts"]) / one["count"]
                axis.stairs(density, one["histogram"]["edges"], color=color, fill=True, alpha=0.45,
                            label="last layer solved" if one["solved"] else "untrained")  # fmt: skip
                axis.axvline(one["best"], color=color, linewidth=1)
        axis.set(title=name, xlabel=found[0]["metric"] if len(names) == 1 else "accuracy or R2", ylabel="share")
        axis.legend(frameon=False, fontsize=7)
    return figure
