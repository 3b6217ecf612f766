"""Figures of a fine-tuning run: loss before and after, loss by step, and a small figure per other logged value."""

from __future__ import annotations

from shoal.report.finetune.log import CurveGroup, Series
from shoal.report.shell import words
from shoal.report.shell.figures import (
    WIDTH,
    circle,
    cursor,
    drawing,
    end_labels,
    grid,
    line,
    path_through,
    polyline,
    text,
    usual_ends,
)
from shoal.report.shell.markup import EMPTY, Html, join, tag
from shoal.report.shell.scales import Axis, padded, tick_texts, ticks

SMALL = 240
# Up to so many evaluations are drawn as dots.
DOTTED = 30


def before_after(before: float, after: float) -> Html:
    """Two bars from zero: the loss before and after training."""
    largest = max(before, after) or 1.0
    parts = []
    for place, (name, value) in enumerate((("before", before), ("after", after))):
        y, strong = 40 * place, " strong" if name == "after" else ""
        parts.append(text(0, y + 21, name, f"row{strong}"))
        width = round(250 * value / largest, 1)
        parts.append(tag("rect", x=62, y=y + 4, width=width, height=24, class_="bar" if strong else "before"))
        parts.append(text(WIDTH, y + 21, words.significant(value), f"row{strong}", "end"))
    description = f"Before training {words.significant(before)}, after {words.significant(after)}; lower is better."
    return drawing("before-after", "Evaluation loss before and after training", description, 72, *parts)


def steps_axis(first: int, last: int, start: float, end: float) -> Axis:
    """An axis of at least five steps, so that a short run gets whole numbers."""
    return Axis(first, max(last, first + 5), start, end)


def band(across: Axis, up: Axis, groups: list[CurveGroup]) -> Html:
    """The area between lowest and highest value where a point stands for several; it has the gaps of the line."""
    if all(group.low == group.high for group in groups):
        return EMPTY
    runs: list[list[tuple[float, float, float]]] = [[]]
    for group in groups:
        if group.low is None or group.high is None:
            runs.append([])
            continue
        runs[-1].append((across(group.step), up(min(group.low, up.high)), up(min(group.high, up.high))))
    outline = ""
    for run in runs:
        there, back = [(x, high) for x, _, high in run], [(x, low) for x, low, _ in reversed(run)]
        outline += f"{path_through([*there, *back])}z" if run else ""
    return tag("path", d=outline, class_="band")


def curve(across: Axis, up: Axis, series: Series, kind: str) -> Html:
    groups = series.drawn
    parts = [band(across, up, groups)]
    parts.append(polyline(across, up, [group.step for group in groups], [group.mean for group in groups], kind))
    known = series.known
    if series.key.startswith("eval_") and len(known) <= DOTTED:
        dots = "".join(f"M{across(step):g} {up(min(value, up.high)):g}h0" for step, value in known)
        parts.append(tag("path", d=dots, class_="measured"))
    return join(parts)


def highs(series: Series) -> list[float]:
    return [group.high for group in series.drawn if group.high is not None]


def loss_range(losses: list[Series]) -> tuple[float, float]:
    """A range that shows all evaluation losses in full and cuts off outliers of the training loss."""
    values: list[float] = []
    for series in losses:
        known = [value for _, value in series.known]
        values += [min(known), max(known)] if series.key == "eval_loss" else [min(known), *usual_ends(highs(series))]
    return padded(values)


def describe_losses(losses: list[Series]) -> str:
    parts = []
    for series in losses:
        (first, start), (last, end) = series.known[0], series.known[-1]
        parts.append(
            f"{series.label} {words.significant(start)} at step {words.count(first)}, "
            f"{words.significant(end)} at step {words.count(last)}"
        )
    return "; ".join(parts) + "."


def loss_figure(losses: list[Series], ends: tuple[int, int], resumed: list[int]) -> Html:
    """Training loss dotted, evaluation loss solid, a dot at its lowest, and a thin line at each resumed step."""
    height = 230
    across, up = steps_axis(*ends, 46, 306), Axis(*loss_range(losses), 190, 26)
    parts = [grid(across, up, "step", "loss")]
    parts += [line(across(step), up.end, across(step), up.start, "resumed") for step in resumed]
    labels = []
    for series in losses:
        kind, label = ("valid", "evaluation") if series.key == "eval_loss" else ("train", "training")
        parts.append(curve(across, up, series, kind))
        shown = [group for group in series.drawn if group.mean is not None]
        labels.append((up(min(shown[-1].mean or 0.0, up.high)), across(shown[-1].step), label, kind))
    parts += end_labels(labels)
    evaluated = [series for series in losses if series.key == "eval_loss"]
    if evaluated and len(evaluated[0].known) > 1:
        step, value = min(evaluated[0].known, key=lambda pair: pair[1])
        parts.append(circle(across(step), up(value), 4.5, "dot"))
    hidden, plot = cursor(across, up)
    title = "Training and evaluation loss against step"
    return drawing("loss-figure", title, describe_losses(losses), height, *parts, hidden, data_plot=plot)


def small_figure(series: Series, ends: tuple[int, int]) -> Html:
    """One logged value by step. The axis starts at zero, so that small noise looks small."""
    known = series.known
    low = min(0.0, *(group.low for group in series.drawn if group.low is not None))
    high = usual_ends([low, *highs(series)])[1]
    high = high + 0.08 * (high - low) if high > low else low + 1.0
    margin = 10 + 6.3 * max(len(label) for label in tick_texts(ticks(low, high, 4)))
    across, up = steps_axis(*ends, margin, SMALL - 20), Axis(low, high, 104, 8)
    parts = [grid(across, up, "", "", about=(3, 4)), curve(across, up, series, "plain")]
    hidden, plot = cursor(across, up)
    (at_lowest, lowest), (at_highest, highest) = min(known, key=lambda k: k[1]), max(known, key=lambda k: k[1])
    description = (
        f"Lowest {words.significant(lowest)}{series.unit} at step {words.count(at_lowest)}, "
        f"highest {words.significant(highest)}{series.unit} at step {words.count(at_highest)}, "
        f"{words.significant(known[-1][1])}{series.unit} at the end."
    )
    title = f"{series.label.capitalize()} against step"
    identity = f"figure-{series.key.replace('_', '-')}"
    return drawing(identity, title, description, 128, *parts, hidden, width=SMALL, data_plot=plot)
