"""What the sliders under the figures say at each stop."""

from __future__ import annotations

import math
from typing import Any

from shoal.report.plan import numbers
from shoal.report.plan.curves import course_axis, curve_points, shown_curves
from shoal.report.plan.figures import on_axis
from shoal.report.plan.strategies import Strategy, all_nodes, time_of
from shoal.report.shell import words
from shoal.report.shell.scales import LogAxis, ticks

# Stops of the slider over accuracy against time.
STOPS = 60


def reading(title: str, values: list[tuple[str, str]]) -> list[str]:
    """The lines of a text: where the slider is, then a line for each strategy."""
    return [title, *(f"{label}: {value}" for label, value in values)]


def speed_readings(data: dict[str, Any], shown: list[Strategy]) -> dict[str, Any]:
    """What the slider under a figure says at each number of nodes; `points` are positions on the axis."""
    key, _ = time_of(shown)
    counts = all_nodes(shown)
    texts = []
    for nodes in counts:
        rows = [(one.label, row) for one in shown if words.known((row := one.row(nodes)).get(key))]
        rows.sort(key=lambda pair: pair[1][key])
        texts.append(reading(numbers.nodes(nodes), [(label, times(row, key)) for label, row in rows]))
    return nodes_readings(data, counts, texts)


def times(row: dict[str, Any], key: str) -> str:
    faster = f", {numbers.times(row['speedup'])}" if words.known(row.get("speedup")) and row["nodes"] > 1 else ""
    return f"{numbers.duration(row[key])}{faster}"


def nodes_readings(data: dict[str, Any], counts: list[int], texts: list[list[str]]) -> dict[str, Any]:
    """The slider starts at the nodes of the verdict, else at the most."""
    nodes = data["verdict"].get("nodes")
    first = counts.index(nodes) if nodes in counts and nodes > 1 else len(counts) - 1
    points = [round(math.log2(count), 6) for count in counts]
    return {"label": "Nodes", "points": points, "texts": texts, "first": first}


def accuracy_readings(data: dict[str, Any], shown: list[Strategy]) -> dict[str, Any]:
    metric = data["metric"]
    known = [one for one in shown if one.points("accuracy")]
    texts, counts = [], all_nodes(known)
    for nodes in counts:
        rows = [(one, row) for one in known if words.known((row := one.row(nodes)).get("accuracy"))]
        said = [(one.label, interval(row, metric)) for one, row in rows]
        texts.append(reading(numbers.nodes(nodes), said))
    return nodes_readings(data, counts, texts)


def interval(row: dict[str, Any], metric: str) -> str:
    low, high = row.get("accuracy_low"), row.get("accuracy_high")
    text = words.score(row["accuracy"], metric)
    if words.known(low) and words.known(high):
        text += f" ({words.score(low, metric)} to {words.score(high, metric)})"
    return text


def course_readings(data: dict[str, Any]) -> dict[str, Any]:
    """What the slider says at round times: the last accuracy that each run has measured by then."""
    curves, metric = shown_curves(data), data["metric"]
    across = course_axis(curves)
    if isinstance(across, LogAxis):
        factor = across.high / across.low
        stops = [float(f"{across.low * factor ** (place / STOPS):.3g}") for place in range(1, STOPS + 1)]
    else:
        stops = [stop for stop in ticks(across.low, across.high, STOPS) if stop > 0]
    stops = [stop for stop in stops if across.low <= stop <= across.high]
    texts = []
    for stop in stops:
        said = []
        for curve in curves:
            before = [value for seconds, value in curve_points(curve) if seconds <= stop]
            said.append((curve["name"], words.score(before[-1], metric) if before else words.NOTHING))
        texts.append(reading(f"After {numbers.duration(stop)}", said))
    points = [round(on_axis(across, stop), 6) for stop in stops]
    return {"label": "Time", "points": points, "texts": texts, "first": len(stops) - 1}


def readings(data: dict[str, Any], shown: list[Strategy]) -> dict[str, Any]:
    """The texts of all sliders, by the name of their figures."""
    found = {}
    if any(one.points(time_of(shown)[0]) for one in shown):
        found["speed"] = speed_readings(data, shown)
    if any(one.points("accuracy") for one in shown):
        found["accuracy"] = accuracy_readings(data, shown)
    if shown_curves(data):
        found["course"] = course_readings(data)
    return found
