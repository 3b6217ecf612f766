"""The log of a fine-tuning run as series over steps: merged, thinned for the eye, and thinned for the hand.

A figure shows at most some hundred points; where there are more, each stands for several steps, as their mean with
the lowest and the highest, so that no peak is lost. The slider stops at real steps, whose numbers are exact.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from shoal.json_values import plain
from shoal.report.shell import words
from shoal.report.shell.prepare import compact

LOSSES = ("loss", "eval_loss")
# Key, name and unit of every number in the log, in the order of the page.
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
class Group:
    """Some measurements in a row, drawn as one point: where, and their mean between the lowest and the highest."""

    step: float
    low: float | None
    mean: float | None
    high: float | None


def group_size(measurements: int, most: int = DRAWN) -> int:
    """Means of two would only look odd: up to twice as many are drawn as they are.

    >>> group_size(400), group_size(401), group_size(1_000)
    (1, 3, 5)
    """
    return 1 if measurements <= 2 * most else -(-measurements // most)


@dataclass(frozen=True)
class Series:
    """One number of the log at the steps where it was logged; None where it was not finite."""

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
        """Where the measurement of exactly this step is, if there is one."""
        place = self.last(step)
        return place if place >= 0 and self.steps[place] == step else None

    def last(self, step: int) -> int:
        """Where the latest measurement up to a step is, or -1."""
        return bisect_right(self.steps, step) - 1

    def text(self, place: int) -> str:
        """
        >>> Series("eval_runtime", [10], [0.812345]).text(0)
        '0.812 s'
        """
        value = self.values[place]
        return words.NOTHING if value is None else words.significant(value) + self.unit

    def reading(self, step: int) -> str:
        """The number as the page tells it at a step; `course.js` says it in the same words."""
        place = self.last(step)
        if place < 0:
            return words.NOTHING
        at = self.steps[place]
        return self.text(place) if at == step else f"{self.text(place)} (step {words.count(at)})"

    @cached_property
    def drawn(self) -> list[Group]:
        return self.groups(DRAWN)

    def groups(self, most: int) -> list[Group]:
        """Single measurements where they are few, else as many groups as the eye can tell apart.

        >>> Series("loss", [1, 2, 3, 4], [4.0, 2.0, None, 1.0]).groups(1)
        [Group(step=2.5, low=1.0, mean=2.3333333333333335, high=4.0)]
        """
        found = []
        size = group_size(len(self.steps), most)
        for start in range(0, len(self.steps), size):
            steps = self.steps[start : start + size]
            values = [value for value in self.values[start : start + size] if value is not None]
            middle = steps[0] if size == 1 else (steps[0] + steps[-1]) / 2
            if values:
                found.append(Group(middle, min(values), sum(values) / len(values), max(values)))
            else:
                found.append(Group(middle, None, None, None))
        return found


def number(value: Any) -> float | None:
    """A finite number, or None. Python's own come first: a long log has a million of them."""
    if type(value) is float or type(value) is int:
        return value if -1e300 < value < 1e300 else None
    if hasattr(value, "tolist"):  # numpy's and torch's
        value = plain(value)
        return value if words.known(value) and not isinstance(value, bool) else None
    return None


def merged(log: Any) -> dict[int, dict[str, float | None]]:
    """What is known of each step, in order. Of a step logged twice, by a run that went on, the later counts."""
    records: dict[int, dict[str, float | None]] = {}
    for record in log or []:
        step = number((record or {}).get("step"))
        if step is None:
            continue
        known = records.setdefault(int(step), {})
        for key, value in record.items():
            if key in KINDS:
                known[key] = number(value)
    return {step: records[step] for step in sorted(records) if records[step]}


def all_series(records: dict[int, dict[str, float | None]]) -> dict[str, Series]:
    """The series that have at least one number, in the order of the page."""
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
    """Steps to stop at, evenly through the run with its first and last, up to half of them at evaluations."""
    every = all_steps(series)
    if len(every) <= most:
        return every
    chosen = set(spread(series["eval_loss"].steps, most // 2)) if "eval_loss" in series else set()
    return sorted(chosen.union(spread([step for step in every if step not in chosen], most - len(chosen))))


def script_series(series: Series, steps: list[int]) -> dict[str, Any]:
    """Its numbers at the given steps; `places` says at which, unless it is at all of them."""
    found = [(place, series.at(step)) for place, step in enumerate(steps)]
    places = [place for place, at in found if at is not None]
    values = [compact(series.values[at], 5) for _, at in found if at is not None]
    written = None if len(places) == len(steps) else places
    return {"key": series.key, "label": series.label, "unit": series.unit, "places": written, "values": values}
