"""Explanations of columns: names and numbers, as estimators, files and reports hold them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from shoal.console.notebook import InNotebook
from shoal.encoders.states import restore
from shoal.options import option

SHOWN = 20  # columns, where an object is printed


@dataclass(frozen=True)
class Importance:
    """By how much the score falls when a column, or several at once, are shuffled; with an interval."""

    columns: tuple[str, ...]
    importance: float
    low: float
    high: float

    @property
    def name(self) -> str:
        return " + ".join(self.columns)

    @property
    def matters(self) -> bool:
        """Whether the whole interval is above zero."""
        return self.low > 0


@dataclass(frozen=True)
class Importances(InNotebook):
    """The importance of every column, the largest first: `estimator.importance_`.

    >>> found = Importances("r2", 0.95, (Importance(("size",), 0.5, 0.4, 0.6), Importance(("age",), 0.0, -0.1, 0.1)))
    >>> found["size"].importance, [one.name for one in found], found["age"].matters
    (0.5, ['size', 'age'], False)
    """

    metric: str
    confidence: float
    columns: tuple[Importance, ...]
    groups: tuple[Importance, ...] = ()  # columns that stand in for each other, shuffled together
    rounds: int = 0  # how often each column was shuffled
    rows: int = 0  # on so many rows
    left_out: tuple[str, ...] = ()  # columns that there was no time for

    def __iter__(self) -> Iterator[Importance]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    def __getitem__(self, column: str) -> Importance:
        for found in self.columns:
            if found.columns == (column,):
                return found
        raise KeyError(column)

    def __repr__(self) -> str:
        return "\n".join(importance_lines(self, SHOWN))


@dataclass(frozen=True)
class Effect:
    """The prediction with one column set to each of some values, on average over rows (partial dependence)."""

    column: str
    kind: str
    output: str | None  # the class whose probability it is, or one of several numbers; None: the one number
    values: tuple[Any, ...]  # numbers, or words
    mean: tuple[float, ...]
    low: tuple[float, ...]  # of the networks of the ensemble, eight in ten are between these
    high: tuple[float, ...]
    rug: tuple[float, ...] = ()  # values that the data have; of words, the share of rows with each
    share: bool = False  # whether it is a probability


@dataclass(frozen=True)
class Pair:
    """Two columns that act together: how strongly (Friedman's H), and the prediction for both."""

    columns: tuple[str, str]
    strength: float  # 0: each acts alone; 1: only together
    output: str | None
    values: tuple[tuple[Any, ...], tuple[Any, ...]]
    mean: tuple[tuple[float, ...], ...]  # (values of the first, values of the second)
    share: bool = False  # whether it is a probability


@dataclass(frozen=True)
class Explanation(InNotebook):
    """All that was found out about the columns of a search."""

    importance: Importances
    effects: tuple[Effect, ...] = ()
    pairs: tuple[Pair, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(known: Any) -> Explanation:
        return restore(Explanation, "explanation", known, {})


def importance_lines(found: Importances, most: int) -> list[str]:
    """The first columns as lines of text: name, importance, interval, a bar."""
    shown = found.columns[:most]
    if not shown:
        return ["no column was looked at"]
    width = min(max(len(one.name) for one in shown), 40)
    largest = max(max(one.importance for one in shown), 1e-300)
    digits = decimals(found)
    lines = []
    for one in shown:
        name = one.name if len(one.name) <= width else one.name[: width - 3] + "..."
        bar = "#" * int(np.clip(round(20 * one.importance / largest), 0, 20))
        interval = f"{one.low:.{digits}f} to {one.high:.{digits}f}"
        lines.append(
            f"{name:<{width}}  {one.importance:>{digits + 4}.{digits}f}  ({interval:>{2 * digits + 10}})  {bar}"
        )
    return [line.rstrip() for line in lines]


def decimals(found: Importances) -> int:
    """Enough to tell columns apart: two digits of the largest one, at least 3."""
    largest = max((abs(one.importance) for one in found.columns), default=1.0)
    return int(np.clip(2 - np.floor(np.log10(max(largest, 1e-6))), 0, 6)) if largest < 1e6 else 0


def explain_seconds_option(default: str) -> Any:
    """Seconds for an explanation. `default`: what None means, in words."""
    return option(
        None, f"Seconds to spend on column importance. (default: {default})", least=0,
        what="a number of seconds", metavar="SECONDS", changes_result=False,
    )  # fmt: skip
