"""Columns or arrays that are no inputs of a search but say how rows count: their weights, groups and times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np

from shoal.errors import UserError
from shoal.tables.kinds import DROP
from shoal.tables.missing import missing_cells
from shoal.tables.schema import Schema
from shoal.tables.table import Table
from shoal.validate import nearest, shown

WEIGHT, GROUPS, TIME = "weights", "groups", "times"  # what rows get from them


@dataclass(frozen=True, eq=False)
class Roles:
    """What a fit is told about its rows, checked."""

    weight: Any = None  # as given, or the numbers of a column
    groups: np.ndarray | None = None  # (n,) any values
    time: np.ndarray | None = None  # (n,) int64 ranks from 0: equal times have equal ranks
    columns: tuple[str, ...] = ()  # that are no inputs then
    ours: bool = True  # whether nobody has said which rows belong together

    @staticmethod
    def of(table: Table, cv: Any, sample_weight: Any = None, groups: Any = None, time: Any = None) -> Roles:
        """Each one an array, the name of a column, or None; `cv` as users give it."""
        ours = cv is None or isinstance(cv, Integral)
        if time is not None and not ours:
            raise UserError(f"give time or custom folds, not both; got cv={shown(cv)}: remove one of them")
        if groups is not None and time is not None:
            raise UserError(
                "give groups or time, not both: with time, a fold is scored on later rows, also on those of a group "
                "that it was trained on"
            )
        return Roles(
            _weights(table, sample_weight) if isinstance(sample_weight, str) else sample_weight,
            None if groups is None else _groups(table, groups),
            None if time is None else _ranks(table, time),
            tuple(given for given in (sample_weight, groups) if isinstance(given, str)),
            ours and groups is None and time is None,
        )

    def kinds(self, kinds: Any) -> Any:
        """What the user says of columns, and that these are no inputs."""
        return kinds if not self.columns else {**(kinds or {}), **dict.fromkeys(self.columns, DROP)}


def _cells(table: Table, given: Any, role: str) -> tuple[str, np.ndarray]:
    """What errors call it, and (n,) cells, none of them missing."""
    if isinstance(given, str):
        if given not in table.names:
            raise UserError(f"there is no column {given!r} to take the {role} from{nearest(given, table.names)}")
        called, cells = f"column {given!r}", table[given]
    else:
        called, cells = role, _array(given, role)
        if len(cells) != len(table):
            raise UserError(f"{role} must be as many as the rows, {len(table)}; got {len(cells)}")
    _refuse_missing(called, role, cells)
    return called, cells


def _refuse_missing(called: str, role: str, cells: np.ndarray) -> None:
    missing = np.flatnonzero(missing_cells(cells))
    if len(missing):
        raise UserError(
            f"{called} must be known in every row, since it holds the {role}; it is missing in {len(missing):,} of "
            f"{len(cells):,} rows, first in row {missing[0] + 1}: fill in the cells, or remove the rows"
        )


def _array(given: Any, role: str) -> np.ndarray:
    """One cell for each row, in one of the types of a table's columns; whole numbers stay as they are."""
    cells = np.asarray(given)
    if cells.ndim == 2 and cells.shape[1] == 1:
        cells = cells[:, 0]
    if cells.ndim != 1:
        raise UserError(f"{role} must be one value for each row, or the name of a column; got shape {cells.shape}")
    return cells if cells.dtype.kind in "iubSU" or not len(cells) else Table.of({role: cells}).columns[0]


def _weights(table: Table, name: str) -> np.ndarray:
    called, cells = _cells(table, name, WEIGHT)
    weight = _read(called, WEIGHT, table, cells, ("number",))
    negative = np.flatnonzero(weight < 0)
    if len(negative):
        raise UserError(
            f"column {name!r} holds the weights, which must not be negative; row {negative[0] + 1} has "
            f"{weight[negative[0]]:g}: use 0 for rows that do not count"
        )
    if not weight.any():
        raise UserError(f"column {name!r} holds the weights, and all are zero: no row would count")
    return weight


def _groups(table: Table, given: Any) -> np.ndarray:
    called, cells = _cells(table, given, GROUPS)
    if len(np.unique(cells)) < 2:
        raise UserError(
            f"{called} must name at least 2 different groups, or nothing could be held out; got 1, "
            f"{cells.tolist()[0]!r}: choose another column"
        )
    return cells


def _ranks(table: Table, given: Any) -> np.ndarray:
    """Dates or numbers as ranks."""
    called, cells = _cells(table, given, TIME)
    if cells.dtype.kind in "OSU":
        cells = _read(called, TIME, table, cells.astype(object), ("date", "number"))
    different, rank = np.unique(cells, return_inverse=True)
    if len(different) < 2:
        raise UserError(f"{called} must have at least 2 different times, or nothing is later; got 1")
    return rank


def _read(called: str, role: str, table: Table, cells: np.ndarray, kinds: Sequence[str]) -> np.ndarray:
    """Cells as the first kind that fits all of them. All columns of their table tell the decimal sign."""
    column = Table([called], [cells], decimal=table.decimal or table.shown_decimal())
    for kind in kinds:
        try:
            found = Schema.of(column, kinds={called: kind}).check(column)[called]
        except UserError:
            continue
        _refuse_missing(called, role, found)
        return found
    words = " or ".join(f"{kind}s" for kind in kinds)
    raise UserError(f"{called} must hold {words}, since it holds the {role}; it has {str(cells[0])[:30]!r}")
