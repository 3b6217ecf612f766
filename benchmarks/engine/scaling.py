"""How the time of an epoch grows: with threads, members, rows and features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from benchmarks import peers
from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.measure import Contender, Tick, fit_line, progress_bar, race, rounds
from benchmarks.harness.plots import COLORS, grid_of_axes
from benchmarks.harness.problems import Problem, paper_members, random_data
from benchmarks.harness.report import Result
from benchmarks.harness.tables import ResultTable, significant
from benchmarks.harness.verdict import Target
from shoal.machine import thread_count
from shoal.population.population import Population

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BATCH = 32
SHARES = (0.05, 0.1, 0.2, 0.4, 0.7, 1.0)  # of the largest size, where each curve is measured


CURVES = ("members", "rows", "features")


@benchmark(quick={"members": 2000, "rows": 2000, "features": 200, "base": (400, 400, 50), "repeats": 2})
def scaling(
    *,
    members: int = 10_000,
    rows: int = 10_000,
    features: int = 800,
    base: tuple[int, int, int] = (1000, 1000, 100),
    repeats: int = 3,
) -> Result:
    """Time per epoch against threads, members, rows and features.

    members: Largest population.
    rows: Largest number of rows.
    features: Largest number of features.
    repeats: Times that everything is measured; the best counts.
    """
    largest = {"members": members, "rows": rows, "features": features}
    counts = sorted({1, 2, thread_count()})
    points = len(largest) * len(SHARES)
    with progress_bar("scaling", points * (repeats + 1) + rounds(len(counts), repeats)) as tick:
        threads = measure_threads(base, repeats, counts, tick)
        curves = {name: measure_curve(name, size, base, repeats, tick) for name, size in largest.items()}
    data = {"threads": threads, "curves": curves}
    whole = scaling.is_whole(**largest, base=base)
    return Result(
        title="Time of an epoch against threads, members, rows and features", data=data,
        tables=[threads_table(threads), curves_table(curves)], targets=targets(threads, curves, whole),
        notes=notes(base), draw=lambda: draw(threads, curves),
    )  # fmt: skip


def make_problem(members: int, rows: int, features: int) -> Problem:
    """A population like the paper's with any number of members, whose mean width does not depend on that number."""
    X, y = random_data(rows, features)
    return Problem(Population(paper_members(members, BATCH), features, 2), X, y)


def measure_threads(
    base: tuple[int, int, int], repeats: int, counts: Sequence[int], tick: Tick
) -> list[dict[str, Any]]:
    """One problem with each number of threads, in turn."""
    problem = make_problem(2 * base[0], *base[1:])
    contenders = [_contender(str(count), problem, count) for count in counts]
    timings = race(contenders, repeats, lambda what: tick(f"{what} threads"))
    problem.check()
    alone = timings["1"].seconds
    return [
        {"threads": count, **timings[str(count)].as_dict(), "speed_up": alone / timings[str(count)].seconds}
        for count in counts
    ]


def measure_curve(name: str, largest: int, base: tuple[int, int, int], repeats: int, tick: Tick) -> dict[str, Any]:
    """Seconds of an epoch for several sizes of one kind; sizes take turns, so that noise is no trend."""
    least = {"members": 10, "rows": 10, "features": 1}[name]
    sizes = sorted({max(least, round(largest * share)) for share in SHARES})
    contenders = []
    for size in sizes:
        sized = dict(zip(CURVES, base, strict=True)) | {name: size}
        contenders.append(_contender(str(size), make_problem(**sized), thread_count()))
    timings = race(contenders, repeats, lambda what: tick(f"{what} {name}"))
    seconds = [timings[str(size)].seconds for size in sizes]
    raw = {size: timings[str(size)].raw for size in sizes}
    return {"sizes": sizes, "seconds": seconds, "raw_seconds": raw, "fit": asdict(fit_line(sizes, seconds))}


def _contender(name: str, problem: Problem, threads: int) -> Contender:
    peer = peers.make("native", problem, threads)
    return Contender(name, lambda: peer.run(1), peer.warm_up)


def targets(threads: list[dict[str, Any]], curves: dict[str, Any], whole: bool = True) -> list[Target]:
    """Linear means that a straight line explains the times."""
    both = [entry["speed_up"] for entry in threads if entry["threads"] == 2]
    found = [Target("speed-up of 2 threads", both[0] if both else None, 1.9, unit="x", complete=whole)]
    for name, curve in curves.items():
        fit = curve["fit"]
        note = f"time ~ {name} ** {fit['exponent']:.2f}"
        what = f"linear in {name}: R squared of a line"
        found.append(Target(what, fit["r_squared"], 0.99, note=note, complete=whole))
    return found


def threads_table(threads: list[dict[str, Any]]) -> ResultTable:
    rows = [[str(t["threads"]), significant(t["seconds"]), f"{t['speed_up']:.2f}x"] for t in threads]
    return ResultTable("Threads", ["threads", "seconds per epoch", "speed-up"], rows)


def curves_table(curves: dict[str, Any]) -> ResultTable:
    rows = []
    for name, curve in curves.items():
        fit, sizes, seconds = curve["fit"], curve["sizes"], curve["seconds"]
        rows.append([
            name, f"{sizes[0]:,} to {sizes[-1]:,}", f"{significant(seconds[0])} to {significant(seconds[-1])}",
            f"{fit['exponent']:.2f}", f"{fit['r_squared']:.4f}", f"{1e6 * fit['each']:.3g} us",
        ])  # fmt: skip
    header = ["against", "sizes", "seconds per epoch", "exponent", "R squared of a line", "cost of one more"]
    return ResultTable("Growth", header, rows)


def notes(base: tuple[int, int, int]) -> list[str]:
    members, rows, features = base
    return [
        f"Each curve holds the others at {members:,} members, {rows:,} rows and {features} features; batch {BATCH}.",
        "The exponent is the slope in logarithms: 1 is linear, below 1 means that small sizes pay a fixed cost.",
        f"Threads are compared on {2 * members:,} members.",
    ]


def draw(threads: list[dict[str, Any]], curves: dict[str, Any]) -> Figure:
    import numpy as np

    figure, axes = grid_of_axes(2, 2, width=4.2)
    first, *others = axes.flat
    names = [str(entry["threads"]) for entry in threads]
    bars = first.bar(names, [entry["speed_up"] for entry in threads], color=COLORS["native"], width=0.5)
    first.bar_label(bars, fmt="%.2fx", padding=3)
    first.set(xlabel="threads", ylabel="speed-up", ylim=(0, 1.2 * max(entry["speed_up"] for entry in threads)))
    first.set_title("threads", fontsize=10)
    for axis, (name, curve) in zip(others, curves.items(), strict=True):
        sizes, fit = np.array(curve["sizes"]), curve["fit"]
        line = fit["fixed"] + fit["each"] * sizes
        axis.plot(sizes, line, color="0.5", linewidth=1, label=f"straight line, R squared {fit['r_squared']:.4f}")
        axis.plot(
            sizes, curve["seconds"], "o", color=COLORS["native"], label=f"measured, ~ {name} ** {fit['exponent']:.2f}"
        )
        axis.set(
            xlabel=name, ylabel="seconds per epoch", xlim=(0, None), ylim=(0, None)
        )  # linear: straight is the claim
        axis.set_title(name, fontsize=10)
        axis.xaxis.set_major_formatter("{x:,.0f}")
        axis.legend(frameon=False, fontsize=9)
    return figure
