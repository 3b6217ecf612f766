"""The critical batch: how far a batch can grow before it wastes rows."""

from __future__ import annotations

from typing import Any

from shoal.report.shell import words
from shoal.report.shell.figures import drawing, end_labels, grid, line, polyline, text
from shoal.report.shell.markup import EMPTY, Html, Section, join, paragraph, strong, tag, terms
from shoal.report.shell.scales import LogAxis

# The figure shows batches up to so many times smaller and larger than the critical one.
AROUND = 32.0


def critical(noise: dict[str, Any]) -> float | None:
    found = [noise.get("critical_batch"), noise.get("noise_scale")]
    return next((value for value in found if words.known(value) and value > 0), None)


def trade_figure(size: float, batch: float | None, low: float | None, high: float | None) -> Html:
    """Steps and rows to the same loss, as multiples of the least, against the batch size."""
    limits = (min(size / AROUND, (batch or size) / 1.5), max(size * AROUND, (batch or size) * 1.5))
    across = LogAxis(*limits, 40, 312)
    sizes = [limits[0] * (limits[1] / limits[0]) ** (place / 80) for place in range(81)]
    up = LogAxis(0.9, 1.1 * (1 + AROUND), 210, 30)
    parts = [grid(across, up, "batch size", "times the least, logarithmic")]
    if words.known(low) and words.known(high) and 0 < low <= high:
        left, right = across(max(low, limits[0])), across(min(high, limits[1]))
        parts.append(
            tag("rect", x=left, y=up.end, width=round(right - left, 1), height=up.start - up.end, class_="range")
        )
    parts.append(line(across(size), up.end, across(size), up.start, "level"))
    ends = []
    for kind, name, values in (
        ("valid", "steps", [1 + size / one for one in sizes]),
        ("train", "rows", [1 + one / size for one in sizes]),
    ):
        parts.append(polyline(across, up, sizes, values, kind))
        ends.append((up(min(values[-1], up.high)), across.end, name, kind))
    parts += end_labels(ends)
    if batch is not None:
        x = across(batch)
        parts += [line(x, up.end, x, up.start, "here"), text(x + 4, up.end + 10, "this plan", "name")]
    description = f"At a batch of {words.count(round(size))}, steps and rows are both twice the least."
    return drawing("batch-figure", "Steps and rows needed against the batch size", description, 252, *parts)


def meaning(size: float, batch: float | None, said: bool) -> Html:
    """What a batch of this size costs, by the model of gradient noise: 1 + batch / critical."""
    parts: list[object] = []
    if not said:
        parts += ["The critical batch is about ", strong(words.count(round(size), "row")), ". "]
    parts.append(
        "Below the critical batch, twice the batch needs nearly half the steps, and more nodes can share a step. "
    )
    parts.append("Above it, a larger batch saves few steps and needs more epochs.")
    if batch is not None:
        more = words.percent(batch / size)
        parts.append(f" The batch of {words.count(batch)} in this plan needs about {more} more rows than the smallest.")
    return paragraph(*parts)


def section(data: dict[str, Any]) -> Section | None:
    noise = data["noise"]
    size, batch = critical(noise), data["settings"].get("batch_size")
    batch = batch if words.known(batch) and batch > 0 else None
    said = paragraph(noise["text"]) if noise.get("text") else EMPTY
    if size is None:
        return Section("batch", "How large can a batch be?", "Batch", said) if said else None
    low, high, scale = noise.get("low"), noise.get("high"), noise.get("noise_scale")
    span = (
        f"{words.count(round(low))} to {words.count(round(high))}" if words.known(low) and words.known(high) else None
    )
    numbers = terms(
        [
            ("critical batch", words.count(round(size))),
            ("interval", span),
            ("gradient noise scale", words.significant(scale) if words.known(scale) else None),
            ("batch of this plan", words.count(batch) if batch is not None else None),
        ]
    )
    shown = "Solid: steps. Dotted: rows, and so epochs." + (
        " Shaded: the interval of the critical batch." if span else ""
    )
    figure = tag("figure", trade_figure(size, batch, low, high), paragraph(shown, kind="small"))
    body = tag("div", tag("div", join([said, meaning(size, batch, bool(said)), numbers])), figure, class_="beside")
    return Section("batch", "How large can a batch be?", "Batch", body)
