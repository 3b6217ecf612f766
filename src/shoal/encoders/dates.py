"""Dates to numbers: when it was, and where in the year, the week and the day."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

DAY_PARTS = ("days", "year", "month", "weekday", "year sine", "year cosine")
TIME_PARTS = ("hour", "day sine", "day cosine")  # where any training date has a time of day
MICROSECONDS = 86_400_000_000.0  # of a day


@dataclass(frozen=True)
class DateParts:
    """What is made of one column of dates. Days are counted from the first training date, so that they stay small.

    >>> parts = DateParts.fit(np.array(["2024-01-01", "2024-03-01"], dtype="datetime64[us]"), np.ones(2))
    >>> parts.values(np.array(["2024-01-02"], dtype="datetime64[us]"))[0, :4].tolist()
    [1.0, 2024.0, 1.0, 1.0]
    """

    first: str | None  # ISO; None if no training row has a date
    timed: bool

    @staticmethod
    def fit(column: np.ndarray, weight: np.ndarray) -> DateParts:
        known = column[(weight > 0) & ~np.isnat(column)]
        if not len(known):
            return DateParts(None, False)
        timed = bool((known != known.astype("datetime64[D]")).any())
        return DateParts(str(known.min()), timed)

    def names(self, column: str) -> list[str]:
        return [f"{column}: {part}" for part in DAY_PARTS + (TIME_PARTS if self.timed else ())]

    def values(self, column: np.ndarray) -> np.ndarray:
        """(n, parts) float64, NaN where the date is missing."""
        day, month, year = (column.astype(f"datetime64[{unit}]") for unit in "DMY")
        first = np.datetime64(self.first or "1970-01-01", "us")
        within_year = (column - year.astype("datetime64[us]")).astype(np.float64) / MICROSECONDS / 365.2425 * 2 * np.pi
        parts = [
            (column - first).astype(np.float64) / MICROSECONDS,
            year.astype(np.float64) + 1970.0,
            (month - year.astype("datetime64[M]")).astype(np.float64) + 1.0,
            (day.astype(np.int64) + 3) % 7 + 0.0,  # 1970 began on a Thursday; Monday is 0
            np.sin(within_year),
            np.cos(within_year),
        ]
        if self.timed:
            hour = (column - day.astype("datetime64[us]")).astype(np.float64) / MICROSECONDS * 24.0
            parts += [hour, np.sin(hour / 12.0 * np.pi), np.cos(hour / 12.0 * np.pi)]
        made = np.stack(parts, axis=1)
        made[np.isnat(column)] = np.nan
        return made

    def as_dict(self) -> dict[str, Any]:
        return {"first": self.first, "timed": self.timed}

    @staticmethod
    def from_dict(state: Mapping[str, Any]) -> DateParts:
        return DateParts(state["first"], state["timed"])
