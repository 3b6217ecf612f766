"""The kind of each column of a table: a number, a category, a boolean, a date, a text, or nothing to learn from.

Decided once, from the values alone (never from the target), and kept with the model, so that new data are read the same
way. Every decision carries a note in words: it is shown to the user, who can overrule it with `kinds`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from shoal.errors import UserError
from shoal.tables import parse
from shoal.tables.frames import cell_text
from shoal.tables.kinds import DROP, KEPT_AS_WRITTEN, KINDS, Column, UnfitCell, check_kinds
from shoal.tables.missing import is_marker, is_missing_word, missing_cells
from shoal.tables.spelling import EXACT, WRITTEN, category_style, example_of_codes
from shoal.tables.table import Table, listed
from shoal.validate import nearest

DROPPED = ("constant", "identifier", "empty", "dropped")  # columns without anything to learn from, or not wanted
FEW_VALUES = 20  # so many different strings are categories whatever they look like
FEW_SHARE = 0.05
MOSTLY_DIFFERENT = 0.5  # share of different strings from which words make a text
ALL_DIFFERENT = 0.95  # share of different strings from which one word makes an identifier
TEXT_WORDS, NAME_WORDS = 5.0, 2.0  # mean words of a text; of a name or title, where most of them differ
UNLIKE = ", unlike other columns"  # ends the note on a column whose decimal sign is not that of its table
IDENTIFIER_ROWS = 50
IDENTIFIER_DENSITY = 0.5  # whole numbers, all different, that fill half of their range: a numbering, or a part of one
IDENTIFIER_NAMES = ("id", "index", "uuid", "guid", "key", "rownames", "row name", "rowid")
INDEX_NAMES = ("unnamed: 0", "__index_level_0__")  # a frame's index without a name: in CSV, in Parquet


@dataclass(frozen=True, eq=False)
class Schema:
    """The decisions about all columns, in the table's order.

    >>> table = Table.of({"size": [1.0, 2.0, 2.5], "colour": ["red", "blue", "red"], "unit": ["kg", "kg", "kg"]})
    >>> [(column.name, column.kind) for column in Schema.of(table).columns]
    [('size', 'number'), ('colour', 'category'), ('unit', 'constant')]
    """

    columns: tuple[Column, ...]
    decimal: str = "."  # the decimal sign of numbers in strings; new data with the other one are converted, and said so

    @staticmethod
    def of(table: Table, plain: bool = False, kinds: Mapping[str, Any] | None = None) -> Schema:
        """The schema of a table; worked out once, however often it is asked for.

        With `plain`, numbers stay numbers whatever they look like, as users of scikit-learn expect of arrays. `kinds`
        says what columns are: name -> one of KINDS, "drop", or a custom encoder.
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
        mine = (self.columns, self.decimal)
        if done is not None and done[0] == mine:
            return done[1]
        checked = self._convert(table)
        checked._cache["checked"] = table._cache["checked"] = (mine, checked)
        return checked

    def describe(self) -> list[str]:
        """In words: how many columns of each kind, then the notes on single columns."""
        counts = {kind: sum(column.kind == kind for column in self.columns) for kind in KINDS}
        plural = {"category": "categories"}
        found = [f"{n} {kind if n == 1 else plural.get(kind, kind + 's')}" for kind, n in counts.items() if n]
        noted = [f"{column.name}: {column.kind}, {column.note}" for column in self.columns if column.note]
        return [", ".join(found), *noted]

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
            raise UserError(f"the table must have every column of the training data; {missing[0]!r} is missing{hint}")
        if missing:
            others = self.unknown(table)
            hint = f"; the table has others: {listed(others)}" if others else ""
            raise UserError(
                f"the table must have every column of the training data; {listed(missing)} are missing{hint}"
            )

    def refuse_own_encoders(self, done: str, reason: str) -> None:
        """Name the columns with a custom encoder, for what cannot be done with them."""
        own = [f"{name!r} ({type(encoder).__name__})" for name, encoder in self.own_encoders.items()]
        if own:
            raise UserError(
                f"a model with custom encoders cannot be {done}, since {reason}: {', '.join(own[:5])}; give these "
                f"columns one of the kinds {', '.join(KINDS)}"
            )

    @cached_property
    def own_encoders(self) -> dict[str, Any]:
        """Custom encoders, by column."""
        return {column.name: column.encoder for column in self.used if column.encoder is not None}

    def _convert(self, table: Table) -> Table:
        self.refuse_missing(table)
        position = {name: j for j, name in enumerate(table.names)}
        found = [position[column.name] for column in self.used]
        if table.block is not None and all(column.kind in ("number", "boolean") for column in self.used):
            return table if found == list(range(len(table.names))) else table.select(found)
        styles = self._styles(table)
        columns = [
            _read(table, j, replace(column, style=styles[column.name][0]) if column.name in styles else column)
            for column, j in zip(self.used, found, strict=True)
        ]
        return Table([column.name for column in self.used], columns, row_numbers=table.row_numbers)

    @cached_property
    def as_written(self) -> frozenset[str]:
        """Columns whose cells must not be read as plain numbers: categories, texts, numbers with commas or signs."""
        return frozenset(c.name for c in self.used if c.kind in KEPT_AS_WRITTEN or c.style in ("signs", "comma"))

    @property
    def unlike(self) -> list[str]:
        """Columns whose numbers have another decimal sign than most, in words."""
        return [f"column {column.name!r}: {column.note}" for column in self.columns if column.note.endswith(UNLIKE)]

    def conversion(self, table: Table) -> str | None:
        """A sentence that names columns whose cells may not mean what they meant in the training data."""
        others = self._read_as_percents(table) or self._read_as_thousands(table) or self._lost_spelling(table)
        names = [name for name, (_, other) in self._styles(table).items() if other]
        if not names:
            return others
        words = {".": "points", ",": "commas"}
        return (
            f"numbers are read with decimal {words['.' if self.decimal == ',' else ',']}, unlike those of the training "
            f"data, in the column{'s' * (len(names) > 1)} {listed(names)}{'; ' + others if others else ''}"
        )

    def _read_as_percents(self, table: Table) -> str | None:
        """A sentence on numbers without a percent sign where the training data had one: 0.5 may be meant as 50%."""
        for column in self.used:
            cells = table[column.name] if column.percent else np.empty(0)
            known = (cell_text(cell) for cell in cells[~missing_cells(cells)].tolist())
            odd = next((cell for cell in known if cell is not None and parse.is_bare(cell)), None)
            if odd is not None:
                return f"{odd!r} is read as {odd}% in the column {column.name!r}: the training data have percent signs"
        return None

    def _read_as_thousands(self, table: Table) -> str | None:
        """A sentence on points that may have been meant as decimal points or between thousands."""
        trained = {column.name: column.style for column in self.used}
        styles = {name: style for name, (style, _) in self._styles(table).items() if style == "comma" or trained[name]}
        cells = {name: table.factor(table.names.index(name))[1] for name in styles}
        for name, style in styles.items() if not self._shown_decimal(table) else ():
            odd = parse.read_in_two_ways(cells[name])
            if odd is not None and "." in odd:
                sign = "commas" if style == "comma" else "points"
                value = parse.number(odd, style)
                return f"{odd!r} is read as {value:g} in the column {name!r}: the training data have decimal {sign}"
        return None

    def _lost_spelling(self, table: Table) -> str | None:
        """A sentence on numbers where the training data had spellings that numbers lose, such as 01 or 2 beside 2.0."""
        there = dict(zip(table.names, table.columns, strict=True))
        for column in self.used:
            cells = there[column.name]
            if column.kind == "category" and column.style in (EXACT, WRITTEN) and cells.dtype.kind == "f":
                if missing_cells(cells).all():
                    continue
                return (
                    f"the column {column.name!r} holds numbers here. Its categories are strings in the training data, "
                    "with spellings that numbers lose, such as 01 or 1.50: read the column as strings"
                )
        return None

    def with_numbers(self, table: Table) -> Table:
        """The table with numbers in place of strings where the schema has numbers."""
        read = {column.name for column in self.used if column.kind == "number"}
        checked = self.check(table)
        return table.with_columns([checked[name] if name in read else table[name] for name in table.names])

    def _styles(self, table: Table) -> dict[str, tuple[str, bool]]:
        """Of columns that hold numbers as strings: how they are read, and whether that is new since training."""
        there = {name: j for j, name in enumerate(table.names)}
        strings = [(column, table.factor(there[column.name])[1]) for column in self.used
                   if column.kind in ("number", "boolean") and column.name in there
                   and table.columns[there[column.name]].dtype == object]  # fmt: skip
        shown = self._shown_decimal(table)
        return {column.name: _number_style(column, values, shown, self.decimal) for column, values in strings}

    def _shown_decimal(self, table: Table) -> str:
        """The decimal sign that strings show, in columns that are not known to be unlike the others, or no numbers."""
        silent = {c.name for c in self.columns if c.kind in KEPT_AS_WRITTEN or c.note.endswith(UNLIKE)
                  or (c.style == "comma" and self.decimal == ".")}  # fmt: skip
        columns = zip(table.names, table.columns, strict=True)
        shown = parse.decimal_of(cells for name, cells in columns if cells.dtype == object and name not in silent)
        return table.shown_decimal(silent) if (shown, self.decimal) == (",", ".") else shown


def _schema(table: Table, plain: bool, kinds: Mapping[str, Any]) -> Schema:
    """`table.decimal` becomes what all columns of strings show that are not said to be something else than numbers."""
    if not table.decimal:
        asked = {name: kind if isinstance(kind, str) else kind.kind for name, kind in kinds.items()}
        table.decimal = table.shown_decimal([name for name, kind in asked.items() if kind != "number"])
    columns = [_decide(table, j, plain, kinds.get(name)) for j, name in enumerate(table.names)]
    if not any(column.kind in KINDS for column in columns):
        reasons = "; ".join(f"{column.name!r} is dropped, {column.note}" for column in columns[:5])
        raise UserError(f"at least one column must hold something to learn from; {reasons}")
    return Schema(tuple(columns), table.decimal or ".")


def _number_style(column: Column, values: list[str | None], shown: str, usual: str) -> tuple[str, bool]:
    """The style in which a column is read, and whether its decimal sign is not the one that it had in training.

    `shown`: the decimal sign of the table, "" where it does not show; `usual`: that of the training data.
    """
    known = [value for value in values if value is not None and not is_marker(value)]
    plain = column.style not in ("signs", "comma")
    _refuse_new_signs(column, known, "" if shown or not plain else "," if usual == "." else ".")
    own = "," if column.style == "comma" else "." if column.style == "signs" else usual
    decimal = own if shown in ("", usual) else shown
    style = parse.number_style(known, decimal)
    if style is None or not any("." in value or "," in value for value in known):
        return "comma" if decimal == "," else "signs", False
    return style, ("," if style == "comma" else ".") not in (own, usual)


def _refuse_new_signs(column: Column, known: list[str], thousands: str) -> None:
    """Cells that may mean several numbers now: percents that are new, and thousands in a column of plain numbers.

    `thousands`: the sign between thousands, where the new data do not show what it means.
    """
    odd = parse.read_in_two_ways(value for value in known if thousands in value) if thousands else None
    percent = None if column.percent else next((value for value in known if "%" in value), None)
    if odd is not None:
        one, other = (f"{parse.number(odd, style):g}" for style in ("signs", "comma"))
        why = f"it may be {one} or {other}, and no other cell shows which: write {one} or {other}"
    elif percent is not None:
        why = "the training data had no percent signs: write the number as it was written there"
    else:
        return
    raise UserError(
        f"column {column.name!r} must hold a number, as in the training data; got {odd or percent!r}: {why}"
    )


def _read(table: Table, j: int, column: Column) -> np.ndarray:
    """The cells in the form of their kind."""
    try:
        return KINDS[column.kind](table.columns[j], column)
    except UnfitCell as error:
        other = {"comma": "signs"}.get(column.style, "comma")
        if column.kind == "number" and parse.number(str(error.value), other) is not None:
            sign, wrong = ("comma", "point") if column.style == "comma" else ("point", "comma")
            remedy = f"it has a decimal {wrong}, other cells have a decimal {sign}: write all numbers in one way"
        else:
            remedy = "correct the cell, or leave it empty if the value is not known"
        raise UserError(
            f"column {column.name!r} must hold a {column.kind}, as in the training data; row "
            f"{table.row_numbers[error.row]} (the first row of data is 1) has {error.value!r}: {remedy}"
        ) from None


def _decide(table: Table, j: int, plain: bool, wish: Any) -> Column:
    name, column = table.names[j], table.columns[j]
    if wish is not None:
        return _as_asked(table, j, wish)
    if plain and column.dtype != object and column.dtype.kind != "M":
        return Column(name, "number" if column.dtype == np.float64 else "boolean")
    if column.dtype == object:
        decided = _decide_strings(table, j)
        return Column(name, "number") if plain and decided.kind in DROPPED else decided  # whole numbers of many digits
    known = column[~missing_cells(column)]
    if not len(known):
        return Column(name, "empty", "all values are missing")
    if len(known) == len(column) and (known == known[0]).all():
        return Column(name, "constant", f"always {cell_text(known[0])}")
    if column.dtype.kind != "f":
        return Column(name, "date" if column.dtype.kind == "M" else "boolean")
    return _decide_numbers(name, column, known)


def _as_asked(table: Table, j: int, wish: Any) -> Column:
    """What the user says that a column is, if its cells can be read so."""
    name, column = table.names[j], table.columns[j]
    if wish == DROP:
        return Column(name, "dropped", "as asked")
    kind, encoder = (wish, None) if isinstance(wish, str) else (wish.kind, wish)
    style = _style(table.factor(j)[1], kind, table.decimal) if column.dtype == object else ""
    note = "as asked" if encoder is None else f"encoded by {type(encoder).__name__}, as asked"
    percent = kind == "number" and column.dtype == object and parse.are_percents(name, column, table.row_numbers)
    decided = Column(name, kind, note, style, encoder, percent)
    try:
        KINDS[kind](column, decided)
    except UnfitCell as error:
        others = "number or category" if kind in ("boolean", "date") and column.dtype == np.float64 else "category"
        raise UserError(
            f"column {name!r} cannot be a {kind}, as asked; row {table.row_numbers[error.row]} (the first row of data "
            f"is 1) has {error.value!r}: correct the cell, or ask for another kind, such as {others}"
        ) from None
    return decided


def _style(values: list[str | None], kind: str, decimal: str) -> str:
    """How strings are read as this kind; "" where one style does not fit all, or none is needed."""
    known = [value.strip() for value in values if value is not None and not is_missing_word(value)]
    if kind == "category":
        return category_style(known)
    if kind == "number":
        return _kept(parse.number_style(known, decimal))
    return _kept(parse.date_style(known)) if kind == "date" else ""


def _kept(style: str | None) -> str:
    """The style that a schema keeps: plain numbers and ISO dates need none, as those of frames and arrays."""
    return "" if style in (None, "plain", "iso") else str(style)


def _decide_numbers(name: str, column: np.ndarray, known: np.ndarray) -> Column:
    if len(known) == len(column) >= IDENTIFIER_ROWS and (known == np.floor(known)).all():
        low, high = known.min(), known.max()
        numbering = high - low + 1 <= len(known) / IDENTIFIER_DENSITY
        if (numbering or named_like_identifier(name)) and len(np.unique(known)) == len(known):
            return Column(name, "identifier", f"a different whole number in every row, {low:.0f} to {high:.0f}")
    return Column(name, "number")


def named_like_identifier(name: str) -> bool:
    lower = name.strip().lower()
    return (
        lower in (*IDENTIFIER_NAMES, *INDEX_NAMES)
        or lower.endswith(("_id", " id", "-id", ".id"))
        or name.endswith("Id")
    )


def _decide_strings(table: Table, j: int) -> Column:
    name, (codes, values) = table.names[j], table.factor(j)
    there = [value is not None and not is_missing_word(value) for value in values]
    known = sorted({str(value).strip() for value, real in zip(values, there, strict=True) if real})
    rows = int(np.bincount(codes, minlength=len(values))[np.array(there, dtype=bool)].sum())
    if not known:
        return Column(name, "empty", "all values are missing")
    constant = len(known) == 1 and rows == len(codes)
    if name in table.declared and not constant:
        return Column(name, "category", style=category_style(known))
    if parse.is_boolean(known):
        return Column(name, "boolean")
    numbers = [value for value in known if not is_marker(value)]
    code = example_of_codes(numbers)
    style = parse.number_style(known, table.decimal)
    if style and code is None:
        return _decide_parsed_numbers(table, j, style)
    if constant:
        return Column(name, "constant", f"always {_short(known[0])}")
    if style := parse.date_style(known):
        return Column(name, "date", _date_note(known, style), _kept(style))
    if code is None:
        parse.refuse_two_signs(name, table.columns[j].tolist(), table.decimal, table.row_numbers)
        return _decide_words(name, known, rows)
    begins = "begins with 0" if code.lstrip("+-")[0] == "0" else "has more digits than a number can hold"
    return _decide_words(name, known, rows, f"codes: {_short(code)} {begins}; ask for the kind number if it is one")


def _decide_parsed_numbers(table: Table, j: int, style: str) -> Column:
    name, (codes, values) = table.names[j], table.factor(j)
    found = np.array([np.nan if v is None or is_marker(v) else parse.number(v, style) for v in values], dtype=float)
    column = found[codes]
    if (column == column[0]).all():
        return Column(name, "constant", f"always {cell_text(column[0])}")
    decision = _decide_numbers(name, column, column[~np.isnan(column)])
    percent = parse.are_percents(name, table.columns[j], table.row_numbers)
    note = decision.note or _number_note(values, style, table.decimal)
    return Column(name, decision.kind, note, _kept(style), percent=percent)


def _number_note(values: list[str | None], style: str, decimal: str) -> str:
    """How strings were read as numbers, with an example where that was not certain."""
    odd = parse.read_in_two_ways(values) if style != "plain" else None
    if odd is not None:
        return f"{_short(odd)} is read as {parse.number(odd, style):g}"
    if decimal == "," and style != "comma" and any(value is not None and "." in value for value in values):
        return f"with decimal points{UNLIKE}"
    if style == "comma":
        return "with decimal commas" + ("" if decimal == "," else UNLIKE)
    return "" if style == "plain" else f"read from strings such as {_example(values)}"


def _decide_words(name: str, known: list[str], rows: int, why: str = "") -> Column:
    """Few different values are a category; many are a text if they have several words, else identifiers."""
    share = len(known) / rows
    sample = known[:: max(1, len(known) // 2000)]
    words = sum(len(value.split()) for value in sample) / len(sample)
    few = len(known) <= max(FEW_VALUES, FEW_SHARE * rows)
    if not few and (words >= TEXT_WORDS or (words >= NAME_WORDS and share >= MOSTLY_DIFFERENT)):
        return Column(name, "text", f"{words:.0f} words on average")
    if share >= ALL_DIFFERENT and rows > FEW_VALUES:
        note = f"a different string in nearly every row, such as {_short(known[0])}"
        return Column(name, "identifier", "; ".join(filter(None, (note, why))))
    note = why or ("" if few else f"{len(known)} different values")
    return Column(name, "category", note, category_style(known))


def _date_note(known: list[str], style: str) -> str:
    if parse.ambiguous(known, style):
        return f"read as {style}; the day could also come first"
    return "" if style == "iso" else f"read as {style}"


def _example(values: list[str | None]) -> str:
    return next((_short(v) for v in values if v is not None and parse.number(v, "plain") is None), "''")


def _short(text: str) -> str:
    return repr(text if len(text) <= 30 else text[:27] + "...")
