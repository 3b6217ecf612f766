"""Tables, targets and the figure of `python -m benchmarks planner`."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from benchmarks.harness.plots import grid_of_axes
from benchmarks.harness.tables import ResultTable, significant
from benchmarks.harness.verdict import Target
from benchmarks.parallel.workers import percent
from benchmarks.planner.subjects import DRAWN, HERE, find_subject
from shoal.machine import thread_count

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from benchmarks.planner.validation import Judged

STRICT = 1.05


def tables(judged: Sequence[Judged], scored: list[dict[str, Any]], rivals: list[dict[str, Any]]) -> list[ResultTable]:
    made = [_summary(judged)]
    for place in dict.fromkeys(one.place for one in judged):
        for net in dict.fromkeys(one.net for one in judged):
            part = [one for one in judged if one.place == place and one.net == net]
            if part:
                made.append(_detail(f"{net}, {place}", part))
    rows = [[one["strategy"], one["backend"], percent(one["predicted"]), percent(one["measured"]),
             f"{100 * (one['predicted'] - one['measured']):+.2f}"] for one in scored]  # fmt: skip
    made.append(ResultTable("Accuracy of two workers: virtual nodes and real ones",
                            ["strategy", "backend", "predicted", "measured", "points"], rows))  # fmt: skip
    if rivals:
        rows = [[str(one["nodes"]), *(significant(one[key]) for key in ("real", "shoal", "dlmp")),
                 *(percent(one[f"{key}_accuracy"]) for key in ("real", "shoal", "dlmp"))]
                for one in rivals]  # fmt: skip
        header = ["nodes", "seconds an epoch, real", "Shoal", "DLMP", "accuracy, real", "Shoal", "DLMP"]
        made.append(ResultTable("DLMP on the same cases: LeNet-5, averaged each epoch", header, rows))
    return made


def _summary(judged: Sequence[Judged]) -> ResultTable:
    """Errors by what may matter."""
    cores, rows = thread_count(), []
    keys: dict[str, Callable[[Judged], str]] = {
        "backend": lambda one: one.backend if one.place == HERE else f"hosts, {one.place}",
        "network": lambda one: one.net,
        "strategy": lambda one: one.strategy,
    }
    rows.append(_line("all, up to one worker a core", within(judged)))
    rows.append(_line("networks and batch sizes by chance", [one for one in within(judged) if by_chance(one)]))
    for name, key in keys.items():
        for value in dict.fromkeys(map(key, judged)):
            rows.append(_line(f"{name}: {value}", [one for one in within(judged) if key(one) == value]))
    rows.append(_line(f"more workers than the {cores} cores", [one for one in judged if one.workers > cores]))
    return ResultTable("Error of the time of an epoch", ["cases", "how many", "median", "within 20%", "verdict right"],
                       [row for row in rows if row])  # fmt: skip


def by_chance(one: Judged) -> bool:
    return one.net.startswith(f"{DRAWN}:")


def within(judged: Sequence[Judged]) -> list[Judged]:
    """Without those that have more workers than cores."""
    return [one for one in judged if one.workers <= thread_count()]


def _line(name: str, part: Sequence[Judged]) -> list[str]:
    if not part:
        return []
    errors = [abs(one.error) for one in part]
    near = sum(error <= 0.2 for error in errors) / len(errors)
    said = [one.right for one in part if one.workers > 1 and one.right is not None]
    right = percent(sum(said) / len(said), 0) if said else "-"
    return [name, str(len(part)), percent(statistics.median(errors), 1), percent(near, 0), right]


def _detail(title: str, part: Sequence[Judged]) -> ResultTable:
    cores = thread_count()
    rows = [
        [one.backend, one.strategy, f"{one.workers}{'*' * (one.workers > cores)}", f"{one.batch:,}",
         significant(one.predicted), significant(one.measured), f"{100 * one.error:+.0f}%",
         f"{one.predicted_speedup:.2f}x", f"{one.measured_speedup:.2f}x",
         {True: "yes", False: "NO", None: "neither"}[one.right] if one.workers > 1 else "-"]
        for one in part
    ]  # fmt: skip
    return ResultTable(title, ["backend", "strategy", "workers", "batch", "predicted, s", "measured, s", "error",
                               "speed-up, predicted", "measured", "verdict right"], rows)  # fmt: skip


def targets(judged: Sequence[Judged], scored: list[dict[str, Any]]) -> list[Target]:
    part = within(judged)
    errors = [abs(one.error) for one in part]
    said = [one.right for one in part if one.workers > 1 and one.right is not None]
    away = [abs(one["predicted"] - one["measured"]) for one in scored]
    return [
        Target("median error of time", 100 * statistics.median(errors) if errors else None, 10, False, "%"),
        Target("time within 20%", 100 * sum(e <= 0.2 for e in errors) / len(errors) if errors else None, 90, True, "%"),
        Target("verdict right", 100 * sum(said) / len(said) if said else None, 95, True, "%"),
        Target("accuracy, farthest from the real run", 100 * max(away) if away else None, 0.5, False, " points"),
    ]  # fmt: skip


def notes(judged: Sequence[Judged], unable: dict[str, str]) -> list[str]:
    found = [
        "Seconds are those of an epoch of a real training (the best of those after the first), and what the planner "
        "says from its calibration: steps of one worker and of a worker on each core with 6, 12, 24, ... rows, which "
        "no training here has, messages of some sizes, and small steps (8 rows of a worker) of each strategy.",
        "One worker is the plain loop, with one thread or all, whichever is faster. The verdict is right if the "
        "planner knew beforehand whether workers are faster than that; measured speed-ups within 5% of 1 count as "
        "neither.",
        f"By a rule that more workers must be told {100 * STRICT - 100:.0f}% faster, {_by_rule(judged, STRICT)} "
        "verdicts would be right.",
        f"* More workers than the {thread_count()} cores of this machine: judged apart.",
        "Two hosts are network namespaces on this machine: they share its cores, and a token bucket limits their link.",
    ]
    for name in dict.fromkeys(one.net for one in judged if by_chance(one)):
        drawn = find_subject(name)
        found.append(f"{name} is {drawn.net} with {drawn.rows:,} rows and batches of {drawn.batches[0]} and "
                     f"{drawn.batches[1]}, drawn by this seed.")  # fmt: skip
    return found + [f"{name} was not measured: {why}." for name, why in unable.items()]


def _by_rule(judged: Sequence[Judged], rule: float) -> str:
    """Verdicts that would be right if workers that are less than so much faster did not pay."""
    told = [one for one in within(judged) if one.workers > 1 and one.right is not None]
    right = sum((one.predicted_speedup >= rule) == (one.measured_speedup > 1) for one in told)
    return f"{right} of {len(told)}"


def draw(judged: Sequence[Judged]) -> Figure:
    """Predicted against measured seconds, and the errors by strategy."""
    from benchmarks.parallel.workers import PALETTE

    figure, (axes,) = grid_of_axes(1, 2, width=5.6, height=4.2)
    part = within(judged)
    places = list(dict.fromkeys((one.backend, one.place) for one in part))
    for k, place in enumerate(places):
        mine = [one for one in part if (one.backend, one.place) == place]
        label = place[0] if place[1] == HERE else f"hosts, {place[1]}"
        axes[0].scatter([one.measured for one in mine], [one.predicted for one in mine], s=14,
                        color=PALETTE[(k + 1) % len(PALETTE)], label=label, alpha=0.8)  # fmt: skip
    ends = [min(one.measured for one in part), max(one.measured for one in part)]
    axes[0].plot(ends, ends, color="#555555", linewidth=0.8)
    axes[0].fill_between(ends, [0.8 * end for end in ends], [1.2 * end for end in ends], color="#999999", alpha=0.2)
    axes[0].set(xscale="log", yscale="log", xlabel="measured, s an epoch", ylabel="predicted, s an epoch")
    axes[0].legend(frameon=False, fontsize=8)
    names = list(dict.fromkeys(one.strategy for one in part))
    for k, name in enumerate(names):
        errors = [100 * one.error for one in part if one.strategy == name]
        axes[1].scatter(errors, [k] * len(errors), s=14, color=PALETTE[3], alpha=0.6)
    axes[1].axvspan(-20, 20, color="#999999", alpha=0.2)
    axes[1].set_yticks(range(len(names)), names)
    axes[1].set(xlabel="error, %", xlim=(-100, 100))
    return figure
