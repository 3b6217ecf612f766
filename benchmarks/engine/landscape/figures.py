"""Figures of a landscape: the map, the histogram, ribbons of quantiles, the worth of picking."""

from __future__ import annotations

from typing import Any

from benchmarks.engine.landscape.tints import Tints
from shoal.report.shell import words
from shoal.report.shell.figures import WIDTH, drawing, end_labels, line, polyline, text
from shoal.report.shell.markup import Html, join, tag
from shoal.report.shell.scales import Axis, LogAxis, padded

MAP_WIDTH, MAP_HEIGHT = 176.0, 106.0  # of all cells of a map, in units of its figure
MAP_LEFT, MAP_TOP = 44.0, 2.0
LEFT, RIGHT, TOP, BOTTOM = 46.0, 366.0, 26.0, 190.0


def shown_labels(values: list[Any], most: int) -> list[int]:
    """Places of the values that are named on an axis: the first, and every n-th after it.

    >>> shown_labels([1, 2, 3, 4, 6, 8, 12], 4)
    [0, 2, 4, 6]
    """
    step = max(1, -(-(len(values) - 1) // max(most - 1, 1)))
    return list(range(0, len(values), step))


def map_figure(
    place: int, name: str, cells: list[dict[str, Any]], first: int, data: dict[str, Any], tints: Tints
) -> Html:
    """Mean accuracies of one activation: widths across, learning rates up. `first` is the number of the first cell."""
    widths, rates = data["widths"], data["rates"]
    across, up, bottom = MAP_WIDTH / len(widths), MAP_HEIGHT / len(rates), MAP_TOP + MAP_HEIGHT
    parts = []
    for k, cell in enumerate(cells):
        x, y = MAP_LEFT + across * (k // len(rates)), bottom - up * (k % len(rates) + 1)
        kind = f"tint t{tints.level(cell['mean'])}"
        parts.append(
            tag(
                "rect",
                x=round(x, 2),
                y=round(y, 2),
                width=round(across, 2),
                height=round(up, 2),
                class_=kind,
                data_cell=first + k,
            )
        )
    for k in shown_labels(rates, 4):
        parts.append(text(MAP_LEFT - 5, round(bottom - up * (k + 0.5) + 4, 1), f"{rates[k]:g}", "tick", "end"))
    for k in shown_labels(widths, 5):
        parts.append(text(round(MAP_LEFT + across * (k + 0.5), 1), bottom + 14, widths[k], "tick", "middle"))
    best = max(cells, key=lambda cell: cell["mean"])
    said = f"best {words.percent(best['mean'], 1)} with {words.count(best['width'], 'neuron')} at {best['rate']:g}"
    lowest = words.percent(min(cell["mean"] for cell in cells), 1)
    description = f"Mean accuracy by width and learning rate: {said}, lowest {lowest}."
    return drawing(f"map-{place}", f"Map of {name}", description, bottom + 20, *parts, width=MAP_LEFT + MAP_WIDTH + 2)


def share_marks(axis: Axis, about: int = 4) -> list[tuple[float, str]]:
    return [(position, f"{label}%") for position, label in axis.marks(about, 100)]


def frame(up: Axis, across: list[tuple[float, str]], name: str) -> Html:
    """Level lines with percentages, labels below, the name of what is across."""
    parts = []
    for y, label in share_marks(up, 5):
        parts += [line(LEFT, y, RIGHT, y, "hair"), text(LEFT - 6, y + 4, label, "tick", "end")]
    parts += [text(x, BOTTOM + 17, label, "tick", "middle") for x, label in across]
    parts += [line(LEFT, BOTTOM, RIGHT, BOTTOM, "axis"), text(RIGHT, BOTTOM + 34, name, "name", "end")]
    return join(parts)


def histogram_figure(data: dict[str, Any]) -> Html:
    """How many networks have which accuracy, with guessing, the median and the best."""
    edges, counts = data["histogram"]["edges"], data["histogram"]["counts"]
    guessing = data["table"]["guessing"]
    axis = Axis(*padded([edges[0], edges[-1], guessing], 0.03), 10, 370)
    most, top, bottom = max(counts) or 1, 44.0, 190.0
    bars = []
    for k, count in enumerate(counts):
        left, right = axis(edges[k]), axis(edges[k + 1])
        height = (bottom - top) * count / most
        if count:
            bars.append(tag("rect", x=left, y=round(bottom - height, 1), width=round(max(right - left - 0.8, 0.6), 1),
                            height=round(max(height, 0.7), 1), class_="bar"))  # fmt: skip
    marks = [("guessing", guessing, 36.0, "start"), ("median", data["median_picking"], 36.0, "end"),
             ("best", data["best"]["picked"], 22.0, "end")]  # fmt: skip
    for name, value, y, anchor in marks:
        x = axis(value)
        label = f"{name} {words.percent(value, 1)}"
        bars.append(line(x, y + 4, x, bottom, "marker"))
        bars.append(text(min(max(x + (4 if anchor == "start" else -4), 2), 378), y + 2, label, "name", anchor))
    ticks = [text(x, bottom + 17, label, "tick", "middle") for x, label in share_marks(axis, 5)]
    parts = [*bars, line(10, bottom, 370, bottom, "axis"), *ticks, text(370, bottom + 34, "accuracy", "name", "end")]
    description = "; ".join(f"{name} {words.percent(value, 1)}" for name, value, _, _ in marks) + "."
    title = f"How many of {words.count(data['networks'], 'network')} have which accuracy"
    return drawing("histogram-figure", title, description, 230, *parts)


def ribbon_figure(identity: str, name: str, values: list[float], quantiles: list[list[float]]) -> Html:
    """The middle half and nine tenths of the networks, and their median, against a choice that is a number."""
    up = Axis(*padded([value for row in quantiles for value in row], 0.03), BOTTOM, TOP)
    low, high = (values[0], values[-1]) if len(values) > 1 else (values[0] / 2, values[0] * 2)
    across = LogAxis(low, high, LEFT + 8, RIGHT - 8)
    xs = [across(value) for value in values]

    def band(below: int, above: int, kind: str) -> Html:
        there = [f"{x:g} {up(row[above]):g}" for x, row in zip(xs, quantiles, strict=True)]
        back = [f"{x:g} {up(row[below]):g}" for x, row in zip(xs, quantiles, strict=True)][::-1]
        return tag("path", d="M" + "L".join([*there, *back]) + "z", class_=kind)

    labels = [(xs[k], f"{values[k]:g}") for k in shown_labels(values, 6)]
    parts = [frame(up, labels, f"{name}, logarithmic"), band(0, 4, "band outer"), band(1, 3, "band inner")]
    parts.append(polyline(across, up, values, [row[2] for row in quantiles], "valid"))
    parts += [tag("circle", cx=x, cy=up(row[2]), r=3, class_="dot") for x, row in zip(xs, quantiles, strict=True)]
    best = max(range(len(values)), key=lambda k: quantiles[k][2])
    description = f"The median is highest, {words.percent(quantiles[best][2], 1)}, at {values[best]:g}."
    return drawing(identity, f"Accuracy against {name}", description, 232, *parts)


def activation_figure(names: list[str], quantiles: list[list[float]]) -> Html:
    """One line for each activation, the best median first: nine tenths of its networks, the middle half, the median."""
    order = sorted(range(len(names)), key=lambda k: -quantiles[k][2])
    axis = Axis(*padded([value for row in quantiles for value in row], 0.03), 92, 366)
    step, top = 20.0, 8.0
    bottom = top + step * len(names)
    marks = share_marks(axis, 5)
    parts = [line(x, top, x, bottom, "hair") for x, _ in marks]
    for place, k in enumerate(order):
        y, row = top + step * (place + 0.5), quantiles[k]
        parts.append(text(84, y + 4, names[k], "row", "end"))
        parts.append(line(axis(row[0]), y, axis(row[4]), y, "whole-range"))
        parts.append(line(axis(row[1]), y, axis(row[3]), y, "half-range"))
        parts.append(tag("circle", cx=axis(row[2]), cy=y, r=3.5, class_="dot"))
    parts += [text(x, bottom + 16, label, "tick", "middle") for x, label in marks]
    parts.append(line(92, bottom, 366, bottom, "axis"))
    description = "Medians: " + "; ".join(f"{names[k]} {words.percent(quantiles[k][2], 1)}" for k in order) + "."
    return drawing("by-activation", "Accuracy by activation", description, bottom + 24, *parts)


def picking_figure(more: list[dict[str, Any]]) -> Html:
    """The best of k networks: where it was picked, and on fresh rows. Few networks would flatten all the rest."""
    many = [one for one in more if one["networks"] >= 10]
    more = many if len(many) > 2 else more
    counts = [one["networks"] for one in more]
    across = LogAxis(counts[0], max(counts[-1], 2 * counts[0]), LEFT + 4, 272)
    up = Axis(*padded([one[key] for one in more for key in ("picked", "fresh")]), BOTTOM, TOP)
    marks = [(x, label) for x, label in across.marks(4)]
    lines, ends = [], []
    for key, label, kind in (("picked", "where picked", "train"), ("fresh", "fresh rows", "valid")):
        values = [one[key] for one in more]
        lines.append(polyline(across, up, counts, values, kind))
        ends.append((up(values[-1]), across(counts[-1]), label, kind))
    first, last = more[0], more[-1]
    description = (
        f"The best of {words.count(first['networks'])}: {words.percent(first['picked'], 1)} where picked, "
        f"{words.percent(first['fresh'], 1)} on fresh rows; the best of "
        f"{words.count(last['networks'])}: {words.percent(last['picked'], 1)} and {words.percent(last['fresh'], 1)}."
    )
    parts = [frame(up, marks, "networks to pick from"), *lines, *end_labels(ends)]
    return drawing("picking-figure", "Accuracy of the best of many", description, 232, *parts, width=WIDTH)
