"""Values at which the effect of a column is looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal.tables.missing import missing_cells
from shoal.tables.table import Table

ENDS = 0.02  # the lowest and highest values are few: the networks know little there
RUG = 60


@dataclass(frozen=True, eq=False)
class Grid:
    """Some values of one column, and how the rows are shared out among them."""

    column: int  # its place in the table
    name: str
    kind: str
    cells: np.ndarray  # (v,) as the table has them
    shown: tuple[Any, ...]  # numbers, or words
    nearest: np.ndarray  # (n,) for each row the value that is nearest to its own; -1: none
    rug: tuple[float, ...]

    @property
    def words(self) -> bool:
        """Whether the values have no order."""
        return any(isinstance(value, str) for value in self.shown) and self.kind != "date"


def make_grid(table: Table, column: int, kind: str, most: int) -> Grid | None:
    """Of a column of a table as `Schema.check` gives it. None: it has no values to set it to, as texts have none."""
    cells = table.columns[column]
    known = ~missing_cells(cells)
    if kind == "text" or len(np.unique(cells[known].astype(str) if cells.dtype == object else cells[known])) < 2:
        return None
    name = table.names[column]
    if cells.dtype == object:
        return _words(column, name, kind, cells, known, most)
    numbers = cells[known].astype(np.float64)
    different = np.unique(numbers)
    if len(different) > most:
        different = np.unique(np.quantile(numbers, np.linspace(ENDS, 1 - ENDS, most)))
    values = different.astype(np.int64).astype("datetime64[us]") if cells.dtype.kind == "M" else different
    nearest = np.full(len(cells), -1)
    nearest[known] = np.abs(numbers[:, None] - different).argmin(axis=1)
    rug = np.quantile(numbers, np.linspace(0, 1, min(RUG, len(numbers)))) if kind != "boolean" else ()
    return Grid(column, name, kind, values, _shown(kind, different), nearest, tuple(float(value) for value in rug))


def _words(column: int, name: str, kind: str, cells: np.ndarray, known: np.ndarray, most: int) -> Grid:
    """The most common values, the most common first."""
    values, place, count = np.unique(cells[known].astype(str), return_inverse=True, return_counts=True)
    common = np.argsort(-count, kind="stable")[:most]
    rank = np.full(len(values), -1)
    rank[common] = np.arange(len(common))
    nearest = np.full(len(cells), -1)
    nearest[known] = rank[place]
    shares = tuple(float(share) for share in count[common] / len(cells))
    shown = tuple(str(value) for value in values[common])
    return Grid(column, name, kind, np.array(shown, dtype=object), shown, nearest, shares)


def _shown(kind: str, values: np.ndarray) -> tuple[Any, ...]:
    if kind == "boolean":
        return tuple("yes" if value else "no" for value in values)
    return tuple(float(value) for value in values)


def grid_table(table: Table, grids: list[Grid]) -> Table:
    """A table whose row g has the g-th value of every grid: one encoding serves them all."""
    longest = max(len(grid.cells) for grid in grids)
    columns = [np.repeat(cells[:1], longest) for cells in table.columns]
    for grid in grids:
        columns[grid.column] = grid.cells[np.arange(longest) % len(grid.cells)]
    return Table(table.names, columns)
