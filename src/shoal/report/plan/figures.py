"""Figures of a plan: time, speed-up and accuracy against nodes, and accuracy against time.

Strategies differ by colour, dashes, marker and a label at the end of their line.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shoal.report.plan.rows import Points, Row, StrategyRows, all_nodes, curve_points
from shoal.report.shell import words
from shoal.report.shell.figures import MARKER_SHAPES, cursor, drawing, grid, line, path_through, text
from shoal.report.shell.markup import EMPTY, Html, join, tag
from shoal.report.shell.scales import Axis, LogAxis, log_padded, padded

LEFT, RIGHT, TOP, BOTTOM = 48, 240, 30, 250
# So many styles are in the style sheet; further strategies take them again.
STYLES = len(MARKER_SHAPES)
LABEL_HEIGHT = 13.0
LONGEST_LABEL = 20
MARKER_RADIUS = 3.2
MARKER_DISTANCE = 14
# Times that differ by more than this factor get a logarithmic axis.
LARGEST_LINEAR_RANGE = 8


# ---- lines, markers and labels ----


def shape(place: int, x: float, y: float, radius: float) -> str:
    """The path of a strategy's marker at a position.

    >>> shape(1, 10, 20, 2)
    'M8.2 18.2L11.8 18.2L11.8 21.8L8.2 21.8z'
    """
    corners = MARKER_SHAPES[place % STYLES]
    if not corners:
        r = f"{radius:g}"
        return f"M{x - radius:g} {y:g}a{r} {r} 0 1 0 {2 * radius:g} 0a{r} {r} 0 1 0 {-2 * radius:g} 0z"
    return path_through((round(x + radius * dx, 1), round(y + radius * dy, 1)) for dx, dy in corners) + "z"


def markers(place: int, points: Sequence[tuple[float, float]], hollow: bool = False) -> Html:
    """All markers of a line as one path."""
    paths = "".join(shape(place, x, y, MARKER_RADIUS) for x, y in points)
    return tag("path", d=paths, class_=f"{'hollow' if hollow else 'mark'} hue{place % STYLES}") if points else EMPTY


def route(place: int, points: Sequence[tuple[float, float]]) -> Html:
    """The line through some positions."""
    return tag("path", d=path_through(points), class_=f"route hue{place % STYLES}") if len(points) > 1 else EMPTY


def apart(points: Sequence[tuple[float, float]], distance: float) -> Points:
    """Some of the positions, from left to right, at least so far apart; the last one always.

    >>> apart([(0, 1), (4, 1), (9, 1), (12, 1)], 8)
    [(4, 1), (12, 1)]
    """
    kept: Points = []
    for point in reversed(points):
        if not kept or kept[-1][0] - point[0] >= distance:
            kept.append(point)
    return kept[::-1]


def group(place: int, *children: object) -> Html:
    """What belongs to one strategy, for the script that highlights it."""
    return tag("g", *children, data_strategy=place)


def spread(heights: list[float], least: float, low: float, high: float) -> list[float]:
    """Sorted heights moved apart to a distance of at least `least`, within low and high as far as they fit.

    >>> spread([10, 11, 50], 13, 0, 100), spread([90, 95], 13, 0, 100)
    ([10, 23, 50], [87, 100])
    """
    moved = list(heights)
    for place in range(1, len(moved)):
        moved[place] = max(moved[place], moved[place - 1] + least)
    over = moved[-1] - high if moved else 0
    if over > 0:
        moved[-1] -= over
        for place in range(len(moved) - 2, -1, -1):
            moved[place] = max(min(moved[place], moved[place + 1] - least), low + place * least)
    return moved


# The end of a line: its position, its label and the place of its strategy.
End = tuple[float, float, str, int]


def labels(ends: list[End], right: float, up: Axis) -> list[Html]:
    """Labels right of the plot, each with a hair line to the end of its line, moved apart where they would overlap."""
    ends = sorted(ends, key=lambda end: end[1])
    heights = spread([end[1] for end in ends], LABEL_HEIGHT, up.end, up.start)
    parts = []
    for (x, y, label, place), height in zip(ends, heights, strict=True):
        leader = tag("path", d=path_through([(x + 4, y), (right + 4, y), (right + 12, height)]), class_="leader")
        name = text(right + 15, round(height + 4, 1), words.short(label, LONGEST_LABEL), "label")
        parts.append(group(place, leader, name))
    return parts


def legend(shown: list[StrategyRows]) -> Html:
    """The names of the lines. The script makes buttons of them, which highlight a strategy in all figures."""
    if len(shown) < 2:
        return EMPTY
    items = []
    for one in shown:
        mark = tag("path", d=shape(one.place, 20, 8, 4), class_=f"mark hue{one.place % STYLES}")
        parts = [route(one.place, [(0, 8), (40, 8)]), mark]
        swatch = tag("svg", *parts, viewBox="0 0 40 16", aria_hidden="true", class_="swatch-line")
        items.append(tag("li", swatch, tag("span", one.label), data_pick=one.place))
    return tag("ul", *items, class_="legend strategies", aria_label="Strategies")


# ---- axes ----


@dataclass(frozen=True)
class NodesAxis(LogAxis):
    """Nodes on a logarithmic axis, with labels at the counts that the plan has."""

    counts: tuple[int, ...] = ()

    def marks(self, about: int = 4, factor: float = 1) -> list[tuple[float, str]]:
        doubled = [count for count in self.counts if count & (count - 1) == 0]
        counts = doubled if len(doubled) > 2 and len(self.counts) > 8 else self.counts
        places = apart([(self(count), float(count)) for count in counts], 24)
        return [(x, f"{int(count):,}") for x, count in places]


def nodes_axis(shown: list[StrategyRows], room: float = 0.05) -> NodesAxis:
    counts = all_nodes(shown)
    return NodesAxis(*log_padded([float(count) for count in counts], room), LEFT, RIGHT, tuple(counts))


def time_axis(
    values: list[float], start: float, end: float, ends: list[float] | None = None, room: float = 0.06
) -> Axis:
    """From zero, or logarithmic where the largest (of the `ends`, if given) is many times the smallest."""
    compared = ends or values
    if min(compared) > 0 and max(compared) > LARGEST_LINEAR_RANGE * min(compared):
        return LogAxis(*log_padded([value for value in values if value > 0], min(room, 0.04)), start, end)
    return Axis(0.0, max(values) * (1 + room) or 1.0, start, end)


def metric_axis(values: list[float], goal: float | None) -> Axis:
    return Axis(*padded([*values, *([goal] if goal is not None else [])]), BOTTOM, TOP)


def metric_grid(across: Axis, up: Axis, name_across: str, metric: str, goal: float | None) -> Html:
    """The grid of a figure of accuracy, with the goal."""
    unit = "%" if words.is_share(metric) else ""
    parts = [grid(across, up, name_across, words.metric_name(metric), unit_up=unit)]
    if goal is not None:
        parts.append(line(across.start, up(goal), across.end, up(goal), "goal"))
        parts.append(text(across.start + 4, up(goal) - 5, "goal", "goal-name"))
    return join(parts)


def ideal(across: Axis, up: Axis, counts: list[int], at_one: float, power: int) -> Html:
    """One node as a level line, and the dotted line of a speed-up by n on n nodes, which ends at the figure's edge."""
    level = line(across.start, up(at_one), across.end, up(at_one), "level")
    steps = [counts[0] * (counts[-1] / counts[0]) ** (place / 60) for place in range(61)]
    found = [(across(n), up(at_one * n**power)) for n in steps if up.low <= at_one * n**power <= up.high]
    if len(found) < 2:
        return level
    x, y = found[3 * len(found) // 4]  # beside the line, on the side that it turns away from
    label = text(round(x - 7, 1), round(y + (9 if power < 0 else -1), 1), "ideal", "name", "end")
    return join([level, tag("path", d=path_through(found), class_="ideal-line"), label])


# ---- figures ----


def ends_in_words(shown: list[StrategyRows], key: str, formatted: Callable[[float], str]) -> str:
    """The first and the last value of each strategy: the description of a figure."""
    parts = []
    for one in shown:
        points = one.points(key)
        if points:
            (first, start), (last, end) = points[0], points[-1]
            said = f"{one.label}: {formatted(start)} on {words.count(first, 'node')}"
            parts.append(said + (f", {formatted(end)} on {words.count(last)}" if last != first else ""))
    return "; ".join(parts) + "."


def finished(identity: str, title: str, description: str, axes: tuple[Axis, Axis], parts: list[Html],
             ends: list[End], right: float = RIGHT) -> Html:  # fmt: skip
    """A figure with the labels of its lines and the cursor that the slider moves."""
    hidden, plot = cursor(*axes)
    drawn = [*parts, *labels(ends, right, axes[1]), hidden]
    return drawing(identity, title, description, BOTTOM + 42, *drawn, data_plot=plot)


def strategy_lines(shown: list[StrategyRows], key: str, across: Axis, up: Axis) -> tuple[list[Html], list[End]]:
    """A line with markers for each strategy, and where these end."""
    drawn, ends = [], []
    for one in shown:
        spots = [(across(nodes), up(value)) for nodes, value in one.points(key)]
        if spots:
            drawn.append(group(one.place, route(one.place, spots), markers(one.place, apart(spots, MARKER_DISTANCE))))
            ends.append((*spots[-1], one.label, one.place))
    return drawn, ends


def time_figure(shown: list[StrategyRows], one: float) -> Html:
    """The time on any number of nodes, with that of one node as a level line."""
    values = [value for each in shown for _, value in each.points("seconds")]
    counts, across = all_nodes(shown), nodes_axis(shown)
    up = time_axis([*values, one / counts[-1]], BOTTOM, TOP)
    unit = "seconds, logarithmic" if isinstance(up, LogAxis) else "seconds"
    lines, ends = strategy_lines(shown, "seconds", across, up)
    parts = [grid(across, up, "nodes", unit), ideal(across, up, counts, one, -1), *lines]
    description = ends_in_words(shown, "seconds", words.duration)
    return finished("time-figure", "Time against nodes", description, (across, up), parts, ends)


def speedup_figure(shown: list[StrategyRows]) -> Html:
    """The speed-up on any number of nodes, with the ideal one dotted and one node as a level line."""
    counts, across = all_nodes(shown), nodes_axis(shown)
    values = [value for one in shown for _, value in one.points("speedup")]
    up = LogAxis(*log_padded([*values, 1.0, float(counts[-1])], 0.04), BOTTOM, TOP)
    lines, ends = strategy_lines(shown, "speedup", across, up)
    parts = [grid(across, up, "nodes", "speed-up, logarithmic"), ideal(across, up, counts, 1.0, 1), *lines]
    description = ends_in_words(shown, "speedup", words.significant)
    return finished("speedup-figure", "Speed-up against nodes", description, (across, up), parts, ends)


def whiskers(one: StrategyRows, across: Axis, up: Axis, shift: float, marked: set[int]) -> Html:
    """The intervals at some numbers of nodes, as thin upright lines with short ends."""
    path = ""
    for row in one.rows:
        low, high = row["accuracy_low"], row["accuracy_high"]
        if row["nodes"] in marked and words.known(low):
            x, foot, head = round(across(row["nodes"]) + shift, 1), up(low), up(high)
            path += f"M{x:g} {foot:g}V{head:g}M{x - 2:g} {foot:g}h4M{x - 2:g} {head:g}h4"
    return tag("path", d=path, class_=f"whisker hue{one.place % STYLES}") if path else EMPTY


def accuracy_figure(known: list[StrategyRows], metric: str, goal: float | None) -> Html:
    """Accuracy with its interval. Strategies stand beside each other, since many have the same value."""
    across = nodes_axis(known, 0.1)
    keys = ("accuracy", "accuracy_low", "accuracy_high")
    up = metric_axis([value for one in known for key in keys for _, value in one.points(key)], goal)
    parts = [metric_grid(across, up, "nodes", metric, goal)]
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
        parts.append(group(one.place, bars, route(one.place, list(spots.values())), signs))
        ends.append((*list(spots.values())[-1], one.label, one.place))
    description = ends_in_words(known, "accuracy", lambda value: words.score(value, metric))
    title = f"{words.capitalised(words.metric_name(metric))} against nodes"
    return finished("accuracy-figure", title, description, (across, up), parts, ends, RIGHT + 8)


def course_axis(curves: list[Row]) -> Axis:
    """Time across. Logarithmic where runs end at very different times; the point at zero is then not drawn."""
    ends = [curve_points(curve)[-1][0] for curve in curves]
    return time_axis([x for curve in curves for x, _ in curve_points(curve)], LEFT, RIGHT, ends, room=0.02)


def course_figure(curves: list[Row], places: list[int], metric: str, goal: float | None) -> Html:
    """Accuracy against time, a line per run; a ring marks where a run reaches the goal."""
    across = course_axis(curves)
    up = metric_axis([y for curve in curves for _, y in curve_points(curve)], goal)
    unit = "seconds, logarithmic" if isinstance(across, LogAxis) else "seconds"
    parts = [metric_grid(across, up, unit, metric, goal)]
    ends: list[End] = []
    said = []
    for curve, place in zip(curves, places, strict=True):
        points = [(x, y) for x, y in curve_points(curve) if x > 0 or not isinstance(across, LogAxis)]
        spots = [(across(x), up(y)) for x, y in points]
        again = place in [end[3] for end in ends]  # a second run of a strategy has open markers
        signs = markers(place, apart(spots, MARKER_DISTANCE), again)
        reached = next(((x, y) for x, y in points if goal is not None and y >= goal), None)
        ring = tag("circle", cx=across(reached[0]), cy=up(reached[1]), r=6.5, class_="ring") if reached else EMPTY
        parts.append(group(place, route(place, spots), signs, ring))
        ends.append((*spots[-1], short_name(curve), place))
        said.append(f"{curve['name']}: {words.score(points[-1][1], metric)} after {words.duration(points[-1][0])}")
    title = f"{words.capitalised(words.metric_name(metric))} against time"
    return finished("course-figure", title, "; ".join(said) + ".", (across, up), parts, ends)


def short_name(curve: Row) -> str:
    """
    >>> short_name({"label": "local SGD", "nodes": 4, "name": "local SGD, 4 nodes"})
    'local SGD, 4'
    """
    if curve["name"] == "one node":
        return "one node"
    number = f", {curve['nodes']}" if curve["nodes"] > 1 else ""
    return words.short(curve["label"], LONGEST_LABEL - len(number)) + number
