"""What each column of a table is: a number, a category, a boolean, a date, a text, or nothing to learn from.

Decided once, from the values alone (never from the target), and kept with the model, so that new data are read the same
way. Every decision carries a note in words: it is shown to the user, who can overrule it with `kinds`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from shoal.errors import UserError
from shoal.tables import parse
from shoal.tables.frames import cell_text
from shoal.tables.kinds import KINDS, Column, UnfitCell
from shoal.tables.missing import is_marker, missing_cells
from shoal.tables.table import Table
from shoal.validate import nearest

DROPPED = ("constant", "identifier", "empty", "dropped")  # columns without anything to learn from, or not wanted
DROP = "drop"  # how users ask for the last of these
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


@dataclass(frozen=True, eq=False)
class Schema:
    """The decisions about all columns, in the table's order.

    >>> table = Table.of({"size": [1.0, 2.0, 2.5], "colour": ["red", "blue", "red"], "unit": ["kg", "kg", "kg"]})
    >>> [(column.name, column.kind) for column in Schema.of(table).columns]
    [('size', 'number'), ('colour', 'category'), ('unit', 'constant')]
    """

    columns: tuple[Column, ...]

    @staticmethod
    def of(table: Table, plain: bool = False, kinds: Mapping[str, Any] | None = None) -> Schema:
        """The schema of a table; worked out once, however often it is asked for.

        With `plain`, numbers stay numbers whatever they look like, as users of scikit-learn expect of arrays. `kinds`
        says what columns are: name -> one of KINDS, "drop", or an encoder of the user's own.
        """
        kinds = check_kinds(kinds, table.names)
        if not all(isinstance(kind, str) for kind in kinds.values()):
            return _schema(table, plain, kinds)
        key = ("schema", plain, tuple(sorted(kinds.items())))
        return table.remember(key, lambda: _schema(table, plain, kinds))

    @property
    def used(self) -> list[Column]:
        return [column for column in self.columns if column.kind in KINDS]

    @property
    def dropped(self) -> list[Column]:
        return [column for column in self.columns if column.kind not in KINDS]

    def check(self, table: Table) -> Table:
        """The used columns of a table, found by name, each in the form of its kind.

        Numbers and booleans are float64, dates datetime64[us], categories and texts str or None. Columns that the
        schema drops need not be there; columns that it does not know are ignored.
        """
        done = table._cache.get("checked")
        if done is not None and done[0] == self.columns:
            return done[1]
        checked = self._convert(table)
        checked._cache["checked"] = table._cache["checked"] = (self.columns, checked)
        return checked

    def describe(self) -> list[str]:
        """In words: how many columns of each kind, then the notes on single columns."""
        counts = {kind: sum(column.kind == kind for column in self.columns) for kind in KINDS}
        plural = {"category": "categories"}
        found = [f"{n} {kind if n == 1 else plural.get(kind, kind + 's')}" for kind, n in counts.items() if n]
        noted = [f"{column.name}: {column.kind}, {column.note}" for column in self.columns if column.note]
        return [", ".join(found), *noted]

    def as_dict(self) -> dict[str, Any]:
        fields = ("name", "kind", "note", "style")
        return {"columns": [{name: getattr(column, name) for name in fields} for column in self.columns]}

    @staticmethod
    def from_dict(state: Mapping[str, Any]) -> Schema:
        return Schema(tuple(Column(**column) for column in state["columns"]))

    def missing(self, table: Table) -> list[str]:
        """Columns of the schema that a table does not have."""
        there = set(table.names)
        return [column.name for column in self.used if column.name not in there]

    def unknown(self, table: Table, expected: Iterable[str | None] = ()) -> list[str]:
        """Columns that are neither the schema's nor expected beside them, as the target is."""
        known = {column.name for column in self.columns} | set(expected)
        return [name for name in table.names if name not in known]

    def refuse_missing(self, table: Table) -> None:
        """Name the columns of the schema that a table does not have."""
        missing = self.missing(table)
        if len(missing) == 1:
            hint = nearest(missing[0], self.unknown(table))
            raise UserError(f"every column of the training data must be there; {missing[0]!r} is missing{hint}")
        if missing:
            others = self.unknown(table)
            hint = f"; the table has others: {listed(others)}" if others else ""
            raise UserError(f"every column of the training data must be there; {listed(missing)} are missing{hint}")

    def refuse_own_encoders(self, done: str, reason: str) -> None:
        """Name the columns with an encoder of the user's own, for what cannot be done with them."""
        own = [f"{name!r} ({type(encoder).__name__})" for name, encoder in self.own_encoders.items()]
        if own:
            raise UserError(
                f"a model with encoders of your own cannot be {done}, since {reason}: {', '.join(own[:5])}; give these "
                f"columns one of the kinds {', '.join(KINDS)}"
            )

    @cached_property
    def own_encoders(self) -> dict[str, Any]:
        """Encoders of the user's own, by column."""
        return {column.name: column.encoder for column in self.used if column.encoder is not None}

    def _convert(self, table: Table) -> Table:
        self.refuse_missing(table)
        position = {name: j for j, name in enumerate(table.names)}
        found = [position[column.name] for column in self.used]
        if table.block is not None and all(column.kind in ("number", "boolean") for column in self.used):
            return table if found == list(range(len(table.names))) else table.select(found)
        columns = [_read(table.columns[j], column) for column, j in zip(self.used, found, strict=True)]
        return Table([column.name for column in self.used], columns)


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


def _schema(table: Table, plain: bool, kinds: Mapping[str, Any]) -> Schema:
    columns = [_decide(table, j, plain, kinds.get(name)) for j, name in enumerate(table.names)]
    if not any(column.kind in KINDS for column in columns):
        reasons = "; ".join(f"{column.name!r} is dropped, {column.note}" for column in columns[:5])
        raise UserError(f"at least one column must hold something to learn from; {reasons}")
    return Schema(tuple(columns))


def _read(cells: np.ndarray, column: Column) -> np.ndarray:
    """The cells in the form of their kind."""
    try:
        return KINDS[column.kind](cells, column)
    except UnfitCell as error:
        raise UserError(
            f"column {column.name!r} must hold a {column.kind}, as in the training data; row {error.row}, counted from "
            f"0, has {error.value!r}: correct the cell, or leave it empty if the value is not known"
        ) from None


def _decide(table: Table, j: int, plain: bool, wish: Any) -> Column:
    name, column = table.names[j], table.columns[j]
    if wish is not None:
        return _as_asked(name, wish, column)
    if plain and column.dtype != object and column.dtype.kind != "M":
        return Column(name, "number" if column.dtype == np.float64 else "boolean")
    if column.dtype == object:
        return _decide_strings(name, *table.factor(j), declared=name in table.declared)
    known = column[~missing_cells(column)]
    if not len(known):
        return Column(name, "empty", "all values are missing")
    if len(known) == len(column) and (known == known[0]).all():
        return Column(name, "constant", f"always {cell_text(known[0])}")
    if column.dtype.kind != "f":
        return Column(name, "date" if column.dtype.kind == "M" else "boolean")
    return _decide_numbers(name, column, known)


def _as_asked(name: str, wish: Any, column: np.ndarray) -> Column:
    """What the user says that a column is, if its cells can be read so."""
    if wish == DROP:
        return Column(name, "dropped", "as asked")
    kind, encoder = (wish, None) if isinstance(wish, str) else (wish.kind, wish)
    style = _style(column, kind)
    note = "as asked" if encoder is None else f"encoded by {type(encoder).__name__}, as asked"
    decided = Column(name, kind, note, style, encoder)
    try:
        KINDS[kind](column, decided)
    except UnfitCell as error:
        others = "number or category" if kind in ("boolean", "date") and column.dtype == np.float64 else "category"
        raise UserError(
            f"column {name!r} cannot be a {kind}, as asked; row {error.row}, counted from 0, has {error.value!r}: "
            f"correct the cell, or ask for another kind, such as {others}"
        ) from None
    return decided


def _style(column: np.ndarray, kind: str) -> str:
    """How strings are read as this kind; "" where one style does not fit all, or none is needed."""
    if column.dtype != object or kind not in ("number", "date"):
        return ""
    values = sorted(value for value in set(column) if value is not None)
    return (parse.number_style(values) if kind == "number" else parse.date_style(values)) or ""


def _decide_numbers(name: str, column: np.ndarray, known: np.ndarray) -> Column:
    if len(known) == len(column) >= IDENTIFIER_ROWS and (known == np.floor(known)).all():
        low, high = known.min(), known.max()
        numbering = high - low + 1 <= len(known) / IDENTIFIER_DENSITY
        if (numbering or named_like_identifier(name)) and len(np.unique(known)) == len(known):
            return Column(name, "identifier", f"a different whole number in every row, {low:.0f} to {high:.0f}")
    return Column(name, "number")


def named_like_identifier(name: str) -> bool:
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
    table = np.array([np.nan if v is None or is_marker(v) else parse.number(v, style) for v in values], dtype=float)
    column = table[codes]
    decision = _decide_numbers(name, column, column[~np.isnan(column)])
    note = decision.note or {
        "signs": f"read from strings such as {_example(values)}",
        "comma": "with decimal commas",
    }.get(style, "")
    return Column(name, decision.kind, note, style)


def _decide_words(name: str, known: list[str], rows: int) -> Column:
    """Few different values are a category; many are a text if they have several words, else identifiers."""
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
