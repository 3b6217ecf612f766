"""What each column of a table is: a number, a category, a boolean, a date, a text, or nothing to learn from.

Decided once, from the values alone (never from the target), and kept with the model, so that new data are read the same
way. Every decision carries a note in words: it is shown to the user, who can overrule it with `kinds`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from shoal.members import nearest
from shoal.tables import parse
from shoal.tables.columns import cell_text, refuse_infinite
from shoal.tables.table import Table, factorise

USED = ("number", "category", "boolean", "date", "text")
DROPPED = ("constant", "identifier", "empty")
FEW_VALUES = 20  # so many different strings are categories whatever they look like
FEW_SHARE = 0.05
MOSTLY_DIFFERENT = 0.5  # share of different strings from which words make a text
ALL_DIFFERENT = 0.95  # share of different strings from which one word makes an identifier
TEXT_WORDS, NAME_WORDS = 5.0, 2.0  # mean words of a text; of a name or title, where most of them differ
IDENTIFIER_ROWS = 50
IDENTIFIER_DENSITY = 0.5  # whole numbers, all different, that fill half of their range: a numbering, or a part of one
IDENTIFIER_NAMES = ("id", "index", "uuid", "guid", "key", "rownames", "rowid", "unnamed: 0", "column 0", "")


def listed(names: Sequence[str], most: int = 10) -> str:
    """
    >>> listed(["a", "b", "c"]), listed(["a", "b", "c"], most=2)
    ("'a', 'b' and 'c'", "'a', 'b' and 1 more")
    """
    shown = [repr(name) for name in names[:most]]
    last = f"{len(names) - most} more" if len(names) > most else shown.pop()
    return f"{', '.join(shown)} and {last}" if shown else last


@dataclass(frozen=True)
class Column:
    """The decision about one column. `style` says how its strings are read (see `parse`)."""

    name: str
    kind: str
    note: str = ""
    style: str = ""


@dataclass(frozen=True, eq=False)
class Schema:
    """The decisions about all columns, in the table's order.

    >>> table = Table.of({"size": [1.0, 2.0, 2.5], "colour": ["red", "blue", "red"], "unit": ["kg", "kg", "kg"]})
    >>> [(column.name, column.kind) for column in Schema.of(table).columns]
    [('size', 'number'), ('colour', 'category'), ('unit', 'constant')]
    """

    columns: tuple[Column, ...]

    @staticmethod
    def of(table: Table, plain: bool = False, kinds: Mapping[str, str] | None = None) -> Schema:
        """With `plain`, numbers stay numbers whatever they look like, as users of scikit-learn expect of arrays."""
        kinds = dict(kinds or {})
        for name, kind in kinds.items():
            if name not in table.names:
                raise ValueError(f"kinds must name columns; there is no column {name!r}{nearest(name, table.names)}")
            if kind not in (*USED, "drop"):
                raise ValueError(f"kinds must be {', '.join(USED)} or drop; got {kind!r} for {name!r}")
        columns = [_decide(table, j, plain, kinds.get(name)) for j, name in enumerate(table.names)]
        if not any(column.kind in USED for column in columns):
            reasons = "; ".join(f"{column.name!r} is dropped, {column.note}" for column in columns[:5])
            raise ValueError(f"at least one column must hold something to learn from; {reasons}")
        return Schema(tuple(columns))

    @property
    def used(self) -> list[Column]:
        return [column for column in self.columns if column.kind in USED]

    @property
    def dropped(self) -> list[Column]:
        return [column for column in self.columns if column.kind not in USED]

    def check(self, table: Table) -> Table:
        """The used columns of a table, found by name, each in the form of its kind.

        Numbers and booleans are float64, dates datetime64[us], categories and texts str or None. Columns that the
        schema drops need not be there, and others than the schema's are not looked at.
        """
        done = table._cache.get("checked")
        if done is not None and done[0] == self.columns:
            return done[1]
        checked = self._convert(table)
        checked._cache["checked"] = table._cache["checked"] = (self.columns, checked)
        return checked

    def describe(self) -> list[str]:
        """In words: how many columns of each kind, then what is worth knowing about single ones."""
        counts = {kind: sum(column.kind == kind for column in self.columns) for kind in USED}
        plural = {"category": "categories"}
        found = [f"{n} {kind if n == 1 else plural.get(kind, kind + 's')}" for kind, n in counts.items() if n]
        noted = [f"{column.name}: {column.kind}, {column.note}" for column in self.columns if column.note]
        return [", ".join(found), *noted]

    def as_dict(self) -> dict[str, Any]:
        return {"columns": [asdict(column) for column in self.columns]}

    @staticmethod
    def from_dict(state: Mapping[str, Any]) -> Schema:
        return Schema(tuple(Column(**column) for column in state["columns"]))

    def missing(self, table: Table) -> list[str]:
        """Columns that are needed, and not there."""
        there = set(table.names)
        return [column.name for column in self.used if column.name not in there]

    def unknown(self, table: Table, expected: Iterable[str | None] = ()) -> list[str]:
        """Columns that are neither the schema's nor expected beside them, as the target is."""
        known = {column.name for column in self.columns} | set(expected)
        return [name for name in table.names if name not in known]

    def refuse_missing(self, table: Table) -> None:
        """Name the columns that are needed and not there."""
        missing = self.missing(table)
        if len(missing) == 1:
            hint = nearest(missing[0], self.unknown(table))
            raise ValueError(f"every column of the training data must be there; {missing[0]!r} is missing{hint}")
        if missing:
            others = self.unknown(table)
            hint = f"; the table has others: {listed(others)}" if others else ""
            raise ValueError(f"every column of the training data must be there; {listed(missing)} are missing{hint}")

    def _convert(self, table: Table) -> Table:
        self.refuse_missing(table)
        position = {name: j for j, name in enumerate(table.names)}
        found = [position[column.name] for column in self.used]
        if table.block is not None and all(column.kind in ("number", "boolean") for column in self.used):
            return table if found == list(range(len(table.names))) else table.select(found)
        columns = [
            CONVERSIONS[column.kind](table.columns[j], column) for column, j in zip(self.used, found, strict=True)
        ]
        return Table([column.name for column in self.used], columns)


def _decide(table: Table, j: int, plain: bool, wish: str | None) -> Column:
    name, column = table.names[j], table.columns[j]
    if wish == "drop":
        return Column(name, "constant", "left out as asked")
    if wish is not None:
        return _as_wished(name, wish, column)
    if plain and column.dtype != object and column.dtype.kind != "M":
        return Column(name, "number" if column.dtype == np.float64 else "boolean")
    if column.dtype == object:
        return _decide_strings(name, *table.factor(j), declared=name in table.declared)
    missing = np.isnat(column) if column.dtype.kind == "M" else np.isnan(column) if column.dtype.kind == "f" else None
    known = column if missing is None else column[~missing]
    if not len(known):
        return Column(name, "empty", "all values are missing")
    if len(known) == len(column) and (known == known[0]).all():
        return Column(name, "constant", f"always {cell_text(known[0])}")
    if column.dtype.kind != "f":
        return Column(name, "date" if column.dtype.kind == "M" else "boolean")
    return _decide_numbers(name, column, known)


def _as_wished(name: str, wish: str, column: np.ndarray) -> Column:
    style = ""
    if column.dtype == object and wish in ("number", "date"):
        values = [value for value in set(column) if value is not None]
        found = parse.number_style(values) if wish == "number" else parse.date_style(values)
        if found is None:
            raise ValueError(
                f"column {name!r} cannot be a {wish}: some of its values are not; ask for a category or text"
            )
        style = found
    return Column(name, wish, "as asked", style)


def _decide_numbers(name: str, column: np.ndarray, known: np.ndarray) -> Column:
    if len(known) == len(column) >= IDENTIFIER_ROWS and (known == np.floor(known)).all():
        low, high = known.min(), known.max()
        numbering = high - low + 1 <= len(known) / IDENTIFIER_DENSITY
        if (numbering or _named_like_identifier(name)) and len(np.unique(known)) == len(known):
            return Column(name, "identifier", f"a different whole number in every row, {low:.0f} to {high:.0f}")
    return Column(name, "number")


def _named_like_identifier(name: str) -> bool:
    lower = name.strip().lower()
    return lower in IDENTIFIER_NAMES or lower.endswith(("_id", " id", "-id", ".id")) or name.endswith("Id")


def _decide_strings(name: str, codes: np.ndarray, values: list[str | None], declared: bool) -> Column:
    known = [value for value in values if value is not None and value.strip()]
    counts = np.bincount(codes, minlength=len(values))
    rows = int(sum(count for value, count in zip(values, counts, strict=True) if value is not None and value.strip()))
    if not known:
        return Column(name, "empty", "all values are missing")
    if len(known) == 1 and rows == len(codes):
        return Column(name, "constant", f"always {_short(known[0])}")
    if declared:
        return Column(name, "category")
    if parse.is_boolean(known):
        return Column(name, "boolean")
    if style := parse.number_style(known):
        return _decide_parsed_numbers(name, style, codes, values)
    if style := parse.date_style(known):
        return Column(name, "date", _date_note(known, style), style)
    return _decide_words(name, known, rows)


def _decide_parsed_numbers(name: str, style: str, codes: np.ndarray, values: list[str | None]) -> Column:
    table = np.array(
        [np.nan if v is None or parse.is_marker(v) else parse.number(v, style) for v in values], dtype=float
    )
    column = table[codes]
    decision = _decide_numbers(name, column, column[~np.isnan(column)])
    note = decision.note or {
        "signs": f"read from strings such as {_example(values)}",
        "comma": "with decimal commas",
    }.get(style, "")
    return Column(name, decision.kind, note, style)


def _decide_words(name: str, known: list[str], rows: int) -> Column:
    """Few values are a category; many are a text if they have words, and names of the rows if they have none."""
    share = len(known) / rows
    sample = known[:: max(1, len(known) // 2000)]
    words = sum(len(value.split()) for value in sample) / len(sample)
    few = len(known) <= max(FEW_VALUES, FEW_SHARE * rows)
    if not few and (words >= TEXT_WORDS or (words >= NAME_WORDS and share >= MOSTLY_DIFFERENT)):
        return Column(name, "text", f"{words:.0f} words on average")
    if share >= ALL_DIFFERENT and rows > FEW_VALUES:
        return Column(name, "identifier", f"a different string in nearly every row, such as {_short(known[0])}")
    return Column(name, "category", "" if few else f"{len(known)} different values")


def _date_note(known: list[str], style: str) -> str:
    if parse.ambiguous(known, style):
        return f"read as {style}; the day could also come first"
    return "" if style == "iso" else f"read as {style}"


def _example(values: list[str | None]) -> str:
    return next((_short(v) for v in values if v is not None and parse.number(v, "plain") is None), "''")


def _short(text: str) -> str:
    return repr(text if len(text) <= 30 else text[:27] + "...")


def _through_values(column: np.ndarray, convert: Callable[[str | None], Any], dtype: Any) -> np.ndarray:
    """Convert each different value once. NotImplemented marks a value that cannot be converted."""
    codes, values = factorise(column)
    converted = np.empty(len(values), dtype=dtype)
    for position, value in enumerate(values):
        result = convert(value)
        if result is NotImplemented:
            return _complain(codes, values, convert)
        converted[position] = result
    return converted[codes]


def _complain(codes: np.ndarray, values: list[str | None], convert: Callable[[str | None], Any]) -> Any:
    bad = np.array([convert(value) is NotImplemented for value in values])
    row = int(np.flatnonzero(bad[codes])[0])
    raise _Unreadable(row, values[codes[row]])


class _Unreadable(Exception):
    """A cell that is not of its column's kind: args are its row and its value."""


def _complaint(column: Column, row: int, value: Any) -> ValueError:
    return ValueError(
        f"column {column.name!r} must hold a {column.kind}, as in the training data; row {row}, counted from 0, has "
        f"{value!r}: correct the cell, or leave it empty if the value is not known"
    )


def _to_number(array: np.ndarray, column: Column) -> np.ndarray:
    if array.dtype.kind == "M":
        raise _complaint(column, 0, cell_text(array[0]))
    if array.dtype != object:
        return array.astype(np.float64, copy=False)
    styles = dict.fromkeys((column.style or "plain", "plain", "signs"))

    def convert(value: str | None) -> Any:
        if value is None or parse.is_marker(value):
            return np.nan
        found = (parse.number(value, style) for style in styles)
        flag = parse.boolean(value)
        return next((f for f in found if f is not None), NotImplemented if flag is None else flag)

    try:
        numbers = _through_values(array, convert, np.float64)
    except _Unreadable as error:
        raise _complaint(column, *error.args) from None
    refuse_infinite(numbers, column.name)
    return numbers


def _to_boolean(array: np.ndarray, column: Column) -> np.ndarray:
    numbers = _to_number(array, column)
    wrong = np.flatnonzero(~(np.isnan(numbers) | (numbers == 0) | (numbers == 1)))
    if len(wrong):
        raise _complaint(column, int(wrong[0]), cell_text(array[wrong[0]]))
    return numbers


def _to_date(array: np.ndarray, column: Column) -> np.ndarray:
    if array.dtype.kind == "M":
        return array
    if array.dtype != object:
        wrong = np.flatnonzero(~np.isnan(array)) if array.dtype == np.float64 else np.arange(len(array))
        if len(wrong):
            raise _complaint(column, int(wrong[0]), cell_text(array[wrong[0]]))
        return np.full(len(array), np.datetime64("NaT", "us"))
    styles = dict.fromkeys((column.style or "iso", "iso", "%Y-%m-%d %H:%M:%S"))

    def convert(value: str | None) -> Any:
        if value is None or parse.is_marker(value):
            return np.datetime64("NaT", "us")
        found = (parse.moment(value, style) for style in styles)
        return next((f for f in found if f is not None), NotImplemented)

    try:
        return _through_values(array, convert, "datetime64[us]")
    except _Unreadable as error:
        raise _complaint(column, *error.args) from None


def _to_category(array: np.ndarray, column: Column) -> np.ndarray:
    if array.dtype != object:
        array = np.array([cell_text(cell) for cell in array.tolist()], dtype=object)
    return _through_values(array, category_text, object)


def category_text(value: str | None) -> str | None:
    """One spelling per category: a file's "3.0" and "03" are the frame's 3, "True" is true, blanks around are cut."""
    if value is None or not value.strip():
        return None
    value = value.strip()
    number = parse.number(value, "plain")
    if number is not None and np.isfinite(number):
        return cell_text(number)
    return value.lower() if value.lower() in ("true", "false") else value


def _to_text(array: np.ndarray, column: Column) -> np.ndarray:
    return array if array.dtype == object else np.array([cell_text(cell) for cell in array.tolist()], dtype=object)


CONVERSIONS = {
    "number": _to_number,
    "boolean": _to_boolean,
    "date": _to_date,
    "category": _to_category,
    "text": _to_text,
}
