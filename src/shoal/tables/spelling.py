"""The spelling of categories: as in the file, to the last character.

Two spellings are one only where a typed column cannot tell them apart: pandas writes the number 1 as "1.0" once its
column has a missing cell, and true is "True" or "true". A column that has both spellings of a value keeps them apart
(its style is `EXACT`), so nothing is lost.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection

EXACT = "exact"  # the style of a column of categories in which no two spellings are one
WRITTEN = "written"  # that of one with numbers which columns of numbers spell in another way
LARGEST_WHOLE = 1 << 53  # float64 has every whole number up to here
_WHOLE = re.compile(r"(-?(?:0|[1-9]\d*))\.0", re.ASCII)
_OTHERS = {"True": "true", "False": "false", "-0.0": "0"}


def one_spelling(cell: str) -> str:
    """
    >>> [one_spelling(cell) for cell in ("1.0", "-3.0", "True", "01001", "1.00", "1e5", "+1", "0.50")]
    ['1', '-3', 'true', '01001', '1.00', '1e5', '+1', '0.50']
    """
    if cell in _OTHERS:
        return _OTHERS[cell]
    whole = _WHOLE.fullmatch(cell)
    return whole[1] if whole else cell


def spellings(value: str, style: str) -> list[str]:
    """All cells that are this category.

    >>> spellings("1", ""), spellings("1", "exact"), spellings("red", "")
    (['1', '1.0'], ['1'], ['red'])
    """
    others = [] if style == EXACT else [*(cell for cell, one in _OTHERS.items() if one == value), f"{value}.0"]
    return [value, *dict.fromkeys(cell for cell in others if one_spelling(cell) == value)]


def category_style(values: Collection[str]) -> str:
    """EXACT or WRITTEN where a column of numbers cannot have these values, else "".

    >>> category_style(["1", "1.0"]), category_style(["01001", "7"]), category_style(["1", "2.0", "x"])
    ('exact', 'written', '')
    """
    return EXACT if would_merge(values) else WRITTEN if any(map(_is_respelled, values)) else ""


def would_merge(values: Collection[str]) -> bool:
    """Whether one spelling for each value would make one of two different values."""
    return len({one_spelling(value) for value in values}) < len(set(values))


def _is_respelled(cell: str) -> bool:
    """Whether a cell is a number that columns of numbers spell in another way, such as 01001 or 1.50."""
    try:
        value = float(cell)
    except ValueError:
        return False
    return math.isfinite(value) and one_spelling(repr(value)) != one_spelling(cell)


def is_code(cell: str) -> bool:
    """Whether a whole number begins with a zero, or has more digits than float64 holds exactly.

    >>> [is_code(cell) for cell in ("01001", "12345678901234567890", "0", "100", "00.5", "1e20")]
    [True, True, False, False, False, False]
    """
    digits = cell.strip().lstrip("+-")
    if not (digits.isascii() and digits.isdigit()):
        return False
    return (len(digits) > 1 and digits[0] == "0") or (len(digits) > 15 and int(digits) > LARGEST_WHOLE)


def example_of_codes(values: Collection[str]) -> str | None:
    """A code among strings that are all whole numbers: they are codes, not numbers. None where they are not.

    >>> example_of_codes(["7", "01001"]), example_of_codes(["7.5", "01001"]), example_of_codes(["7", "8"])
    ('01001', None, None)
    """
    code = next((value for value in values if is_code(value)), None)
    if code is None or not all(value.strip().lstrip("+-").isdigit() for value in values):
        return None
    return code
