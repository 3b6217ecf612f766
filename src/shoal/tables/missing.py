"""Finds missing cells: one test for a cell, one for a column, one for the words of text files."""

from __future__ import annotations

import functools
from decimal import Decimal
from typing import Any

import numpy as np

from shoal.tables.spelling import is_code

# Strings that stand for a missing value among words, spelled exactly so. "None" is not one of them: it may be a class.
MISSING_WORDS = frozenset({"", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "-nan", "NULL", "null", "?"})
# Strings that stand for a missing value among numbers and dates, lower case.
MISSING_MARKERS = frozenset(word.lower() for word in MISSING_WORDS) | {"n.a.", "none", "-", "--", ".", "missing", "nil"}
MISSING_TYPES = {"NoneType", "NAType", "NaTType", "MaskedConstant"}  # by name: pandas need not be installed


def is_missing(cell: Any) -> bool:
    """Whether a cell of any library is missing: None, NaN, NaT, pandas' NA, numpy's masked.

    >>> [is_missing(cell) for cell in (None, float("nan"), np.datetime64("NaT"), 0, "")]
    [True, True, True, False, False]
    """
    if type(cell).__name__ in MISSING_TYPES:
        return True
    if isinstance(cell, Decimal):
        return cell.is_nan()
    return isinstance(cell, (float, np.floating, np.datetime64, np.timedelta64)) and bool(cell != cell)


def missing_cells(column: np.ndarray) -> np.ndarray:
    """(n,) bool of one column of a table: NaN, NaT, None and blank strings are missing.

    >>> missing_cells(np.array(["a", None, " "], dtype=object)).tolist()
    [False, True, True]
    """
    if column.dtype == object:
        found = (cell is None or not cell.strip() for cell in column)
        return np.fromiter(found, dtype=bool, count=len(column))
    if column.dtype.kind == "M":
        return np.isnat(column)
    return np.isnan(column) if column.dtype.kind == "f" else np.zeros(len(column), dtype=bool)


def is_marker(text: str, others: frozenset[str] = frozenset()) -> bool:
    """Whether a cell among numbers or dates says that its value is missing; `others`: words that the user named."""
    bare = text.strip()
    return bare.lower() in MISSING_MARKERS or is_named(bare, others)


def is_missing_word(text: str, others: frozenset[str] = frozenset()) -> bool:
    """The same for a cell among words, where "None" and "-" are values.

    >>> [is_missing_word(cell) for cell in ("NA", " ", "None", "-", "Na")]
    [True, True, False, False, False]
    """
    bare = text.strip()
    return bare in MISSING_WORDS or is_named(bare, others)


def is_named(text: str, others: frozenset[str]) -> bool:
    """Whether a cell is one of the user's words for missing ones, or the same number, however it is written.

    >>> [is_named(cell, frozenset({"999", "gone"})) for cell in ("999.0", " gone", "0999", "9,99", "99")]
    [True, True, False, False, False]
    """
    if not others:
        return False
    bare = text.strip()
    return bare in others or bool((numbers := named_numbers(others)) and _number(bare) in numbers)


@functools.lru_cache(maxsize=32)
def named_numbers(others: frozenset[str]) -> frozenset[float]:
    """The numbers among the user's words for missing cells."""
    return frozenset(number for word in others if (number := _number(word)) is not None)


def _number(text: str) -> float | None:
    """A code, such as 0999, is no number."""
    try:
        return None if "_" in text or is_code(text) else float(text)
    except ValueError:
        return None
