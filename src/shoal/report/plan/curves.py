"""Accuracy against time: which runs are drawn, when each reaches the goal, and the figure."""

from __future__ import annotations

import math
from typing import Any

from shoal.report.plan import numbers
from shoal.report.plan.figures import (
    HEIGHT,
    LEFT,
    RIGHT,
    WIDE_RANGE,
    goal_line,
    metric_axis,
    metric_title,
    reader,
    run,
)
from shoal.report.plan.marks import LONGEST_LABEL, End, group, labels, shortened
from shoal.report.plan.strategies import Row, chosen, goal_of, key_of, label_of, name_of, one_node
from shoal.report.shell import words
from shoal.report.shell.figures import drawing, grid
from shoal.report.shell.markup import EMPTY, Html, tag
from shoal.report.shell.scales import Axis, LogAxis, log_padded

# Up to so many runs are all drawn.
MOST = 8

Curve = dict[str, Any]


def curve_points(curve: Curve) -> list[tuple[float, float]]:
    pairs = zip(curve.get("seconds") or [], curve.get("accuracy") or [], strict=False)
    return [(x, y) for x, y in pairs if words.known(x) and words.known(y) and x >= 0]


def first_at(points: list[tuple[float, float]], goal: float) -> float | None:
    return next((seconds for seconds, value in points if value >= goal), None)


def same(curve: Curve, row: Row) -> bool:
    return key_of(row) == key_of(curve) and row.get("nodes") == curve.get("nodes")


def time_to_goal(data: dict[str, Any], curve: Curve, goal: float) -> float | None:
    """As the rows have it, else the first point of the curve at the goal."""
    for row in data["rows"]:
        if same(curve, row) and words.known(row.get("seconds_to_goal")):
            return row["seconds_to_goal"]
    return first_at(curve_points(curve), goal)


def soonest(data: dict[str, Any], curves: list[Curve]) -> Curve:
    """The run that reaches the goal first; if none does, or without a goal, the one that ends first."""
    goal = goal_of(data)

    def order(curve: Curve) -> tuple[float, float]:
        reached = time_to_goal(data, curve, goal) if goal is not None else None
        return (math.inf if reached is None else reached, curve_points(curve)[-1][0])

    return min(curves, key=order)


def shown_curves(data: dict[str, Any]) -> list[Curve]:
    """All runs; of many the verdict, one node, and the soonest run of each strategy on several nodes."""
    found = [curve for curve in data["curves"] if any(x > 0 for x, _ in curve_points(curve))]
    if len(found) <= MOST:
        return named(found)
    one = one_node(data, "seconds") or one_node(data, "seconds_per_epoch")
    kept = [curve for row in (one, chosen(data)) for curve in found if row and same(curve, row)]
    for key in dict.fromkeys(key_of(curve) for curve in found):
        several = [curve for curve in found if key_of(curve) == key and (curve.get("nodes") or 2) > 1]
        if several and key not in [key_of(curve) for curve in kept if curve.get("nodes") != 1]:
            kept.append(soonest(data, several))
    return named([curve for curve in found if any(curve is one for one in kept)])


def named(curves: list[Curve]) -> list[Curve]:
    """With a name for each run, and a short one for the figure."""
    alone = [curve for curve in curves if curve.get("nodes") == 1]
    names = [("one node", "one node") if [curve] == alone else (name_of(curve), short_name(curve)) for curve in curves]
    return [{**curve, "name": name, "short": short} for curve, (name, short) in zip(curves, names, strict=True)]


def course_axis(curves: list[Curve]) -> Axis:
    """Time across. Logarithmic where runs end at very different times; the point at zero is then left out."""
    ends = [curve_points(curve)[-1][0] for curve in curves]
    firsts = [x for curve in curves for x, _ in curve_points(curve) if x > 0]
    if firsts and min(ends) > 0 and max(ends) > WIDE_RANGE * min(ends):
        return LogAxis(*log_padded([*firsts, *ends], 0.02), LEFT, RIGHT)
    return Axis(0.0, max(ends) * 1.02 or 1.0, LEFT, RIGHT)


def course_figure(curves: list[Curve], places: list[int], metric: str, goal: float | None) -> Html:
    """Accuracy against time, a line per run; a ring marks where a run reaches the goal."""
    across = course_axis(curves)
    values = [y for curve in curves for _, y in curve_points(curve)]
    up = metric_axis(values, metric, goal)
    scaled = "seconds, logarithmic" if isinstance(across, LogAxis) else "seconds"
    parts = [grid(across, up, scaled, words.metric_name(metric)), goal_line(across, up, goal)]
    ends: list[End] = []
    said = []
    for curve, place in zip(curves, places, strict=True):
        points = [(x, y) for x, y in curve_points(curve) if x > 0 or not isinstance(across, LogAxis)]
        again = place in [end.place for end in ends]
        drawn, end = run(place, curve["short"], [(across(x), up(y)) for x, y in points], again)
        reached = next(((x, y) for x, y in points if goal is not None and y >= goal), None)
        ring = tag("circle", cx=across(reached[0]), cy=up(reached[1]), r=6.5, class_="ring") if reached else EMPTY
        parts.append(group(place, drawn, ring))
        ends.append(end)
        last = words.score(points[-1][1], metric)
        said.append(f"{curve['name']}: {last} after {numbers.duration(points[-1][0])}")
    hidden, plot = reader(across, up)
    title = f"{metric_title(metric)} against time"
    drawn_all = [*parts, *labels(ends, RIGHT, up), hidden]
    return drawing("course-figure", title, "; ".join(said) + ".", HEIGHT, *drawn_all, data_plot=plot)


def short_name(curve: Curve) -> str:
    """
    >>> short_name({"label": "local SGD", "nodes": 4}), short_name({"label": "one process", "nodes": 1})
    ('local SGD, 4', 'one process')
    """
    nodes = curve.get("nodes")
    number = f", {nodes}" if words.known(nodes) and nodes > 1 else ""
    return shortened(label_of(curve), LONGEST_LABEL - len(number)) + number
