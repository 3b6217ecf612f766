"""Figures as SVG, drawn when the page is written: they need no JavaScript and can be printed.

All are about 380 units wide, so that text stays legible on a phone and on a large screen. Colours are CSS classes; the
style sheet defines them for light mode, dark mode and print.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from shoal.report.shell import words
from shoal.report.shell.markup import EMPTY, Html, join, tag
from shoal.report.shell.scales import Axis

WIDTH = 380
BAR_WIDTH, BAR_HEIGHT = 300, 18
# Shapes of a radius of about 1: disc, square, triangle, diamond and so on, the markers of lines and dots.
MARKER_SHAPES: tuple[tuple[tuple[float, float], ...], ...] = (
    (),
    ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
    ((0, -1.3), (1.25, 0.9), (-1.25, 0.9)),
    ((0, -1.4), (1.4, 0), (0, 1.4), (-1.4, 0)),
    ((0, 1.3), (1.25, -0.9), (-1.25, -0.9)),
    ((-1.4, -0.55), (1.4, -0.55), (1.4, 0.55), (-1.4, 0.55)),
    ((-0.55, -1.4), (0.55, -1.4), (0.55, 1.4), (-0.55, 1.4)),
    ((-1.2, -1.2), (1.2, -1.2), (-1.2, 1.2)),
    ((-0.6, -1.2), (0.6, -1.2), (1.3, 0), (0.6, 1.2), (-0.6, 1.2), (-1.3, 0)),
    ((1.2, 1.2), (-1.2, 1.2), (1.2, -1.2)),
    ((-1.3, -1.1), (1.3, 1.1), (1.3, -1.1), (-1.3, 1.1)),
    ((-0.9, -1.25), (1.3, 0), (-0.9, 1.25)),
    ((0, -1.7), (0.45, -0.45), (1.7, 0), (0.45, 0.45), (0, 1.7), (-0.45, 0.45), (-1.7, 0), (-0.45, -0.45)),
    ((0.9, -1.25), (-1.3, 0), (0.9, 1.25)),
    ((-1.1, -1.3), (1.1, 1.3), (-1.1, 1.3), (1.1, -1.3)),
)


def drawing(
    identity: str,
    title: str,
    description: str,
    height: float,
    *children: object,
    width: float = WIDTH,
    **attributes: Any,
) -> Html:
    """An SVG image with a title and a description for screen readers."""
    return tag(
        "svg",
        tag("title", title, id=f"{identity}-title"),
        tag("desc", description, id=f"{identity}-description"),
        *children,
        viewBox=f"0 0 {width:g} {height:g}",
        role="img",
        id=identity,
        aria_labelledby=f"{identity}-title {identity}-description",
        **attributes,
    )


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Html:
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=kind)


def text(x: float, y: float, value: object, kind: str = "", anchor: str = "start") -> Html:
    return tag("text", value, x=x, y=y, class_=kind or None, text_anchor=anchor if anchor != "start" else None)


def circle(x: float, y: float, radius: float, kind: str) -> Html:
    return tag("circle", cx=x, cy=y, r=round(radius, 1), class_=kind)


def grid(
    across: Axis,
    up: Axis,
    label_across: str,
    label_up: str,
    unit: str = "",
    about: tuple[int, int] = (5, 4),
    unit_up: str | None = None,
) -> Html:
    """Grid lines, tick labels (`about` is their approximate number across and up) and the names of both axes.

    `unit_up`: the unit of the upright axis, where it is another one; no labels across where `about` has 0.
    """
    parts, factor = [], 100 if unit == "%" else 1
    upright = unit if unit_up is None else unit_up
    for y, value in up.marks(about[1], 100 if upright == "%" else 1):
        parts.append(line(across.start, y, across.end, y, "hair"))
        parts.append(text(across.start - 6, y + 4, value + upright, "tick", "end"))
    for x, value in across.marks(about[0], factor) if about[0] else ():
        parts.append(text(x, up.start + 17, value + unit, "tick", "middle"))
    parts.append(line(across.start, up.start, across.end, up.start, "axis"))
    if label_across:
        parts.append(text(across.end, up.start + 33, label_across, "name", "end"))
    if label_up:
        parts.append(text(2, up.end - 12, label_up, "name"))
    return join(parts)


def cursor(across: Axis, up: Axis) -> tuple[Html, str]:
    """The line that the script moves over a figure, and its scale: the range of values, then of positions."""
    hidden = tag("line", x1=0, y1=up.end, x2=0, y2=up.start, class_="cursor", visibility="hidden")
    return (
        hidden,
        f"{across.on_slider(across.low):.7g} {across.on_slider(across.high):.7g} {across.start:g} {across.end:g}",
    )


def path_through(points: Iterable[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in points)


def area(across: Axis, up: Axis, xs: Sequence[float], lows: Sequence[float], highs: Sequence[float]) -> Html:
    """The band between two lines, within the figure."""
    ahead = [(across(x), up(min(y, up.high))) for x, y in zip(xs, highs, strict=True)]
    back = [(across(x), up(max(y, up.low))) for x, y in zip(xs, lows, strict=True)]
    return tag("path", d=path_through([*ahead, *back[::-1]]) + "z", class_="band")


def weight_bar(share: float) -> Html:
    """A bar in a table whose length is a share."""
    bar = tag("rect", x=0, y=0, width=round(max(0.0, min(1.0, share)) * WIDTH, 1), height=10, class_="bar")
    return tag("svg", bar, viewBox=f"0 0 {WIDTH} 10", preserveAspectRatio="none", class_="weight", aria_hidden="true")


def signed_bar(axis: Axis, value: float, low: float, high: float, kind: str) -> Html:
    """A bar in a table from zero to a value, with its interval as a line. The axis spans BAR_WIDTH."""
    zero, end, middle = axis(0.0), axis(value), BAR_HEIGHT / 2
    parts = [
        tag("rect", x=min(zero, end), y=3, width=round(abs(end - zero), 1), height=BAR_HEIGHT - 6, class_=kind),
        line(axis(low), middle, axis(high), middle, "whisker"),
        line(zero, 0, zero, BAR_HEIGHT, "axis"),
    ]
    box = f"0 0 {BAR_WIDTH} {BAR_HEIGHT}"
    return tag("svg", *parts, viewBox=box, preserveAspectRatio="none", class_="importance", aria_hidden="true")


def share_bar(identity: str, title: str, shares: list[tuple[str, float]]) -> Html:
    """A bar divided into shares, each with its own shade and percentage."""
    total = sum(share for _, share in shares) or 1.0
    left, parts = 0.0, []
    for place, (_, share) in enumerate(shares):
        width = WIDTH * share / total
        parts.append(
            tag("rect", x=round(left, 1), y=0, width=round(max(width - 2, 0), 1), height=30, class_=f"part{place}")
        )
        if width > 48:
            parts.append(text(round(left + 9, 1), 20, words.percent(share), f"on-part{place}"))
        left += width
    description = "; ".join(f"{name} {words.percent(share)}" for name, share in shares) + "."
    return drawing(identity, title, description, 30, *parts)


def polyline(across: Axis, up: Axis, xs: Iterable[float], ys: Iterable[float | None], kind: str) -> Html:
    """A line with gaps where values are missing."""
    steps, pen = [], "M"
    for x, y in zip(xs, ys, strict=True):
        if y is None:
            pen = "M"
            continue
        steps.append(f"{pen}{across(x):g} {up(min(y, up.high)):g}")
        pen = "L"
    if len(steps) == 1:
        steps.append("h0.1")
    return tag("path", d="".join(steps), class_=kind) if steps else EMPTY


def usual_ends(values: Iterable[float]) -> list[float]:
    """The lowest and the highest value; where the highest is an outlier, the 95th percentile in its place."""
    ordered = sorted(values)
    low, usual, high = ordered[0], ordered[math.ceil(0.95 * len(ordered)) - 1], ordered[-1]
    return [low, usual if high - low > 2.5 * (usual - low) > 0 else high]


def end_labels(ends: list[tuple[float, float, str, str]]) -> list[Html]:
    """Labels at the ends of lines, given as (y, x, text, kind), moved apart where they would overlap."""
    ends = sorted(ends)
    heights = [end[0] for end in ends]
    if len(ends) == 2 and heights[1] - heights[0] < 15:
        middle = (heights[0] + heights[1]) / 2
        heights = [middle - 7.5, middle + 7.5]
    places = zip(heights, ends, strict=True)
    return [text(x + 7, round(y + 4, 1), label, f"label {kind}-label") for y, (_, x, label, kind) in places]
