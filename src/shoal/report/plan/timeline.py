"""One step as a timeline: what each node computes and what its link carries, at the same time scale."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from shoal.report.plan import numbers
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
from shoal.report.shell.scales import tick_texts, ticks

LANES = ("compute", "link")
NODES_DRAWN = 8
ROWS = 200
COLOURS = 7
# A span gets its name written into it if it is at least this share of the step.
LABELLED = 0.09

# Between two averages, local SGD takes several steps: that is a round.
SEVERAL_STEPS = re.compile(r"[\d,]+ steps")

Interval = tuple[float, float]


@dataclass(frozen=True)
class Span:
    node: int
    lane: str
    name: str
    start: float
    seconds: float

    @property
    def end(self) -> float:
        return self.start + self.seconds


def spans_of(found: dict[str, Any]) -> list[Span]:
    """Spans with a known node, start and length, by node, lane and time."""
    spans = []
    for span in found.get("spans") or []:
        numbers_known = all(words.known(span.get(key)) and span[key] >= 0 for key in ("node", "start", "seconds"))
        if numbers_known:
            lane, name = str(span.get("lane") or LANES[0]), str(span.get("name") or span.get("lane") or "")
            spans.append(Span(int(span["node"]), lane, name, span["start"], span["seconds"]))
    lanes = {lane: place for place, lane in enumerate(LANES)}
    return sorted(spans, key=lambda span: (span.node, lanes.get(span.lane, 9), span.lane, span.start))


def union(intervals: list[Interval]) -> list[Interval]:
    """
    >>> union([(3, 4), (0, 2), (1, 2.5)])
    [(0, 2.5), (3, 4)]
    """
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def length(intervals: list[Interval]) -> float:
    return sum(end - start for start, end in union(intervals))


def shares(spans: list[Span], seconds: float) -> list[tuple[str, float]]:
    """Shares of the time of all nodes: computing, waiting while only the link is busy, and neither."""
    nodes = {span.node for span in spans}
    computing = busy = 0.0
    for node in nodes:
        compute = [(span.start, span.end) for span in spans if span.node == node and span.lane == LANES[0]]
        every = [(span.start, span.end) for span in spans if span.node == node]
        computing += length(compute)
        busy += length(every)
    total = seconds * len(nodes)
    found = [
        ("computing", computing / total),
        ("waiting for the link", (busy - computing) / total),
        ("idle", max(0.0, 1 - busy / total)),
    ]
    return [(name, share) for name, share in found if name != "idle" or share >= 0.0005]


def colours(spans: list[Span]) -> dict[str, int]:
    names = list(dict.fromkeys(span.name for span in spans))
    return {name: place % COLOURS for place, name in enumerate(names)}


def bar(span: Span, seconds: float, colour: int) -> Html:
    """One span as a bar with its name; the script shows its length."""
    left, width = 100 * span.start / seconds, 100 * span.seconds / seconds
    said = f"{span.name}: {numbers.moment(span.seconds)}"
    return tag(
        "span",
        span.name if span.seconds >= LABELLED * seconds else "",
        class_=f"span shade{colour}",
        style=f"left:{left:.3f}%;width:{width:.3f}%",
        data_said=f"Node {span.node}, {span.lane}: {said}, from {numbers.moment(span.start)}",
    )


def lanes(spans: list[Span], seconds: float) -> Html:
    shade = colours(spans)
    rows = []
    drawn = sorted({span.node for span in spans})[:NODES_DRAWN]
    for node in drawn:
        names = dict.fromkeys([*LANES, *(span.lane for span in spans)])
        inner = []
        for lane in names:
            bars = [bar(span, seconds, shade[span.name]) for span in spans if (span.node, span.lane) == (node, lane)]
            inner.append(
                tag("div", tag("span", lane, class_="lane-name"), tag("div", *bars, class_="track"), class_="lane")
            )
        rows.append(tag("div", tag("div", f"node {node}", class_="node-name"), tag("div", *inner), class_="node-lanes"))
    return join([*rows, scale(seconds)])


def scale(seconds: float) -> Html:
    """Tick labels below the lanes."""
    unit, size = ("s", 1.0) if seconds >= 1 else ("ms", 1e-3) if seconds >= 1e-3 else ("µs", 1e-6)
    values = [value for value in ticks(0.0, seconds / size, 4) if value <= 0.97 * seconds / size]
    marks = [
        tag("span", f"{label} {unit}", style=f"left:{100 * value * size / seconds:.3f}%")
        for value, label in zip(values, tick_texts(values), strict=True)
    ]
    return tag("div", *marks, class_="time-scale", aria_hidden="true")


def names_legend(spans: list[Span], seconds: float) -> Html:
    """The colours of the names, with their share of a node's step on average."""
    shade, nodes = colours(spans), len({span.node for span in spans})
    items = []
    for name, colour in list(shade.items())[: 2 * COLOURS]:
        spent = sum(span.seconds for span in spans if span.name == name) / nodes
        mark = tag("span", class_=f"swatch shade{colour}", aria_hidden="true")
        items.append(tag("li", mark, f"{name}: {numbers.moment(spent)}"))
    return tag("ul", *items, class_="legend")


def spans_table(spans: list[Span]) -> Html:
    head = [column_head("Node", True), column_head("Lane"), column_head("Part")]
    head += [column_head("Start", True), column_head("Time", True)]
    rows = [
        tag(
            "tr",
            row_head(span.node, True),
            cell(span.lane),
            cell(span.name),
            cell(numbers.moment(span.start), True),
            cell(numbers.moment(span.seconds), True),
        )
        for span in spans[:ROWS]
    ]
    caption = "The parts of a step" + (f"; {ROWS} of {words.count(len(spans))}" if len(spans) > ROWS else "")
    inner = table(caption, head, rows, id="spans", class_="log")
    return tag("details", tag("summary", "The parts of a step, as a table"), inner)


def intro(found: dict[str, Any], spans: list[Span], seconds: float, parts: list[tuple[str, float]]) -> Html:
    label, nodes = found.get("label") or found.get("strategy"), found.get("nodes")
    step = "round" if any(SEVERAL_STEPS.fullmatch(span.name) for span in spans) else "step"
    what = f"One {step} of {label}" if label else f"One {step}"
    where = f" on {numbers.nodes(nodes)}" if words.known(nodes) else ""
    waiting = dict(parts).get("waiting for the link", 0.0)
    idle = f"; {words.percent(dict(parts)['idle'])} is idle" if "idle" in dict(parts) else ""
    return paragraph(
        f"{what}{where} takes ",
        strong(numbers.moment(seconds)),
        f". The nodes compute in {words.percent(parts[0][1])} of that time and wait for the link in ",
        f"{words.percent(waiting)}{idle}. What is sent while a node computes costs no time.",
    )


def section(data: dict[str, Any]) -> Section | None:
    found = data["timeline"]
    spans = spans_of(found)
    if not spans:
        return None
    last = max(span.end for span in spans)
    seconds = max(last, found["seconds"]) if words.known(found.get("seconds")) else last
    if seconds <= 0:
        return None
    parts = shares(spans, seconds)
    nodes = len({span.node for span in spans})
    rest = f" {words.count(nodes - NODES_DRAWN, 'more node')} not drawn." if nodes > NODES_DRAWN else ""
    help_text = f"Point at a part to see its name and time. Keyboard: arrow keys move between parts and lanes.{rest}"
    title = f"One step of {words.count(nodes, 'node')}, {numbers.moment(seconds)} from left to right. "
    picture = tag(
        "figure",
        names_legend(spans, seconds),
        tag(
            "div",
            lanes(spans, seconds),
            class_="timeline",
            role="img",
            aria_label=title + "The table below has its parts.",
        ),
        tag("p", help_text, class_="help", id="timeline-help"),
        class_="lanes",
    )
    body = join([intro(found, spans, seconds, parts), picture, spans_table(spans)])
    return Section("step", "Where does a step spend its time?", "A step", body)
