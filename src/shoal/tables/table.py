"""`Table`: named columns of numbers, booleans, dates or strings.

Arrays, frames of any library and files are converted to it first, so that they behave alike.
"""

from __future__ import annotations

import warnings
from collections.abc import Container, Iterable, Sequence
from typing import Any

import numpy as np

from shoal.errors import UserError, WrongType
from shoal.tables import frames, parse
from shoal.tables.missing import missing_cells
from shoal.tables.spelling import LARGEST_WHOLE


class Table:
    """Named columns of equal length: float64 (NaN is missing), bool, datetime64[us] (NaT), or object (str or None).

    >>> table = Table.of({"size": [1, None], "colour": ["red", None]})
    >>> table.names, [column.dtype.str for column in table.columns], len(table)
    (['size', 'colour'], ['<f8', '|O'], 2)
    """

    def __init__(
        self,
        names: Sequence[str],
        columns: Sequence[np.ndarray] | None = None,
        *,
        block: np.ndarray | None = None,
        declared: Iterable[str] = (),
        decimal: str = "",
        row_numbers: np.ndarray | None = None,
    ) -> None:
        """`block` (n, d) float64 in place of columns; `declared`: names of columns that were given as categories.

        `decimal`: the decimal sign of its strings, "." or ","; "" where it is not known.
        `row_numbers`: those of its rows where it is from, if it is a part of another table.
        """
        self.names = list(names)
        self.block = block
        self.declared = frozenset(declared)
        self.decimal = decimal
        self._row_numbers = row_numbers
        self._columns = None if columns is None else list(columns)
        self._length = len(block) if block is not None else len(self.columns[0]) if self._columns else 0
        self._cache: dict[Any, Any] = {}  # what is worked out once and used by every fold
        self._places = {name: j for j, name in reversed(list(enumerate(self.names)))}

    @staticmethod
    def of(X: Any, names: Sequence[str] | None = None, missing: Iterable[str] = ()) -> Table:
        """From a 2-D array or nested list, a dict of columns, a list of dicts, a Table, or a frame of another library.

        missing: words for missing values; "inf" and "-inf" are looked for among numbers, too.
        """
        if isinstance(X, Table):
            return X if names is None else X._alike(names, X._columns, block=X.block)
        table = _convert(X, names)
        shape = (len(table), len(table.names))
        if 0 in shape:
            what = "feature(s)" if shape[1] == 0 else "sample(s)"
            raise UserError(f"Found array with 0 {what} (shape={shape}) while a minimum of 1 is required.")
        if len(set(table.names)) < len(table.names):
            twice = next(name for name in table.names if table.names.count(name) > 1)
            raise UserError(f"columns must have different names; {twice!r} occurs twice: rename one of them")
        table = without_infinities(table, missing)
        _refuse_infinities(table)
        return table

    @property
    def columns(self) -> list[np.ndarray]:
        if self._columns is None:
            assert self.block is not None
            self._columns = [self.block[:, j] for j in range(self.block.shape[1])]
        return self._columns

    def __len__(self) -> int:
        return self._length

    def __repr__(self) -> str:
        return f"Table({len(self)} rows, {len(self.names)} columns)"

    def __getitem__(self, name: str) -> np.ndarray:
        return self.columns[self._places[name]]

    def cells(self, name: str) -> Cells:
        """One column, with what is worked out of it once."""
        return Cells(self, self._places[name])

    @property
    def row_numbers(self) -> np.ndarray:
        """(n,) int64: the numbers by which messages name rows. The first row of a file or frame is 1."""
        return np.arange(1, len(self) + 1) if self._row_numbers is None else self._row_numbers

    def take(self, rows: np.ndarray | slice) -> Table:
        """The rows at these positions, or where a mask is true."""
        numbers = self.row_numbers[rows]
        if self.block is not None:
            return Table(self.names, block=self.block[rows], declared=self.declared, row_numbers=numbers)
        columns = [column[rows] for column in self.columns]
        return Table(self.names, columns, declared=self.declared, decimal=self.decimal, row_numbers=numbers)

    def with_columns(self, columns: Sequence[np.ndarray]) -> Table:
        """The same table with other cells."""
        return self._alike(self.names, columns)

    def select(self, positions: Sequence[int]) -> Table:
        """The columns at these positions."""
        names = [self.names[j] for j in positions]
        if self.block is not None:
            return self._alike(names, block=self.block[:, list(positions)])
        if not positions:
            return Table([], block=np.empty((len(self), 0)))
        return self._alike(names, [self.columns[j] for j in positions])

    def _alike(
        self, names: Sequence[str], columns: Sequence[np.ndarray] | None = None, block: np.ndarray | None = None
    ) -> Table:
        """Other columns of the same rows."""
        return Table(
            names, columns, block=block, declared=self.declared & set(names), decimal=self.decimal,
            row_numbers=self._row_numbers,
        )  # fmt: skip

    def shown_decimal(self, without: Container[str] = ()) -> str:
        """The decimal sign that its columns show (see `parse.decimal_of`), "" where none does.

        Numbers that are no strings have decimal points. They count where strings alone would show a comma.
        `without`: names of columns that are no numbers. Those that were given as categories are none either.
        """
        counted = [j for j, name in enumerate(self.names) if not (name in self.declared or name in without)]
        strings = [self.columns[j] for j in counted if self.columns[j].dtype == object]
        if parse.decimal_of(strings) != ",":
            return parse.decimal_of(strings)
        numbers = [self.columns[j] for j in counted if self.columns[j].dtype == np.float64]
        return parse.decimal_of(strings, sum(map(_has_decimal_point, numbers)))

    def remember(self, key: Any, work: Any) -> Any:
        """The result of `work()`, done once per table: folds share it."""
        if key not in self._cache:
            self._cache[key] = work()
        return self._cache[key]

    def forget(self, key: Any) -> None:
        """Free what was remembered."""
        self._cache.pop(key, None)

    def factor(self, position: int) -> tuple[np.ndarray, list[str | None]]:
        """A column of strings as codes (n,) int64 and its sorted different values, None last, if there."""
        return self.remember(("factor", position), lambda: factorise(self.columns[position]))

    def code(self, position: int) -> np.ndarray:
        """(n,) float64: equal cells of one column have equal numbers, and so have missing ones; no number is NaN."""
        column = self.columns[position]
        return _codes(column) if column.dtype != object else self.factor(position)[0].astype(np.float64)


class Cells:
    """One column of a table, and what was worked out of it: folds share that."""

    def __init__(self, table: Table, position: int) -> None:
        self.table, self.position = table, position

    @staticmethod
    def of(column: np.ndarray) -> Cells:
        """Of a column without a table."""
        return Cells(Table([""], [column]), 0)

    def __len__(self) -> int:
        return len(self.table)

    @property
    def values(self) -> np.ndarray:
        """(n,) float64, datetime64[us], or str and None."""
        return self.table.columns[self.position]

    def factor(self) -> tuple[np.ndarray, list[str | None]]:
        """Strings as codes (n,) int64 and their sorted different values, None last, if there."""
        return self.table.factor(self.position)

    def remember(self, key: Any, work: Any) -> Any:
        """The result of `work()`, done once per column of a table."""
        return self.table.remember(("cells", self.position, key), work)


def factorise(column: np.ndarray) -> tuple[np.ndarray, list[str | None]]:
    """Codes and sorted values of an object column, so that neither depends on the order of rows.

    >>> codes, values = factorise(np.array(["b", None, "a", "b"], dtype=object))
    >>> codes.tolist(), values
    ([1, 2, 0, 1], ['a', 'b', None])
    """
    known = set(column)
    values: list[str | None] = [*sorted(value for value in known if value is not None)]
    if None in known:
        values.append(None)
    code = {value: position for position, value in enumerate(values)}
    return np.fromiter(map(code.__getitem__, column), dtype=np.int64, count=len(column)), values


def _codes(column: np.ndarray) -> np.ndarray:
    if column.dtype == bool:
        return column.astype(np.float64)
    numbers = column.astype(np.int64).astype(np.float64) if column.dtype.kind == "M" else column
    return np.where(missing_cells(column), -np.inf, numbers) + 0.0  # -0.0 becomes 0.0


def _has_decimal_point(numbers: np.ndarray) -> bool:
    """Whether numbers, as text, have points that do not separate thousands: 1.5, but neither 2.0 nor 1.234."""
    fractions = numbers[np.isfinite(numbers) & (numbers != np.floor(numbers))]
    return any(parse.number(repr(value), "comma") is None for value in fractions.tolist())


def _convert(X: Any, names: Sequence[str] | None) -> Table:
    if hasattr(X, "iloc") and hasattr(X, "columns"):
        return _from_pandas(X, names)
    if hasattr(X, "collect_schema") and hasattr(X, "collect"):
        X = X.collect()  # a lazy frame of polars
    if hasattr(X, "get_columns"):
        return _from_columns([(c.name, *frames.from_polars(c, c.name)) for c in X.get_columns()], names)
    if hasattr(X, "column_names") and hasattr(X, "itercolumns"):
        pairs = zip(X.column_names, X.itercolumns(), strict=True)
        return _from_columns([(name, *frames.from_arrow(c, name)) for name, c in pairs], names)
    X = rows_as_columns(X)
    if isinstance(X, dict):
        X = _as_columns(X)
        return _from_columns([(str(name), *frames.from_column(c, str(name))) for name, c in X.items()], names)
    if hasattr(X, "nnz") and hasattr(X, "toarray"):
        raise WrongType(f"a sparse matrix ({type(X).__name__}) is not supported: give X.toarray()")
    return _from_array(X, names)


def rows_as_columns(X: Any) -> Any:
    """A list of dicts, which are rows with names, as a dict of columns; all else as it is.

    >>> rows_as_columns([{"size": 1.5, "colour": "red"}, {"colour": "blue"}])
    {'size': [1.5, None], 'colour': ['red', 'blue']}
    """
    if not isinstance(X, (list, tuple)) or not any(isinstance(row, dict) for row in X):
        return X
    other = next((row for row in X if not isinstance(row, dict)), None)
    if other is not None:
        raise UserError(f"a list of rows must hold dicts or lists, not both; got {type(other).__name__} beside dict")
    return {name: [row.get(name) for row in X] for name in dict.fromkeys(name for row in X for name in row)}


def _as_columns(cells: dict[Any, Any]) -> dict[Any, Any]:
    """A dict of columns; a dict of single values is a table of one row."""
    single = [name for name, cell in cells.items() if isinstance(cell, str) or np.ndim(cell) == 0]
    if single and len(single) < len(cells):
        raise UserError(
            f"a dict holds columns (lists of values), or one value per column for a single row; got a single value "
            f"for {single[0]!r} beside columns: give it as a list too"
        )
    return {name: [cell] for name, cell in cells.items()} if single else cells


def _from_pandas(frame: Any, names: Sequence[str] | None) -> Table:
    found = _warned([str(name) for name in frame.columns]) if names is None else list(names)
    dtypes = list(frame.dtypes)
    if dtypes and all(isinstance(dtype, np.dtype) and dtype.kind in "iuf" for dtype in dtypes):
        long = [j for j, dtype in enumerate(dtypes) if dtype.kind in "iu" and dtype.itemsize == 8]
        if not any(frames.beyond(frame.iloc[:, j].to_numpy()) for j in long):
            return Table(found, block=np.ascontiguousarray(frame.to_numpy(dtype=np.float64)))
    parts = [(name, *frames.from_pandas(frame.iloc[:, j], name)) for j, name in enumerate(found)]
    return _from_columns(parts, found)


def _from_columns(parts: list[tuple[str, np.ndarray, bool]], names: Sequence[str] | None) -> Table:
    found = _warned([name for name, _, _ in parts]) if names is None else list(names)
    columns = [column for _, column, _ in parts]
    if len({len(column) for column in columns}) > 1:
        lengths = ", ".join(f"{name!r} {len(column)}" for name, column in zip(found, columns, strict=True))
        raise UserError(f"columns must have equally many rows; got {lengths}: cut them to one length")
    declared = [name for name, (_, _, category) in zip(found, parts, strict=True) if category]
    if columns and all(column.dtype == np.float64 for column in columns):
        return Table(found, block=np.stack(columns, axis=1))
    return Table(found, columns, declared=declared) if columns else Table([], block=np.empty((0, 0)))


def _from_array(X: Any, names: Sequence[str] | None) -> Table:
    array = nested(X) if isinstance(X, (list, tuple)) else frames.unmasked(np.asanyarray(X))
    if isinstance(array, np.matrix):
        array = np.asarray(array)
    if array.ndim != 2:
        raise UserError(
            f"Expected 2D array, got {array.ndim}D array of shape {array.shape} instead. "
            "Reshape your data with X.reshape(-1, 1) if it is one column, or X.reshape(1, -1) if it is one row."
        )
    found = [f"x{j}" for j in range(array.shape[1])] if names is None else list(names)
    if len(found) != array.shape[1]:
        raise UserError(f"names must be as many as columns; got {len(found)} names for {array.shape[1]} columns")
    if array.dtype.kind in "iuf" and not frames.beyond(array):
        return Table(found, block=np.asarray(array, dtype=np.float64))
    columns = [frames.from_array(array[:, j], name) for j, name in enumerate(found)]
    return _from_columns([(name, column, False) for name, column in zip(found, columns, strict=True)], found)


def nested(rows: Sequence[Any]) -> np.ndarray:
    """A list of rows. Cells stay what they are: numpy alone would make strings of the numbers next to a string."""
    try:
        array = np.array(rows)
    except ValueError:
        lengths = sorted({len(row) for row in rows if hasattr(row, "__len__")})
        raise UserError(f"rows must be equally long; got lengths {', '.join(map(str, lengths))}") from None
    kept = array.dtype.kind in "USOMm" or (array.dtype.kind == "f" and bool((np.abs(array) >= LARGEST_WHOLE).any()))
    return np.array(rows, dtype=object) if kept else array


def unique_names(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Different names for all columns, and what was changed, in words: a second "size" becomes "size (2)".

    One without name becomes "Unnamed: 2", as pandas calls it.

    >>> unique_names(["size", "size", ""])
    (['size', 'size (2)', 'Unnamed: 2'], ["the name 'size' occurs more than once: one is now 'size (2)'"])
    """
    given: list[str] = []
    notes: list[str] = []
    if len(set(names)) == len(names) and all(names):
        return list(names), notes
    for position, name in enumerate(names):
        new = own = name or f"Unnamed: {position}"
        count = 1
        while new in given or (count > 1 and new in names):
            count += 1
            new = f"{own} ({count})"
        if count > 1:
            notes.append(f"the name {name!r} occurs more than once: one is now {new!r}")
        given.append(new)
    return given, notes


def listed(names: Sequence[str], most: int = 10) -> str:
    """
    >>> listed(["a", "b", "c"]), listed(["a", "b", "c"], most=2)
    ("'a', 'b' and 'c'", "'a', 'b' and 1 more")
    """
    shown = [repr(name) for name in names[:most]]
    last = f"{len(names) - most} more" if len(names) > most else shown.pop()
    return f"{', '.join(shown)} and {last}" if shown else last


def with_unique_names(X: Any) -> Any:
    """A pandas frame whose columns have different names, with a warning where they had not; all else as it is."""
    if hasattr(X, "set_axis") and hasattr(X, "columns") and not X.columns.is_unique:
        return X.set_axis(_warned([str(name) for name in X.columns]), axis=1)
    return X


def _warned(names: Sequence[str]) -> list[str]:
    """Different names for all columns, with a warning for each that was changed."""
    found, notes = unique_names(names)
    for note in notes:
        warnings.warn(note, UserWarning, stacklevel=2)
    return found


def without_infinities(table: Table, missing: Iterable[str]) -> Table:
    """Infinite numbers that are named as missing become NaN."""
    named = [float(word) for word in missing if word.strip().lower().lstrip("+-") in ("inf", "infinity")]
    if not named:
        return table
    columns = [np.where(np.isin(c, named), np.nan, c) if c.dtype == np.float64 else c for c in table.columns]
    return table.with_columns(columns)


def _refuse_infinities(table: Table) -> None:
    if table.block is not None and not np.isinf(table.block).any():
        return
    for name, column in zip(table.names, table.columns, strict=True):
        if column.dtype == np.float64:
            frames.refuse_infinite(column, name)
