"""Figures as SVG, drawn when the page is written: they need no JavaScript and can be printed.

All are about 380 units wide, so that text stays legible on a phone and on a large screen. Colours are CSS classes; the
style sheet defines them for light mode, dark mode and print.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from shoal.report.shell import words
from shoal.report.shell.markup import EMPTY, Html, join, tag
from shoal.report.shell.scales import Axis, padded

WIDTH = 380


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
    """The line that the script moves over a figure, and the scale it needs: the range of values, then of positions."""
    hidden = tag("line", x1=0, y1=up.end, x2=0, y2=up.start, class_="cursor", visibility="hidden")
    return hidden, f"{across.low:g} {across.high:g} {across.start:g} {across.end:g}"


def score_figure(score: dict[str, Any]) -> Html:
    """The scores of guessing, as measured and to expect, one below the other on the same scale."""
    metric = score["metric"]
    names = {"chance": "guessing", "raw": "as measured", "corrected": "to expect"}
    rows = [(key, name) for key, name in names.items() if words.known(score.get(key))]
    values = [score[key] for key in ("chance", "raw", "corrected", "low", "high") if words.known(score.get(key))]
    if len(values) < 2:
        return EMPTY
    axis = Axis(*padded(values, 0.08), 102, 322)
    bottom = 34 * len(rows) + 4
    parts = [line(x, 2, x, bottom, "hair") for x, _ in axis.marks(3)]
    marks = axis.marks(3, 100) if words.is_share(metric) else axis.marks(3)
    unit = "%" if words.is_share(metric) else ""
    parts += [text(x, bottom + 16, label + unit, "tick", "middle") for x, label in marks]
    for place, (key, name) in enumerate(rows):
        y, x = 34 * place + 20, axis(score[key])
        strong = " strong" if key == "corrected" else ""
        parts.append(text(0, y + 4.5, name, f"row{strong}"))
        parts.append(text(WIDTH, y + 4.5, words.score(score[key], metric), f"row{strong}", "end"))
        if key == "corrected" and words.known(score.get("low")) and words.known(score.get("high")):
            parts.append(line(axis(score["low"]), y, axis(score["high"]), y, "interval"))
        # The expected score is a stroke, not a disc, which would hide a narrow interval.
        diamond = tag("path", d=f"M{x} {y - 6}l6 6l-6 6l-6 -6z", class_="chance")
        shapes = {"chance": diamond, "raw": circle(x, y, 5.5, "open")}
        parts.append(shapes.get(key) or line(x, y - 11, x, y + 11, "expected"))
    description = "; ".join(f"{name} {words.score(score[key], metric)}" for key, name in rows)
    if words.known(score.get("low")) and words.known(score.get("high")):
        description += f", likely between {words.score(score['low'], metric)} and {words.score(score['high'], metric)}"
    title = f"The {words.metric_name(metric)} to expect, beside the measured one and guessing"
    return drawing("score-figure", title, description + ".", bottom + 22, *parts)


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


def curve_range(curves: list[dict[str, Any]]) -> tuple[float, float] | None:
    """The same range for all curves, so that they can be compared; outliers are cut off, see `usual_ends`."""
    values = [v for curve in curves for name in ("train", "valid") for v in curve[name] if v is not None]
    return padded(usual_ends(values)) if values else None


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


def curve_figure(place: int, curve: dict[str, Any], limits: tuple[float, float]) -> Html:
    """Training loss and loss on held-out rows, by epoch."""
    epochs = curve["epochs"]
    height = 250
    across = Axis(epochs[0], max(epochs[-1], epochs[0] + 1), 46, 306)
    up = Axis(*limits, height - 40, 26)
    parts = [grid(across, up, "epochs", "loss")]
    ends = []
    for name, label in (("train", "training"), ("valid", "held out")):
        parts.append(polyline(across, up, epochs, curve[name], name))
        shown = [(x, y) for x, y in zip(epochs, curve[name], strict=True) if y is not None]
        if shown:
            ends.append((up(min(shown[-1][1], up.high)), across(shown[-1][0]), label, name))
    parts += end_labels(ends)
    valid = [(y, x) for x, y in zip(epochs, curve["valid"], strict=True) if y is not None]
    description = words.count(epochs[-1], "epoch")
    if valid:
        loss, epoch = min(valid)
        parts.append(circle(across(epoch), up(loss), 4, "dot"))
        description += f"; the loss on held-out rows is lowest, {words.significant(loss)}, at epoch {epoch}"
    hidden, plot = cursor(across, up)
    title = f"Learning curve of the {curve['label']} recipe"
    return drawing(f"curve-{place}", title, description + ".", height, *parts, hidden, data_plot=plot)


def calibration_figure(bins: list[dict[str, Any]]) -> Html:
    """Observed frequency against predicted probability; perfect calibration is the diagonal."""
    across, up = Axis(0, 1, 46, 346), Axis(0, 1, 300, 26)
    parts = [grid(across, up, "predicted probability", "observed frequency", "%")]
    parts.append(line(across(0), up(0), across(1), up(1), "ideal"))
    largest = max(part["count"] or 1 for part in bins)
    points = [(part["predicted"], part["observed"], part["count"] or 1) for part in bins]
    parts.append(polyline(across, up, [p for p, _, _ in points], [o for _, o, _ in points], "link"))
    parts += [circle(across(p), up(o), 3 + 7 * math.sqrt(n / largest), "bubble") for p, o, n in points]
    description = "; ".join(f"predicted {words.percent(p)}, observed {words.percent(o)}" for p, o, _ in points)
    title = "Observed frequency against predicted probability"
    return drawing("calibration-figure", title, description + ".", 340, *parts)


def residual_figure(true: list[float], predicted: list[float], target: str) -> Html:
    """Every held-out row as a dot: predicted value against true value."""
    limits = padded([*true, *predicted], 0.03)
    across, up = Axis(*limits, 62, 366), Axis(*limits, 300, 26)
    dots = "".join(f"M{across(x):g} {up(y):g}h0" for x, y in zip(true, predicted, strict=True))
    parts = [
        grid(across, up, "true value", "predicted"),
        line(across.start, up.start, across.end, up.end, "ideal"),
    ]
    parts.append(tag("path", d=dots, class_="dots"))
    description = f"{words.count(len(true), 'held-out row')}. The closer to the diagonal, the better the prediction."
    return drawing("residual-figure", f"Predicted against true {target}", description, 340, *parts)
