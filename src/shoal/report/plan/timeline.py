"""One step as a timeline: what each node computes and what its link carries, at the same time scale."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from shoal.report.shell import words
from shoal.report.shell.markup import NUMBER, TEXT, Html, Section, data_table, details, join, paragraph, strong, tag
from shoal.report.shell.scales import tick_texts, ticks

LANES = ("compute", "link")
NODES_DRAWN = 8
SPANS_LISTED = 200
SHADES = (0, 2, 1, 3, 5, 4, 6)  # hues of the style sheet
LEAST_IDLE = 0.0005  # a smaller share is not mentioned
# A span of at least this share of the step has its name written into it.
LEAST_SHARE_WITH_NAME = 0.09

# Between two averages, local SGD takes several steps: that is a round.
SEVERAL_STEPS = re.compile(r"[\d,]+ steps")

Interval = tuple[float, float]


@dataclass(frozen=True, order=True)
class Span:
    node: int
    lane: str
    start: float
    seconds: float
    name: str

    @property
    def end(self) -> float:
        return self.start + self.seconds


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


def shares(spans: list[Span], seconds: float) -> dict[str, float]:
    """Shares of the time of all nodes: computing, waiting while only the link is busy, and idle."""
    nodes = {span.node for span in spans}
    computing = busy = 0.0
    for node in nodes:
        mine = [(span.lane, (span.start, span.end)) for span in spans if span.node == node]
        computing += length([interval for lane, interval in mine if lane == LANES[0]])
        busy += length([interval for _, interval in mine])
    total = seconds * len(nodes)
    return {
        "computing": computing / total, "waiting": (busy - computing) / total, "idle": max(0.0, 1 - busy / total),
    }  # fmt: skip


def colours(spans: list[Span]) -> dict[str, int]:
    names = list(dict.fromkeys(span.name for span in spans))
    return {name: SHADES[place % len(SHADES)] for place, name in enumerate(names)}


def bar(span: Span, seconds: float, colour: int) -> Html:
    """One span as a bar with its name; the script shows its length."""
    left, width = 100 * span.start / seconds, 100 * span.seconds / seconds
    said = f"{span.name}: {words.moment(span.seconds)}"
    return tag(
        "span",
        span.name if span.seconds >= LEAST_SHARE_WITH_NAME * seconds else "",
        class_=f"span hue{colour}",
        style=f"left:{left:.3f}%;width:{width:.3f}%",
        data_said=f"Node {span.node}, {span.lane}: {said}, from {words.moment(span.start)}",
    )


def lanes(spans: list[Span], seconds: float) -> Html:
    shade, rows = colours(spans), []
    for node in sorted({span.node for span in spans})[:NODES_DRAWN]:
        inner = []
        for lane in LANES:
            bars = [bar(span, seconds, shade[span.name]) for span in spans if (span.node, span.lane) == (node, lane)]
            track = tag("div", *bars, class_="track")
            inner.append(tag("div", tag("span", lane, class_="lane-name"), track, class_="lane"))
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


def names_legend(spans: list[Span]) -> Html:
    """The colours of the names, with their share of a node's step on average."""
    shade, nodes = colours(spans), len({span.node for span in spans})
    items = []
    for name, colour in list(shade.items())[: 2 * len(SHADES)]:
        spent = sum(span.seconds for span in spans if span.name == name) / nodes
        mark = tag("span", class_=f"swatch hue{colour}", aria_hidden="true")
        items.append(tag("li", mark, f"{name}: {words.moment(spent)}"))
    return tag("ul", *items, class_="legend")


def spans_table(spans: list[Span]) -> Html:
    heads = [("Node", NUMBER), ("Lane", TEXT), ("Part", TEXT), ("Start", NUMBER), ("Time", NUMBER)]
    rows = [
        [span.node, span.lane, span.name, words.moment(span.start), words.moment(span.seconds)]
        for span in spans[:SPANS_LISTED]
    ]
    rest = f"; {SPANS_LISTED} of {words.count(len(spans))}" if len(spans) > SPANS_LISTED else ""
    return details("As a table", data_table("spans", f"The parts of a step{rest}", heads, rows, class_="log"))


def intro(found: dict[str, Any], spans: list[Span], parts: dict[str, float]) -> Html:
    step = "round" if any(SEVERAL_STEPS.fullmatch(span.name) for span in spans) else "step"
    computing, waiting, idle = parts["computing"], parts["waiting"], parts["idle"]
    return paragraph(
        f"One {step} of {found['label']} on {words.count(found['nodes'], 'node')} takes ",
        strong(words.moment(found["seconds"])),
        f". The nodes compute in {words.percent(computing)} of that time and wait for the link in ",
        f"{words.percent(waiting)}{f'; {words.percent(idle)} is idle' if idle >= LEAST_IDLE else ''}. ",
        "Sending while a node computes costs no time.",
    )


def section(found: dict[str, Any]) -> Section | None:
    """`found`: a strategy on some nodes, the spans of one of its steps, and the seconds of the step."""
    spans, seconds = sorted(Span(**span) for span in found["spans"]), found["seconds"]
    if not spans:
        return None
    nodes = len({span.node for span in spans})
    rest = f" {words.count(nodes - NODES_DRAWN, 'more node')} not drawn." if nodes > NODES_DRAWN else ""
    help_text = f"Point at a part to see its name and time. Keyboard: arrow keys move between parts and lanes.{rest}"
    title = f"One step of {words.count(nodes, 'node')}, {words.moment(seconds)} from left to right. "
    said = title + "The table below has its parts."
    drawn = tag("div", lanes(spans, seconds), class_="timeline", role="img", aria_label=said)
    picture = tag(
        "figure",
        names_legend(spans),
        drawn,
        tag("p", help_text, class_="help", id="timeline-help"),
        class_="lanes",
    )
    body = join([intro(found, spans, shares(spans, seconds)), picture, spans_table(spans)])
    return Section("step", "Where does a step spend its time?", "A step", body)
