"""Sections on time, accuracy, accuracy against time, every setting, and notes; and what the sliders say."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from shoal.report.plan.estimate import workers
from shoal.report.plan.figures import accuracy_figure, course_axis, course_figure, legend, speedup_figure, time_figure
from shoal.report.plan.rows import (
    Data,
    Quantity,
    Row,
    StrategyRows,
    all_nodes,
    chosen,
    curve_points,
    goal_of,
    name_of,
    one_node,
    quantities,
    shown_curves,
    soonest_first,
    time_to_goal,
)
from shoal.report.shell import words
from shoal.report.shell.markup import (
    NUMBER,
    TEXT,
    Html,
    Section,
    beside,
    bullets,
    column_head,
    data_table,
    join,
    paragraph,
    strong,
    table,
    tag,
)
from shoal.report.shell.scales import LogAxis, ticks

LOSING_STRATEGIES_NAMED = 4
SLIDER_STOPS = 60
# Tables with more rows scroll in their own box.
LONG_TABLE_ROWS = 30


# ---- speed ----


def nodes_words(data: Data) -> str:
    if data["machine"]["own_machines"]:
        return " Each node is a machine like this one."
    return f" The nodes are {workers(data['machine'])} that share the cores of this machine."


def speed_words(data: Data) -> Html:
    one = one_node(data)["seconds"]
    best = min(data["rows"], key=lambda row: row["seconds"])
    parts: list[object] = ["The time of the whole training against the number of nodes."]
    if best["nodes"] > 1:
        gain = words.times(one / best["seconds"])
        parts += [" Fastest is ", strong(name_of(best)), f": {words.duration(best['seconds'])}, {gain} as one node."]
    else:
        parts += [" No number of nodes is faster than ", strong("one"), f", which takes {words.duration(one)}."]
    return paragraph(*parts, nodes_words(data))


def speed(data: Data, shown: list[StrategyRows]) -> Section:
    figures = [time_figure(shown, one_node(data)["seconds"]), speedup_figure(shown)]
    pair = tag("div", *[tag("figure", figure) for figure in figures], class_="pair")
    marks = "The dotted line is ideal: half the time on twice the nodes. The level line is one node."
    body = [speed_words(data), legend(shown), tag("div", pair, class_="read", data_read="speed")]
    return Section("speed", "How much faster with more nodes?", "Speed", join([*body, paragraph(marks, kind="small")]))


def speed_texts(shown: list[StrategyRows], nodes: int) -> list[str]:
    texts = []
    for row in sorted((row for one in shown if (row := one.row(nodes))), key=lambda row: row["seconds"]):
        gain = f", {words.times(row['speedup'])}" if nodes > 1 else ""
        texts.append(f"{row['label']}: {words.duration(row['seconds'])}{gain}")
    return texts


# ---- accuracy ----


def losses(shown: list[StrategyRows], base: float, metric: str) -> list[str]:
    """The strategies that lose accuracy on several nodes, the largest loss first."""
    least = 0.0005 if words.is_share(metric) else 0.0005 * max(1.0, abs(base))
    lost: list[tuple[float, str]] = []
    for one in shown:
        points = [point for point in one.points("accuracy") if point[0] > 1]
        nodes, value = min(points, key=lambda point: point[1], default=(1, base))
        if base - value > least:
            lost.append((base - value, f"{one.label} (up to {words.difference(base - value, metric)}, on {nodes})"))
    return [said for _, said in sorted(lost, reverse=True)]


def accuracy_words(data: Data, shown: list[StrategyRows]) -> Html:
    """The strategies that lose accuracy, and those that do not."""
    metric = data["metric"]
    name = words.metric_name(metric)
    alone = [row["accuracy"] for row in (one_node(data), *data["rows"]) if row["nodes"] == 1]
    base = next((value for value in alone if words.known(value)), None)
    if base is None:
        return paragraph(f"The {name} to expect against the number of nodes.")
    parts: list[object] = [f"On one node the {name} is ", strong(words.score(base, metric)), ". "]
    if data["unstable"]:
        parts.append("At this learning rate, scores differ too much between seeds to compare strategies.")
        return paragraph(*parts)
    names = losses(shown, base, metric)
    more = len(names) - LOSING_STRATEGIES_NAMED
    listed = [*names[:LOSING_STRATEGIES_NAMED], *([f"{more} more"] if more > 0 else [])]
    several = [one for one in shown if any(nodes > 1 for nodes, _ in one.points("accuracy"))]
    rest = "The others keep it." if len(names) < len(several) else ""
    lost = f"More nodes lose some of it with {', '.join(listed)}. {rest}"
    return paragraph(*parts, lost if names else "No strategy loses any of it.")


def accuracy(data: Data, shown: list[StrategyRows]) -> Section | None:
    known = [one for one in shown if one.points("accuracy")]
    if not known:
        return None
    picture = tag("figure", accuracy_figure(known, data["metric"], goal_of(data)))
    note = []
    if any(one.points("accuracy_low") for one in known):
        note.append("Thin upright lines are intervals that likely contain the true value.")
    if len(known) > 1:
        note.append("Strategies stand side by side, so that equal values can be told apart.")
    prose = join([accuracy_words(data, known), paragraph(" ".join(note), kind="small") if note else None])
    body = beside(prose, tag("div", picture, class_="read", data_read="accuracy"), "beside lead")
    return Section("accuracy", "What happens to accuracy?", "Accuracy", join([legend(known), body]))


def accuracy_texts(shown: list[StrategyRows], nodes: int, metric: str) -> list[str]:
    texts = []
    for one in shown:
        row = one.row(nodes)
        if row and words.known(row["accuracy"]):
            value, low, high = (words.score(row[key], metric) for key in ("accuracy", "accuracy_low", "accuracy_high"))
            texts.append(f"{one.label}: {value}{f' ({low} to {high})' if words.known(row['accuracy_low']) else ''}")
    return texts


# ---- accuracy against time ----


def goal_table(data: Data, curves: list[Row]) -> Html:
    """The runs of the figure with their last value and the time to the goal, soonest first."""
    rows, goal = [], goal_of(data)
    for curve in soonest_first(data, curves):
        (end, value), seconds = curve_points(curve)[-1], time_to_goal(data, curve)
        until = words.duration(end if goal is None else seconds) if goal is None or seconds is not None else "never"
        rows.append([curve["name"], words.score(value, data["metric"]), until])
    heads = [("Run", TEXT), ("at the end", NUMBER), ("takes" if goal is None else "to the goal", NUMBER)]
    return data_table("runs", "The runs of the figure", heads, rows)


def course(data: Data, shown: list[StrategyRows]) -> Section | None:
    curves, goal, metric = shown_curves(data), goal_of(data), data["metric"]
    if not curves:
        return None
    places = {one.key: one.place for one in shown}
    drawn = course_figure(curves, [places[curve["strategy"]] for curve in curves], metric, goal)
    parts: list[object] = [f"The {words.metric_name(metric)} after each epoch, against the time since the start. "]
    parts.append("Higher and further left is better.")
    if len(curves) < len(data["curves"]):
        parts.append(" For each strategy, the figure shows its soonest run.")
    if goal is not None:
        parts += [" The goal is ", strong(words.score(goal, metric)), "; a ring marks the epoch that reaches it."]
    used = {curve["strategy"] for curve in curves}
    prose = join([paragraph(*parts), goal_table(data, curves)])
    figure = tag("div", tag("figure", drawn), class_="read", data_read="course")
    heading = "How soon is it accurate?" if metric == "accuracy" else "How soon is it good?"
    names = legend([one for one in shown if one.key in used])
    return Section("course", heading, "Over time", join([names, beside(prose, figure, "beside lead")]))


# ---- what the sliders say ----


def nodes_reading(data: Data, shown: list[StrategyRows], texts: Callable[[int], list[str]]) -> dict[str, Any]:
    """The slider of figures against nodes; it starts at the nodes of the verdict, else at the most."""
    counts, nodes = all_nodes(shown), data["verdict"]["nodes"]
    first = counts.index(nodes) if nodes in counts and nodes > 1 else len(counts) - 1
    lines = [[words.count(count, "node"), *texts(count)] for count in counts]
    return {"label": "Nodes", "points": [round(math.log2(n), 6) for n in counts], "texts": lines, "first": first}


def course_reading(data: Data, curves: list[Row]) -> dict[str, Any]:
    """What the slider says at round times: the last accuracy that each run has measured by then."""
    across = course_axis(curves)
    if isinstance(across, LogAxis):
        factor = across.high / across.low
        stops = [float(f"{across.low * factor ** (k / SLIDER_STOPS):.3g}") for k in range(1, SLIDER_STOPS + 1)]
    else:
        stops = [stop for stop in ticks(across.low, across.high, SLIDER_STOPS) if stop > 0]
    stops = [stop for stop in stops if across.low <= stop <= across.high]
    texts = []
    for stop in stops:
        said = [f"After {words.duration(stop)}"]
        for curve in curves:
            before = [value for seconds, value in curve_points(curve) if seconds <= stop]
            said.append(f"{curve['name']}: {words.score(before[-1] if before else None, data['metric'])}")
        texts.append(said)
    points = [round(across.on_slider(stop), 6) for stop in stops]
    return {"label": "Time", "points": points, "texts": texts, "first": len(stops) - 1}


def readings(data: Data, shown: list[StrategyRows]) -> dict[str, Any]:
    """The texts of all sliders, by the name of their figures: a heading and a line for each strategy at each stop."""
    found, curves = {}, shown_curves(data)
    known = [one for one in shown if one.points("accuracy")]
    found["speed"] = nodes_reading(data, shown, lambda nodes: speed_texts(shown, nodes))
    if known:
        found["accuracy"] = nodes_reading(data, known, lambda nodes: accuracy_texts(known, nodes, data["metric"]))
    if curves:
        found["course"] = course_reading(data, curves)
    return {name: reading for name, reading in found.items() if len(reading["points"]) > 1}


# ---- every setting ----


def setting_row(row: Row, shown: list[Quantity], notes: bool, place: int, verdict: bool) -> Html:
    label = row["label"]
    named = join([label, tag("span", " verdict", class_="badge")]) if verdict else label
    cells = [tag("th", named, scope="row", data_order=label)]
    for key, _, formatted in shown:
        known = words.known(row[key])
        value, order = (formatted(row[key]), f"{row[key]:.9g}") if known else (words.NOTHING, None)
        cells.append(tag("td", value, class_="number", data_order=order))
    if notes:
        cells.append(tag("td", row["note"], class_="note"))
    return tag("tr", *cells, data_strategy=place, class_="chosen" if verdict else None)


def every_setting(data: Data, shown: list[StrategyRows]) -> Section:
    """The full table, sortable; without columns that no row has a value for."""
    rows, choice = data["rows"], chosen(data)
    places = {one.key: one.place for one in shown}
    kept = [one for one in quantities(data["metric"]) if any(words.known(row[one[0]]) for row in rows)]
    notes = any(row["note"] for row in rows)
    head = [column_head("strategy"), *[column_head(name, numeric=True) for _, name, _ in kept]]
    head += [column_head("note")] if notes else []
    body = [setting_row(row, kept, notes, places[row["strategy"]], row is choice) for row in rows]
    made = table("Every setting of the plan", head, body, id="settings", class_="board sortable")
    text = f"All {words.count(len(rows), 'setting')}." if len(rows) > 1 else "The only setting."
    hint = tag("span", " Click the name of a column to sort by it.", class_="with-script", hidden=True)
    inner = tag("div", made, class_="tall" if len(rows) > LONG_TABLE_ROWS else None)
    return Section("table", "What does every setting cost?", "Table", join([paragraph(text, hint), inner]), wide=True)


def notes(data: Data) -> Section | None:
    said = bullets(data["notes"])
    return Section("notes", "What else is there to know?", "Notes", said) if said else None
