"""Dates: numbers that say when it was, and where in the year, the week and the day."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shoal.encoders.column import ColumnEncoder
from shoal.encoders.numbers import sometimes_missing
from shoal.tables.missing import missing_cells
from shoal.tables.table import Cells

DAY_PARTS = ("days", "year", "month", "weekday", "year sine", "year cosine")
TIME_PARTS = ("hour", "day sine", "day cosine")  # where any training date has a time of day
MICROSECONDS = 86_400_000_000.0  # of a day


@dataclass(frozen=True)
class DateEncoder(ColumnEncoder):
    """The parts of dates as numbers. Days are counted from the first training date, so that they stay small.

    >>> cells = Cells.of(np.array(["2024-01-01", "2024-03-01"], dtype="datetime64[us]"))
    >>> DateEncoder.fit(cells, np.ones(2)).numbers(cells)[1, :4].tolist()
    [60.0, 2024.0, 3.0, 4.0]
    """

    kind = "date"
    order = 0

    first: str | None  # ISO; None if no training row has a date
    timed: bool
    missing: bool  # whether there is an input that is 1 where the date is missing

    @classmethod
    def fit(cls, cells: Cells, weight: np.ndarray) -> DateEncoder:
        known = cells.values[(weight > 0) & ~missing_cells(cells.values)]
        if not len(known):
            return cls(None, False, False)
        timed = bool((known != known.astype("datetime64[D]")).any())
        return cls(str(known.min()), timed, sometimes_missing(cells, weight))

    def number_names(self, column: str) -> list[str]:
        return [f"{column}: {part}" for part in DAY_PARTS + (TIME_PARTS if self.timed else ())]

    def numbers(self, cells: Cells) -> np.ndarray:
        first = np.datetime64(self.first or "1970-01-01", "us")
        made: np.ndarray = cells.remember(("date", self.timed), lambda: _parts(cells.values, self.timed)).copy()
        made[:, 0] = (cells.values - first).astype(np.float64) / MICROSECONDS
        made[np.isnan(made[:, 1]), 0] = np.nan
        return made

    def input_names(self, column: str) -> list[str]:
        return [f"{column} is missing"] * self.missing

    def write_inputs(self, cells: Cells, out: np.ndarray) -> None:
        out[:, 0] = missing_cells(cells.values)


def _parts(column: np.ndarray, timed: bool) -> np.ndarray:
    """The numbers of dates, without the days: those depend on the fold."""
    day, month, year = (column.astype(f"datetime64[{unit}]") for unit in "DMY")
    within_year = (column - year.astype("datetime64[us]")).astype(np.float64) / MICROSECONDS / 365.2425 * 2 * np.pi
    parts = [
        np.zeros(len(column)),
        year.astype(np.float64) + 1970.0,
        (month - year.astype("datetime64[M]")).astype(np.float64) + 1.0,
        (day.astype(np.int64) + 3) % 7 + 0.0,  # 1970 began on a Thursday; Monday is 0
        np.sin(within_year),
        np.cos(within_year),
    ]
    if timed:
        hour = (column - day.astype("datetime64[us]")).astype(np.float64) / MICROSECONDS * 24.0
        parts += [hour, np.sin(hour / 12.0 * np.pi), np.cos(hour / 12.0 * np.pi)]
    made = np.stack(parts, axis=1)
    made[missing_cells(column)] = np.nan
    return made
