"""What was found, looked up by what it was found for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.papers.node_simulator.start import Mean
from benchmarks.parallel.workers import performance_improvement

Entry = dict[str, Any]


def find(entries: Sequence[Entry], **wanted: Any) -> Entry:
    """The first entry with these values."""
    return next(entry for entry in entries if all(entry[name] == value for name, value in wanted.items()))


def improvement(entries: Sequence[Entry], nodes: int, place: str, part: str = "seconds", **wanted: Any) -> float:
    """The paper's PI of predicted seconds, or of a part of them."""
    one, many = (find(entries, nodes=count, **wanted)["predicted"][place][part] for count in (1, nodes))
    return performance_improvement(one, many)


def averaging_share(entry: Entry, place: str) -> float:
    """Of the predicted seconds."""
    predicted = entry["predicted"][place]
    return float(predicted["averaging"] / predicted["seconds"])


def lost(before: Entry, after: Entry) -> Mean:
    """Points of accuracy, seed by seed."""
    pairs = zip(before["accuracies"], after["accuracies"], strict=True)
    return Mean.of([100 * (one - other) for one, other in pairs])


def points(mean: Mean) -> str:
    """
    >>> points(Mean(1.234, 1.0, 1.5)), points(Mean(-0.5))
    ('1.2 points (1.0 to 1.5)', '-0.5 points')
    """
    between = "" if mean.low is None else f" ({mean.low:.1f} to {mean.high:.1f})"
    return f"{mean.value:.1f} points{between}"


def shares(values: Sequence[float]) -> str:
    """Accuracies of all seeds in a cell of a table.

    >>> shares([0.5, 0.5]), shares([0.25])
    ('50.0% (50.0 to 50.0)', '25.0%')
    """
    mean = Mean.of([100 * value for value in values])
    if mean.value != mean.value:  # not a number: one of them has diverged
        return "diverged"
    return f"{mean.value:.1f}%" + ("" if mean.low is None else f" ({mean.low:.1f} to {mean.high:.1f})")
