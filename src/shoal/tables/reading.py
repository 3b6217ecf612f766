"""How the training file was read. The model keeps it, so that new rows are read the same way."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shoal.errors import UserError
from shoal.tables import parse
from shoal.tables.missing import is_named, named_numbers
from shoal.tables.table import Table


@dataclass(frozen=True)
class Reading:
    """How a file is read: what the user said, or what was guessed."""

    missing: tuple[str, ...] = ()  # cells that mean "not known", beside blank, NA and the like
    columns: tuple[str, ...] = ()  # all of the file: the target and those left out, too
    header: bool | None = None
    sep: str | None = None
    quote: str | None = None  # with another one, the same cell may be another category

    def __post_init__(self) -> None:
        if self.sep is not None and len(self.sep) != 1:
            raise UserError(f"reading.sep must be one character or null; got {self.sep!r}")
        if self.quote not in (None, '"', "'"):
            raise UserError(f"reading.quote must be \", ' or null; got {self.quote!r}")

    def without_marks(self, table: Table) -> Table:
        """The table with missing values where it has the marks of the training file, as strings or as numbers."""
        if not self.missing:
            return table
        marks = frozenset(mark.strip() for mark in self.missing)
        return table.with_columns([_cleared(column, marks) for column in table.columns])


def _cleared(column: np.ndarray, marks: frozenset[str]) -> np.ndarray:
    if column.dtype == object:
        cleared = np.empty(len(column), dtype=object)
        cleared[:] = [None if cell is not None and is_named(cell, marks) else cell for cell in column]
        return cleared
    if column.dtype.kind == "M":
        moments = [moment for mark in marks for moment in parse.moments(mark)]
        named = np.isin(column, np.array(moments, dtype="datetime64[us]"))
        return np.where(named, np.datetime64("NaT", "us"), column)
    numbers = list(named_numbers(marks))
    return np.where(np.isin(column, numbers), np.nan, column) if column.dtype.kind == "f" and numbers else column
