"""The kinds of columns, and how the cells of each kind are read.

`KINDS` is the table of them. A kind that is added here needs an encoder in `shoal.encoders.encoder.ENCODERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal.errors import UserError
from shoal.tables import parse
from shoal.tables.frames import cell_text, refuse_infinite
from shoal.tables.missing import is_marker, is_missing_word, missing_cells
from shoal.tables.spelling import EXACT, one_spelling
from shoal.tables.table import factorise
from shoal.validate import nearest


@dataclass(frozen=True)
class Column:
    """The decision about one column. `style` says how its strings are read (see `parse` and `spelling`)."""

    name: str
    kind: str
    note: str = ""
    style: str = ""
    encoder: Any = None  # the user's own, in place of the kind's
    percent: bool = False  # its numbers had percent signs


class UnfitCell(Exception):
    """A cell that is not of its column's kind."""

    def __init__(self, row: int, value: Any) -> None:
        super().__init__(row, value)
        self.row, self.value = row, value


def _through_values(column: np.ndarray, convert: Callable[[str | None], Any], dtype: Any) -> np.ndarray:
    """Convert each different value once. NotImplemented marks a value that cannot be converted."""
    codes, values = factorise(column)
    converted = np.empty(len(values), dtype=dtype)
    for position, value in enumerate(values):
        result = convert(value)
        if result is NotImplemented:
            return _refuse(codes, values, convert)
        converted[position] = result
    return converted[codes]


def _refuse(codes: np.ndarray, values: list[str | None], convert: Callable[[str | None], Any]) -> Any:
    bad = np.array([convert(value) is NotImplemented for value in values])
    row = int(np.flatnonzero(bad[codes])[0])
    raise UnfitCell(row, values[codes[row]])


def _read_number(array: np.ndarray, column: Column) -> np.ndarray:
    if array.dtype.kind == "M":
        raise UnfitCell(0, cell_text(array[0]))
    if array.dtype != object:
        return array.astype(np.float64, copy=False)
    style = "comma" if column.style == "comma" else "signs"

    def convert(value: str | None) -> Any:
        if value is None or is_marker(value):
            return np.nan
        found = parse.number(value, style)
        found = parse.boolean(value) if found is None and column.kind == "boolean" else found
        return NotImplemented if found is None else found

    numbers = _through_values(array, convert, np.float64)
    refuse_infinite(numbers, column.name)
    return numbers


def _read_boolean(array: np.ndarray, column: Column) -> np.ndarray:
    numbers = _read_number(array, column)
    wrong = np.flatnonzero(~(np.isnan(numbers) | (numbers == 0) | (numbers == 1)))
    if len(wrong):
        raise UnfitCell(int(wrong[0]), cell_text(array[wrong[0]]))
    return numbers


def _read_date(array: np.ndarray, column: Column) -> np.ndarray:
    if array.dtype.kind == "M":
        return array
    if array.dtype != object:
        wrong = np.flatnonzero(~missing_cells(array))
        if len(wrong):
            raise UnfitCell(int(wrong[0]), cell_text(array[wrong[0]]))
        return np.full(len(array), np.datetime64("NaT", "us"))
    styles = dict.fromkeys((column.style or "iso", "iso", "%Y-%m-%d %H:%M:%S"))

    def convert(value: str | None) -> Any:
        if value is None or is_marker(value):
            return np.datetime64("NaT", "us")
        found = (parse.moment(value, style) for style in styles)
        return next((f for f in found if f is not None), NotImplemented)

    return _through_values(array, convert, "datetime64[us]")


def _read_category(array: np.ndarray, column: Column) -> np.ndarray:
    if array.dtype != object:
        array = np.array([cell_text(cell) for cell in array.tolist()], dtype=object)
    exact = column.style == EXACT
    return _through_values(array, lambda value: category_text(value, exact), object)


def category_text(value: str | None, exact: bool = False) -> str | None:
    """A category as its column has it, without blanks around; in one spelling (see `spelling`), unless `exact`."""
    if value is None or is_missing_word(value):
        return None
    return value.strip() if exact else one_spelling(value.strip())


def _read_text(array: np.ndarray, column: Column) -> np.ndarray:
    if array.dtype != object:
        return np.array([cell_text(cell) for cell in array.tolist()], dtype=object)
    return _through_values(array, lambda value: category_text(value, exact=True), object)


# What a column may be, in the order in which users are told, and the function that reads its cells: it takes a column
# of a `Table`, gives float64, datetime64[us], or str and None, and raises UnfitCell.
KINDS: dict[str, Callable[[np.ndarray, Column], np.ndarray]] = {
    "number": _read_number,
    "category": _read_category,
    "boolean": _read_boolean,
    "date": _read_date,
    "text": _read_text,
}
KEPT_AS_WRITTEN = ("category", "text")  # kinds whose cells are never numbers
DROP = "drop"  # how users ask for a column to be left out


def check_kinds(kinds: Any, names: Sequence[str]) -> dict[str, Any]:
    """What a user says of columns, checked: {} for None."""
    if kinds is None:
        return {}
    if not isinstance(kinds, Mapping):
        raise UserError(f"kinds must be a dict of columns and kinds, such as {{'zip': 'category'}}; got {kinds!r}")
    for name, kind in kinds.items():
        if name not in names:
            raise UserError(f"kinds must name columns; there is no column {name!r}{nearest(str(name), names)}")
        if isinstance(kind, str):
            if kind not in (*KINDS, DROP):
                words = f"{', '.join(KINDS)} or {DROP}"
                hint = nearest(kind, (*KINDS, DROP))
                raise UserError(f"a kind must be {words}; got {kind!r} for {name!r}{hint}")
        elif isinstance(kind, type) or not hasattr(kind, "fit"):
            raise UserError(f"a kind must be a word, or an object such as MyEncoder(); got {kind!r} for {name!r}")
        elif getattr(kind, "kind", None) not in KINDS:
            raise UserError(
                f"an encoder must say in `kind` how cells are read: {', '.join(KINDS)}; {type(kind).__name__} for "
                f"{name!r} has {getattr(kind, 'kind', None)!r}"
            )
    return dict(kinds)
