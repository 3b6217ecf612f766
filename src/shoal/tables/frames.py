"""Columns of pandas, polars, pyarrow and numpy to four types of arrays: float64, bool, datetime64[us], str and None.

Whole numbers that float64 does not hold exactly become strings: they are codes. Frames are recognised by their methods,
not by their class: none of these libraries but numpy is imported here.
"""

from __future__ import annotations

import datetime
import decimal
import numbers
from collections.abc import Iterable
from typing import Any

import numpy as np

from shoal.errors import UserError, WrongType
from shoal.tables.missing import MISSING_TYPES, is_missing
from shoal.tables.spelling import LARGEST_WHOLE, one_spelling

DATE_TYPES = (datetime.date, np.datetime64)  # datetime.datetime and pandas.Timestamp are dates, too


def from_array(values: Any, name: str) -> np.ndarray:
    """Any one-dimensional array or sequence.

    >>> from_array([1, None, 2.5], "size").tolist()
    [1.0, nan, 2.5]
    >>> from_array(["a", 1, 2.0, None, True], "mixed").tolist()
    ['a', '1', '2', None, 'true']
    """
    array = values if isinstance(values, np.ndarray) else _array(values)
    if array.ndim != 1:
        raise UserError(f"a column must have one dimension; {name!r} has {array.ndim}: give each its own column")
    array = unmasked(array)
    kind = array.dtype.kind
    if kind in "iuf":
        return _texts(array.tolist()) if beyond(array) else array.astype(np.float64, copy=False)
    if kind == "b":
        return array
    if kind == "M":
        return array.astype("datetime64[us]")
    if kind == "m":
        return _seconds(array)
    if kind == "c":
        raise UserError(f"Complex data not supported: column {name!r} is complex; give its real and imaginary parts")
    if kind == "U":
        return array.astype(object)
    return _from_objects(array.tolist() if kind == "S" else array, name)


def from_column(values: Any, name: str) -> tuple[np.ndarray, bool]:
    """A column of any library, and whether it was declared to be a category."""
    if hasattr(values, "iloc") and hasattr(values, "dtype"):
        return from_pandas(values, name)
    if hasattr(values, "null_count") and hasattr(values, "to_physical"):
        return from_polars(values, name)
    if hasattr(values, "null_count") and hasattr(values, "to_pylist"):
        return from_arrow(values, name)
    return from_array(values, name), False


def from_pandas(series: Any, name: str) -> tuple[np.ndarray, bool]:
    """A pandas column, and whether it was declared to be a category."""
    dtype = series.dtype
    if str(dtype) == "category":
        texts = [cell_text(value) for value in series.cat.categories]
        return _take_or_none(texts, series.cat.codes.to_numpy()), True
    kind = getattr(dtype, "kind", "O")
    if kind in "iuf":
        found = series.to_numpy(dtype=np.float64, na_value=np.nan)
        return (found if kind == "f" else _exact(found, series)), False
    if hasattr(dtype, "pyarrow_dtype"):  # pandas itself converts some of Arrow's types, and fails on others
        return from_arrow(series.array.__arrow_array__(), name)
    if kind == "M":
        if getattr(series.dt, "tz", None) is not None:
            series = series.dt.tz_convert("UTC").dt.tz_localize(None)
        return series.to_numpy(dtype="datetime64[us]"), False
    if kind == "m":
        return _seconds(series.to_numpy(dtype="timedelta64[us]")), False
    if kind == "b" and not isinstance(dtype, np.dtype) and not series.isna().any():
        return series.to_numpy(dtype=bool), False
    if str(dtype).startswith("period"):
        return series.dt.to_timestamp().to_numpy(dtype="datetime64[us]"), False
    if str(dtype) in ("string", "str") or str(dtype).startswith("string["):
        return series.to_numpy(dtype=object, na_value=None), False
    return from_array(series.to_numpy() if isinstance(dtype, np.dtype) else series.to_numpy(dtype=object), name), False


def from_polars(series: Any, name: str) -> tuple[np.ndarray, bool]:
    """A polars column, and whether it was declared to be a category."""
    kind = str(series.dtype).partition("(")[0]
    declared = kind in ("Categorical", "Enum")
    missing = series.null_count() > 0
    plain = kind.startswith(("Int", "UInt", "Float", "Date", "Duration")) or (kind == "Boolean" and not missing)
    if kind.startswith(("Int", "UInt")) and missing:
        return _exact(series.cast(float).to_numpy(), series), False  # a type of Python means Float64
    if plain:
        return from_array(series.to_numpy(), name), False
    return from_array(_objects(series.to_list()), name), declared


def from_arrow(chunks: Any, name: str) -> tuple[np.ndarray, bool]:
    """A pyarrow column, and whether it was declared to be a category (a dictionary, in Arrow's words)."""
    kind = str(chunks.type)
    if kind.startswith("dictionary"):
        return _texts(chunks.to_pylist()), True
    if kind.startswith(("int", "uint")) and chunks.null_count:
        return _exact(chunks.to_numpy().astype(np.float64), chunks), False
    if kind.startswith(("int", "uint", "float", "double", "halffloat")):
        return from_array(chunks.to_numpy(), name), False
    if kind.startswith(("timestamp", "date", "duration")):
        return from_array(chunks.to_numpy(), name), False
    return from_array(_objects(chunks.to_pylist()), name), False


def cell_text(value: Any) -> str | None:
    """A cell as a string, spelled as files have it; whole numbers have no decimal point (see `spelling`)."""
    if isinstance(value, str):
        return value
    if is_missing(value):
        return None
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, datetime.datetime) and value.time() == datetime.time() and value.tzinfo is None:
        return value.date().isoformat()
    if isinstance(value, numbers.Integral):
        return str(int(value))
    if isinstance(value, (numbers.Real, np.floating)):
        return one_spelling(repr(float(value)))
    if isinstance(value, decimal.Decimal) and value.is_finite():
        text = format(value, "f")
        return text.rstrip("0").rstrip(".") if "." in text else text
    return str(value)


def unmasked(X: Any) -> Any:
    """A masked array of numpy with missing values where it is masked; all else as it is."""
    if not isinstance(X, np.ma.MaskedArray):
        return X
    if X.dtype.kind == "f" or (X.dtype.kind in "iu" and not beyond(X.compressed())):
        return np.ma.filled(X.astype(np.float64), np.nan)
    cells = np.array(X.data, dtype=object)
    cells[np.ma.getmaskarray(X)] = None
    return cells


def beyond(array: np.ndarray) -> bool:
    """Whether there are whole numbers that float64 does not hold exactly."""
    if array.dtype.kind not in "iu" or array.dtype.itemsize < 8 or not array.size:
        return False
    return int(array.max()) > LARGEST_WHOLE or int(array.min()) < -LARGEST_WHOLE


def _exact(found: np.ndarray, column: Any) -> np.ndarray:
    """A column of whole numbers as float64 where that is exact, else its cells as strings."""
    if not (np.abs(found) >= LARGEST_WHOLE).any():  # NaN is not
        return found
    listed = column.to_pylist() if hasattr(column, "to_pylist") else column.to_list()
    cells = [None if is_missing(cell) else int(cell) for cell in listed]
    large = any(cell is not None and abs(cell) > LARGEST_WHOLE for cell in cells)
    return _texts(cells) if large else found


def refuse_infinite(column: np.ndarray, name: str) -> None:
    count = int(np.isinf(column).sum())
    if count:
        raise UserError(
            f"numbers must be finite; column {name!r} has {count} infinite value{'s' * (count > 1)} (inf): "
            "take them for missing (on the command line with --missing inf --missing=-inf, in Python with "
            "X.replace([np.inf, -np.inf], np.nan) or np.where(np.isinf(X), np.nan, X)), or replace them by numbers"
        )


def _from_objects(values: Iterable[Any], name: str) -> np.ndarray:
    """Cells of any type. If all are numbers, booleans or dates, so is the result; else they become strings."""
    cells = values if isinstance(values, np.ndarray) else _objects(list(values))
    types = set(map(type, cells))
    if types <= {str, type(None)}:
        return cells
    known = {kind for kind in types if kind.__name__ not in MISSING_TYPES}
    if known & {float, np.float64, np.float32, np.float16}:  # a lone NaN among strings or dates is a missing value
        missing = np.fromiter(map(is_missing, cells), dtype=bool, count=len(cells))
        known = set(map(type, cells[~missing]))
    if not known:
        return np.full(len(cells), np.nan) if types & {float, np.float64, np.float32} else _nothing(len(cells))
    _refuse_cells(cells, known, name)
    if known <= {bool, np.bool_}:
        return cells.astype(bool) if known == types else _texts(cells)
    if all(issubclass(kind, (int, np.integer)) and kind is not bool for kind in known) and any(
        not is_missing(cell) and abs(int(cell)) > LARGEST_WHOLE for cell in cells
    ):
        return _texts(cells)
    if all(issubclass(kind, (numbers.Number, np.number)) and kind not in (bool, np.bool_) for kind in known):
        found = _floats(cells, name)
        return _texts(cells) if decimal.Decimal in known and _loses_digits(cells, found) else found
    if all(issubclass(kind, DATE_TYPES) for kind in known):
        return np.array([_moment(cell) for cell in cells], dtype="datetime64[us]")
    if all(issubclass(kind, (datetime.timedelta, np.timedelta64)) for kind in known):
        return _seconds(np.array([None if is_missing(cell) else cell for cell in cells], dtype="timedelta64[us]"))
    if known == {datetime.time}:
        return np.array([np.nan if is_missing(cell) else _time_of_day(cell) for cell in cells])
    return _texts(cells)


def _refuse_cells(cells: np.ndarray, known: set[type], name: str) -> None:
    """Refuse cells that are lists, dicts or other objects. scikit-learn's checks look for these very words."""
    simple = (str, bytes, numbers.Number, np.generic, datetime.date, datetime.time, datetime.timedelta)
    for kind in known:
        if issubclass(kind, (complex, np.complexfloating)):
            raise UserError(f"Complex data not supported: column {name!r} is complex; give its parts as two columns")
        if issubclass(kind, (list, tuple, set, dict, np.ndarray)) or (
            not issubclass(kind, simple) and kind.__str__ is object.__str__
        ):
            row = next(i for i, cell in enumerate(cells) if type(cell) is kind)
            raise WrongType(
                f"a cell argument must be a string, a number, a boolean, a date or missing; "
                f"column {name!r} has a {kind.__name__} in row {row + 1}: spread it over columns of its own"
            )


def _floats(cells: np.ndarray, name: str) -> np.ndarray:
    try:
        return np.array([np.nan if is_missing(cell) else float(cell) for cell in cells], dtype=np.float64)
    except OverflowError:
        raise UserError(f"numbers must be below 1e308; column {name!r} has a larger one: scale the column") from None


def _loses_digits(cells: np.ndarray, found: np.ndarray) -> bool:
    """Whether decimals are more different than float64 tells, or are whole numbers that it does not hold exactly."""
    if np.isinf(found).any():
        return False  # it is refused later
    known = {cell for cell in cells if not is_missing(cell)}
    large = any(abs(cell) > LARGEST_WHOLE for cell in known) and all(cell == int(cell) for cell in known)
    return large or len(known) > len(np.unique(found[~np.isnan(found)]))


def _moment(cell: Any) -> Any:
    """A date or time without a zone; one with a zone is converted to universal time."""
    if is_missing(cell):
        return np.datetime64("NaT", "us")
    if isinstance(cell, datetime.datetime) and cell.tzinfo is not None:
        cell = cell.astimezone(datetime.timezone.utc).replace(tzinfo=None)
    return np.datetime64(cell, "us")


def _seconds(array: np.ndarray) -> np.ndarray:
    seconds = array.astype("timedelta64[us]").astype(np.int64) / 1e6
    return np.where(np.isnat(array), np.nan, seconds)


def _time_of_day(cell: datetime.time) -> float:
    return cell.hour * 3600.0 + cell.minute * 60.0 + cell.second + cell.microsecond / 1e6


def _texts(cells: Iterable[Any]) -> np.ndarray:
    return _objects([cell_text(cell) for cell in cells])


def _take_or_none(texts: list[str | None], codes: np.ndarray) -> np.ndarray:
    return _objects([*texts, None])[codes]  # the code of a missing category is -1


def _nothing(length: int) -> np.ndarray:
    return np.full(length, None, dtype=object)


def _objects(cells: list[Any]) -> np.ndarray:
    array = np.empty(len(cells), dtype=object)
    array[:] = cells
    return array


def _array(values: Any) -> np.ndarray:
    if hasattr(values, "to_numpy"):
        return np.asarray(values.to_numpy())
    if hasattr(values, "__array__"):
        return np.asarray(values)
    return from_list(list(values))


def from_list(cells: list[Any]) -> np.ndarray:
    """numpy makes strings of mixed cells, [1, "a"] becomes ["1", "a"], and floats of [1, 2**63]. Objects stay."""
    types = set(map(type, cells))
    if types <= {int, float, bool} and not {bool, float} <= types:
        try:
            array = np.array(cells, dtype=None if cells else np.float64)
        except OverflowError:
            return _objects(cells)
        if array.dtype.kind != "f" or float in types or not cells:
            return array
    return _objects(cells)
