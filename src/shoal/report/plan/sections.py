"""Sections on time, accuracy, accuracy against time, and notes."""

from __future__ import annotations

import math
from typing import Any

from shoal.report.plan import numbers
from shoal.report.plan.curves import course_figure, curve_points, shown_curves, time_to_goal
from shoal.report.plan.estimate import workers
from shoal.report.plan.figures import accuracy_figure, speedup_figure, time_figure
from shoal.report.plan.marks import legend
from shoal.report.plan.strategies import (
    Strategy,
    fastest,
    goal_of,
    key_of,
    name_of,
    one_node,
    time_of,
)
from shoal.report.shell import words
from shoal.report.shell.markup import (
    Html,
    Section,
    cell,
    column_head,
    join,
    paragraph,
    row_head,
    strong,
    table,
    tag,
)

# So many strategies are named that lose accuracy.
NAMED = 4


def own_machines(data: dict[str, Any]) -> str:
    own = data["machine"].get("own_machines")
    if own is None:
        return ""
    if own:
        return " Each node is a machine like this one."
    return f" The nodes are {workers(data['machine'])} that share the cores of this machine."


def speed_words(data: dict[str, Any], shown: list[Strategy], key: str, what: str) -> Html:
    one = one_node(data, key)
    best = fastest(data["rows"], key)
    parts: list[object] = [f"The {what} against the number of nodes."]
    if one and best and best["nodes"] > 1:
        gain = numbers.times(one[key] / best[key])
        parts += [" Fastest is ", strong(name_of(best)), f": {numbers.duration(best[key])}, {gain} as one node."]
    elif one and best:
        parts += [" No number of nodes is faster than ", strong("one"), f", which takes {numbers.duration(one[key])}."]
    parts.append(own_machines(data))
    return paragraph(*parts)


def speed(data: dict[str, Any], shown: list[Strategy]) -> Section | None:
    key, what = time_of(shown)
    if not any(one.points(key) for one in shown):
        return None
    one = one_node(data, key)
    figures = [tag("figure", time_figure(shown, key, one[key] if one else None))]
    faster = speedup_figure(shown)
    if faster:
        figures.append(tag("figure", faster))
    pair = tag("div", *figures, class_="pair")
    marks = "The dotted line is ideal: half the time on twice the nodes. "
    marks += "The level line is one node." if one or faster else ""
    body = [speed_words(data, shown, key, what), legend(shown), tag("div", pair, class_="read", data_read="speed")]
    return Section("speed", "How much faster with more nodes?", "Speed", join([*body, paragraph(marks, kind="small")]))


def accuracy_words(data: dict[str, Any], shown: list[Strategy]) -> Html:
    """The strategies that lose accuracy, and those that do not."""
    metric = data["metric"]
    name = words.metric_name(metric)
    alone = [one_node(data, time_of(shown)[0]), *(row for row in data["rows"] if row.get("nodes") == 1)]
    alone = [row for row in alone if row and words.known(row.get("accuracy"))]
    if not alone:
        return paragraph(f"The {name} to expect against the number of nodes.")
    base = alone[0]["accuracy"]
    least = 0.0005 if words.is_share(metric) else 0.0005 * max(1.0, abs(base))
    lost: list[tuple[float, str]] = []
    for one in shown:
        points = [point for point in one.points("accuracy") if point[0] > 1]
        nodes, value = min(points, key=lambda point: point[1], default=(1, base))
        if base - value > least:
            lost.append((base - value, f"{one.label} (up to {words.difference(base - value, metric)}, on {nodes})"))
    parts: list[object] = [f"On one node the {name} is ", strong(words.score(base, metric)), ". "]
    if data.get("unstable"):
        parts.append("Scores differ too much between seeds at this learning rate: accuracies cannot be compared.")
        return paragraph(*parts)
    names = [said for _, said in sorted(lost, reverse=True)]
    if len(names) > NAMED:
        names = [*names[:NAMED], f"{len(names) - NAMED} more"]
    if names:
        parts.append(f"More nodes lose some of it with {', '.join(names)}. ")
    several = [one for one in shown if any(nodes > 1 for nodes, _ in one.points("accuracy"))]
    rest = "The others keep it." if len(lost) < len(several) else ""
    parts.append(rest if names else "No strategy loses any of it.")
    return paragraph(*parts)


def accuracy(data: dict[str, Any], shown: list[Strategy]) -> Section | None:
    known = [one for one in shown if one.points("accuracy")]
    if not known:
        return None
    picture = tag("figure", accuracy_figure(known, data["metric"], goal_of(data)))
    intervals = any(one.points("accuracy_low") for one in known)
    note = "Thin upright lines are intervals: the true value is likely in there. " if intervals else ""
    note += "Strategies stand side by side, so that equal values can be told apart." if len(known) > 1 else ""
    prose = join([accuracy_words(data, known), paragraph(note.strip(), kind="small") if note else None])
    figure = tag("div", picture, class_="read", data_read="accuracy")
    body = tag("div", tag("div", prose), figure, class_="beside lead")
    return Section("accuracy", "What happens to accuracy?", "Accuracy", join([legend(known), body]))


def goal_table(data: dict[str, Any], curves: list[dict[str, Any]], goal: float | None) -> Html:
    """The runs of the figure with their last value and the time to the goal, soonest first."""
    metric = data["metric"]
    found = []
    for curve in curves:
        seconds, last = time_to_goal(data, curve, goal) if goal is not None else None, curve_points(curve)[-1]
        found.append((seconds if seconds is not None else math.inf, curve, last))
    rows = []
    for seconds, curve, (end, value) in sorted(found, key=lambda one: (one[0], one[2][0])):
        until = numbers.duration(end) if goal is None else "never" if seconds == math.inf else numbers.duration(seconds)
        cells = [cell(words.score(value, metric), True), cell(until, True)]
        rows.append(tag("tr", row_head(curve["name"]), *cells))
    head = [column_head("Run"), column_head("at the end", True)]
    head.append(column_head("takes" if goal is None else "to the goal", True))
    return table("The runs of the figure", head, rows, id="runs", class_="text")


def course(data: dict[str, Any], shown: list[Strategy]) -> Section | None:
    curves, goal, metric = shown_curves(data), goal_of(data), data["metric"]
    if not curves:
        return None
    places = {one.key: one.place for one in shown}
    drawn = course_figure(curves, [places[key_of(curve)] for curve in curves], metric, goal)
    name = words.metric_name(metric)
    parts: list[object] = [
        f"The {name} after each epoch, against the time since the start. Higher and further left is better."
    ]
    if len(curves) < len(data["curves"]):
        parts.append(" Of each strategy the soonest run is shown.")
    if goal is not None:
        parts += [" The goal is ", strong(words.score(goal, metric)), "; a ring marks the epoch that reaches it."]
    used = {key_of(curve) for curve in curves}
    names = legend([one for one in shown if one.key in used])
    prose = join([paragraph(*parts), goal_table(data, curves, goal)])
    figure = tag("div", tag("figure", drawn), class_="read", data_read="course")
    heading = "How soon is it accurate?" if metric == "accuracy" else "How soon is it good?"
    body = tag("div", tag("div", prose), figure, class_="beside lead")
    return Section("course", heading, "Over time", join([names, body]))


def notes(data: dict[str, Any]) -> Section | None:
    said = [note for note in data["notes"] if note]
    if not said:
        return None
    return Section("notes", "What else is there to know?", "Notes", tag("ul", *[tag("li", note) for note in said]))
