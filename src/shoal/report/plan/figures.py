"""Figures of a plan against the number of nodes: time, speed-up, accuracy; and accuracy against time."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

from shoal.report.plan import numbers
from shoal.report.plan.marks import STYLES, End, NodesAxis, apart, group, labels, markers, route
from shoal.report.plan.strategies import Strategy, all_nodes
from shoal.report.shell import words
from shoal.report.shell.figures import drawing, grid, line, text
from shoal.report.shell.markup import EMPTY, Html, join, tag
from shoal.report.shell.scales import Axis, LogAxis, log_padded, padded

LEFT, RIGHT, TOP, BOTTOM = 48, 240, 30, 250
HEIGHT = BOTTOM + 42
# Times that differ by more than this factor get a logarithmic axis.
WIDE_RANGE = 8
# So far apart markers are, in units of the figure.
ROOM = 14


def nodes_axis(shown: list[Strategy], room: float = 0.05) -> NodesAxis:
    counts = all_nodes(shown)
    low, high = log_padded([float(count) for count in counts], room)
    return NodesAxis(low, high, LEFT, RIGHT, tuple(counts))


def time_axis(values: list[float], start: float, end: float) -> Axis:
    """From zero, or logarithmic where the largest is many times the smallest."""
    if min(values) > 0 and max(values) > WIDE_RANGE * min(values):
        return LogAxis(*log_padded(values, 0.04), start, end)
    return Axis(0.0, max(values) * 1.06 or 1.0, start, end)


def reader(across: Axis, up: Axis) -> tuple[Html, str]:
    """The line that the script moves, and its scale: as `cursor`, with logarithms where the axis has them."""
    low, high = on_axis(across, across.low), on_axis(across, across.high)
    hidden = tag("line", x1=0, y1=up.end, x2=0, y2=up.start, class_="cursor", visibility="hidden")
    return hidden, f"{low:.7g} {high:.7g} {across.start:g} {across.end:g}"


def on_axis(across: Axis, value: float) -> float:
    return math.log2(value) if isinstance(across, LogAxis) else value


def run(place: int, label: str, spots: list[tuple[float, float]], again: bool = False) -> tuple[Html, End]:
    """A line with its markers, and where it ends. `again`: the strategy has a line already, so this is an open one."""
    drawn = group(place, route(spots, place), markers(place, apart(spots, ROOM), again))
    return drawn, End(*spots[-1], label, place)


def runs(shown: list[Strategy], key: str, across: Axis, up: Axis) -> tuple[list[Html], list[End]]:
    found = [(one, one.points(key)) for one in shown]
    made = [run(one.place, one.label, [(across(n), up(v)) for n, v in points]) for one, points in found if points]
    return [drawn for drawn, _ in made], [end for _, end in made]


def ends_in_words(shown: list[Strategy], key: str, formatted: Any) -> str:
    """The first and the last value of each strategy: the description of a figure."""
    parts = []
    for one in shown:
        points = one.points(key)
        if points:
            (first, start), (last, end) = points[0], points[-1]
            said = f"{one.label}: {formatted(start)} on {words.count(first, 'node')}"
            parts.append(said + (f", {formatted(end)} on {words.count(last)}" if last != first else ""))
    return "; ".join(parts) + "."


def ideal(across: Axis, up: Axis, counts: list[int], at_one: float, power: int) -> Html:
    """The dotted line of a speed-up by n on n nodes. It ends where it leaves the figure."""
    steps = [counts[0] * (counts[-1] / counts[0]) ** (place / 60) for place in range(61)]
    found = [(across(n), up(at_one * n**power)) for n in steps if up.low <= at_one * n**power <= up.high]
    if len(found) < 2:
        return EMPTY
    path = tag("path", d="M" + "L".join(f"{x:g} {y:g}" for x, y in found), class_="ideal-line")
    x, y = found[3 * len(found) // 4]  # beside the line, on the side that it turns away from
    return join([path, text(round(x - 7, 1), round(y + (9 if power < 0 else -1), 1), "ideal", "name", "end")])


def time_figure(shown: list[Strategy], key: str, one: float | None) -> Html:
    """The time on any number of nodes, with that of one node as a level line."""
    values = [value for each in shown for _, value in each.points(key)]
    counts = all_nodes(shown)
    least = one / counts[-1] if one else min(values)
    across = nodes_axis(shown)
    up = time_axis([*values, *([least] if least > 0 else [])], BOTTOM, TOP)
    scaled = ", logarithmic" if isinstance(up, LogAxis) else ""
    parts = [grid(across, up, "nodes", f"seconds{scaled}")]
    if one:
        parts.append(line(across.start, up(one), across.end, up(one), "level"))
        parts.append(ideal(across, up, counts, one, -1))
    lines, ends = runs(shown, key, across, up)
    hidden, plot = reader(across, up)
    description = ends_in_words(shown, key, numbers.duration)
    drawn = [*parts, *lines, *labels(ends, RIGHT, up), hidden]
    return drawing("time-figure", "Time against nodes", description, HEIGHT, *drawn, data_plot=plot)


def speedup_figure(shown: list[Strategy]) -> Html:
    """The speed-up on any number of nodes, with the ideal one dotted and one node as a level line."""
    values = [value for one in shown for _, value in one.points("speedup") if value > 0]
    if not values:
        return EMPTY
    counts = all_nodes(shown)
    across = nodes_axis(shown)
    up = LogAxis(*log_padded([*values, 1.0, float(counts[-1])], 0.04), BOTTOM, TOP)
    positive = [
        Strategy(one.place, one.key, one.label, [row for row in one.rows if (row.get("speedup") or 0) > 0])
        for one in shown
    ]
    lines, ends = runs(positive, "speedup", across, up)
    parts = [grid(across, up, "nodes", "speed-up, logarithmic")]
    parts.append(line(across.start, up(1.0), across.end, up(1.0), "level"))
    parts.append(ideal(across, up, counts, 1.0, 1))
    hidden, plot = reader(across, up)
    description = ends_in_words(positive, "speedup", words.significant)
    drawn = [*parts, *lines, *labels(ends, RIGHT, up), hidden]
    return drawing("speedup-figure", "Speed-up against nodes", description, HEIGHT, *drawn, data_plot=plot)


@dataclass(frozen=True)
class ShareAxis(Axis):
    """Shares, labelled in percent: `grid` has one unit for both axes."""

    def marks(self, about: int = 4, factor: float = 1) -> list[tuple[float, str]]:
        return [(position, f"{label}%") for position, label in super().marks(about, 100 * factor)]


def metric_axis(values: list[float], metric: str, goal: float | None) -> Axis:
    limits = padded([*values, *([goal] if goal is not None else [])])
    return (ShareAxis if words.is_share(metric) else Axis)(*limits, BOTTOM, TOP)


def accuracy_values(shown: list[Strategy]) -> list[float]:
    keys = ("accuracy", "accuracy_low", "accuracy_high")
    return [value for one in shown for key in keys for _, value in one.points(key)]


def goal_line(across: Axis, up: Axis, goal: float | None) -> Html:
    if goal is None:
        return EMPTY
    y = up(goal)
    return join([line(across.start, y, across.end, y, "goal"), text(across.start + 4, y - 5, "goal", "goal-name")])


def whiskers(one: Strategy, across: Axis, up: Axis, shift: float, marked: set[int]) -> Html:
    """The intervals at some numbers of nodes, as thin upright lines with short ends."""
    path = ""
    for row in one.rows:
        low, high = row.get("accuracy_low"), row.get("accuracy_high")
        if row["nodes"] in marked and words.known(low) and words.known(high):
            x, foot, head = round(across(row["nodes"]) + shift, 1), up(low), up(high)
            path += f"M{x:g} {foot:g}V{head:g}M{x - 2:g} {foot:g}h4M{x - 2:g} {head:g}h4"
    return tag("path", d=path, class_=f"whisker line{one.place % STYLES}") if path else EMPTY


def accuracy_figure(shown: list[Strategy], metric: str, goal: float | None) -> Html:
    """Accuracy with its interval. Strategies stand beside each other, since many have the same value."""
    known = [one for one in shown if one.points("accuracy")]
    across = nodes_axis(known, 0.1)
    up = metric_axis(accuracy_values(known), metric, goal)
    parts = [grid(across, up, "nodes", words.metric_name(metric)), goal_line(across, up, goal)]
    marked = apart([(across(count), float(count)) for count in across.counts], 2.5 * len(known))
    gaps = [after - before for (before, _), (after, _) in itertools.pairwise(marked)]
    gap = min(5.0, 0.8 * min(gaps, default=60.0) / len(known))
    chosen = {int(count) for _, count in marked}
    ends = []
    for place, one in enumerate(known):
        shift = (place - (len(known) - 1) / 2) * gap
        spots = {n: (round(across(n) + shift, 1), up(value)) for n, value in one.points("accuracy")}
        signs = markers(one.place, [spot for n, spot in spots.items() if n in chosen])
        bars = whiskers(one, across, up, shift, chosen)
        parts.append(group(one.place, bars, route(list(spots.values()), one.place), signs))
        ends.append(End(*list(spots.values())[-1], one.label, one.place))
    hidden, plot = reader(across, up)
    description = ends_in_words(known, "accuracy", lambda value: words.score(value, metric))
    drawn_all = [*parts, *labels(ends, RIGHT + 8, up), hidden]
    title = f"{metric_title(metric)} against nodes"
    return drawing("accuracy-figure", title, description, HEIGHT, *drawn_all, data_plot=plot)


def metric_title(metric: str) -> str:
    name = words.metric_name(metric)
    return f"{name[:1].upper()}{name[1:]}"
