"""The log of a fine-tuning run as series of values by step, reduced for the figures and for the slider.

A figure shows some hundred points at most. Where there are more steps, each point stands for several: their mean with
the lowest and the highest value, so that no peak is lost. The slider stops at logged steps and shows exact values.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from shoal.report.shell import words

LOSSES = ("loss", "eval_loss")
# Key: (name, unit) of every value in the log, in the order of the page.
KINDS = {
    "loss": ("training loss", ""),
    "eval_loss": ("evaluation loss", ""),
    "learning_rate": ("learning rate", ""),
    "grad_norm": ("gradient norm", ""),
    "epoch": ("epoch", ""),
    "eval_runtime": ("evaluation runtime", " s"),
    "eval_samples_per_second": ("evaluation samples per second", ""),
    "eval_steps_per_second": ("evaluation steps per second", ""),
    "samples_per_second": ("training samples per second", ""),
    "steps_per_second": ("training steps per second", ""),
    "tokens_per_second": ("training tokens per second", ""),
}
DRAWN = 200
STOPS = 400
ROWS = 50


@dataclass(frozen=True)
class CurveGroup:
    """Consecutive measurements drawn as one point: its step, and their lowest, mean and highest value."""

    step: float
    low: float | None
    mean: float | None
    high: float | None


def group_size(measurements: int, most: int = DRAWN) -> int:
    """How many measurements share a point: one for up to twice as many as `most`, as pairs would only blur the line.

    >>> group_size(400), group_size(401), group_size(1_000)
    (1, 3, 5)
    """
    return 1 if measurements <= 2 * most else -(-measurements // most)


@dataclass(frozen=True)
class Series:
    """One value of the log at the steps at which it was logged; None where it was not finite."""

    key: str
    steps: list[int]
    values: list[float | None]

    @property
    def label(self) -> str:
        return KINDS[self.key][0]

    @property
    def unit(self) -> str:
        return KINDS[self.key][1]

    @cached_property
    def known(self) -> list[tuple[int, float]]:
        return [(step, value) for step, value in zip(self.steps, self.values, strict=True) if value is not None]

    def at(self, step: int) -> int | None:
        """Index of the measurement at exactly this step, or None."""
        place = self.last(step)
        return place if place >= 0 and self.steps[place] == step else None

    def last(self, step: int) -> int:
        """Index of the latest measurement up to a step, or -1."""
        return bisect_right(self.steps, step) - 1

    def text(self, place: int) -> str:
        """
        >>> Series("eval_runtime", [10], [0.812345]).text(0)
        '0.812 s'
        """
        value = self.values[place]
        return words.NOTHING if value is None else words.significant(value) + self.unit

    def reading(self, step: int) -> str:
        """The text that the page shows at a step; it names the step of an older measurement."""
        place = self.last(step)
        if place < 0:
            return words.NOTHING
        at = self.steps[place]
        return self.text(place) if at == step else f"{self.text(place)} (step {words.count(at)})"

    @cached_property
    def drawn(self) -> list[CurveGroup]:
        return self.groups(DRAWN)

    def groups(self, most: int) -> list[CurveGroup]:
        """Single measurements if they are few, else about `most` groups.

        >>> Series("loss", [1, 2, 3, 4], [4.0, 2.0, None, 1.0]).groups(1)
        [CurveGroup(step=2.5, low=1.0, mean=2.3333333333333335, high=4.0)]
        """
        found = []
        size = group_size(len(self.steps), most)
        for start in range(0, len(self.steps), size):
            steps = self.steps[start : start + size]
            values = [value for value in self.values[start : start + size] if value is not None]
            middle = steps[0] if size == 1 else (steps[0] + steps[-1]) / 2
            if values:
                found.append(CurveGroup(middle, min(values), sum(values) / len(values), max(values)))
            else:
                found.append(CurveGroup(middle, None, None, None))
        return found


def merged(log: list[dict[str, Any]]) -> dict[int, dict[str, float | None]]:
    """The values of each step, in order. If a step was logged twice, by a resumed run, the later record counts."""
    records: dict[int, dict[str, float | None]] = {}
    for record in log:
        known = records.setdefault(record["step"], {})
        known |= {key: value for key, value in record.items() if key in KINDS}
    return {step: records[step] for step in sorted(records) if records[step]}


def all_series(records: dict[int, dict[str, float | None]]) -> dict[str, Series]:
    """The series that have at least one finite value, in the order of the page."""
    found = {}
    for key in KINDS:
        steps = [step for step, record in records.items() if key in record]
        series = Series(key, steps, [records[step][key] for step in steps])
        if any(value is not None for value in series.values):
            found[key] = series
    return found


def spread(items: list[int], most: int) -> list[int]:
    """
    >>> spread(list(range(10)), 4), spread([5], 4)
    ([0, 3, 6, 9], [5])
    """
    if len(items) <= most:
        return items
    return [items[round(place * (len(items) - 1) / (most - 1))] for place in range(most)]


def all_steps(series: dict[str, Series]) -> list[int]:
    return sorted(set().union(*(one.steps for one in series.values())))


def stops(series: dict[str, Series], most: int) -> list[int]:
    """Up to `most` steps, spread evenly from first to last; up to half of them are steps with an evaluation."""
    every = all_steps(series)
    if len(every) <= most:
        return every
    chosen = set(spread(series["eval_loss"].steps, most // 2)) if "eval_loss" in series else set()
    return sorted(chosen.union(spread([step for step in every if step not in chosen], most - len(chosen))))


def readings(series: dict[str, Series]) -> dict[str, Any]:
    """What the slider and the captions of the figures say at each stop; the slider starts at the last one."""
    steps = stops(series, STOPS)
    losses = [series[key] for key in LOSSES if key in series]
    texts = []
    for step in steps:
        epoch = f", epoch {series['epoch'].reading(step)}" if "epoch" in series else ""
        values = ", ".join(f"{one.label} {one.reading(step)}" for one in losses)
        texts.append([f"Step {words.count(step)}{epoch}: {values}"])
    captions = {key: [one.reading(step) for step in steps] for key, one in series.items() if key not in LOSSES}
    course = {"label": "Step", "points": steps, "texts": texts, "first": len(steps) - 1, "captions": captions}
    return {"course": course}
