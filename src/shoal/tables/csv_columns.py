"""Cells of a text file to columns: numbers where every cell is one or missing, else strings.

Cells such as "01001" and whole numbers that float64 does not hold exactly are no numbers here: `shoal.tables.spelling`.

A file is read in blocks of rows, so that few of its cells are in memory as strings at a time. A file that holds
nothing but numbers is read by numpy, which gives the same numbers ten times as fast.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from shoal.tables.missing import is_marker, is_missing_word
from shoal.tables.spelling import LARGEST_WHOLE, is_code

BLOCK = 500  # rows; few, so that their cells stay in the processor's cache
LOOK = 1 << 17  # bytes that are looked at together, for the same reason
RESTARTS = 3  # after cells that are no numbers in columns that began with numbers


class UnexpectedRows(Exception):
    """Rows that differ from the first ones: in length, or with words (in the columns `words`) where numbers were."""

    def __init__(self, words: Iterable[int] = ()) -> None:
        self.words = set(words)


def typed(cells: Sequence[str], markers: frozenset[str]) -> np.ndarray:
    """float64 where every cell is a number or missing, else strings and None; NaN where all are missing.

    >>> typed(["1", "NA", " 2.5"], frozenset()).tolist(), typed(["1_2", "?"], frozenset()).tolist()
    ([1.0, nan, 2.5], ['1_2', None])
    >>> typed(["01001", "7"], frozenset()).tolist(), typed(["None", "-"], frozenset()).tolist()
    (['01001', '7'], ['None', '-'])
    """
    try:
        found = numbers(cells, markers)
        if not np.isnan(found).all():
            return found
    except ValueError:
        pass
    return as_written(cells, markers)


def as_written(cells: Sequence[str], markers: frozenset[str]) -> np.ndarray:
    """Strings and None; NaN where all are missing."""
    value = _Meanings(lambda cell: _string(cell, markers))
    return _strings([[value[cell] for cell in cells]])


def numbers(cells: Sequence[str], markers: frozenset[str], careful: bool = True) -> np.ndarray:
    """The cells as numbers; ValueError where one is neither a number nor missing.

    `careful`: cells may have underscores or begin with a zero.
    """
    found = None
    if not markers and not careful:
        with suppress(ValueError):
            found = np.fromiter(map(float, cells), dtype=np.float64, count=len(cells))
    if found is None:
        value = _Meanings(lambda cell: _number(cell, markers, careful))
        found = np.fromiter((value[cell] for cell in cells), dtype=np.float64, count=len(cells))
    if _large(found) and any(is_code(cells[row]) for row in np.flatnonzero(np.abs(found) >= LARGEST_WHOLE).tolist()):
        raise ValueError("code")
    return found


def _large(found: np.ndarray) -> bool:
    """Whether there are numbers among which float64 does not have every whole one."""
    high, low = np.fmax.reduce(found, axis=None), np.fmin.reduce(found, axis=None)  # NaN is neither
    return bool(high >= LARGEST_WHOLE or low <= -LARGEST_WHOLE)  # 2**53 + 1 becomes 2**53


class _Meanings(dict[str, Any]):
    """What each different cell means, worked out once."""

    def __init__(self, meaning: Callable[[str], Any]) -> None:
        super().__init__()
        self.meaning = meaning

    def __missing__(self, cell: str) -> Any:
        self[cell] = value = self.meaning(cell)
        return value


def _number(cell: str, markers: frozenset[str], careful: bool) -> float:
    """As `float` reads it, except that an underscore is no part of a number: "1_2" is a code, not twelve."""
    if is_marker(cell, markers):
        return float("nan")
    if "_" in cell:
        raise ValueError("underscore")
    if careful and is_code(cell):
        raise ValueError("code")
    return float(cell)


def _string(cell: str, markers: frozenset[str]) -> str | None:
    return None if is_missing_word(cell, markers) else cell.strip()


def begins_with_zero(content: bytes) -> bool:
    """Whether a cell may be a whole number that begins with a zero, such as 01001. A quick look at all bytes.

    >>> begins_with_zero(b"a,b\\n1,01001"), begins_with_zero(b"a,b\\n1.005,100\\n0.5,1e-05")
    (True, False)
    """
    parts = ((b",," if at < 3 else b"") + content[max(0, at - 3) : at + LOOK] for at in range(0, len(content), LOOK))
    return any(map(_begins_with_zero, parts))


def _begins_with_zero(content: bytes) -> bool:
    """The same from the third byte on: what is before a zero, and before that, tells whether it is in an exponent."""
    found = np.frombuffer(content, dtype=np.uint8)
    after = found[2:-1] == ord("0")
    after &= found[3:] - np.uint8(ord("0")) < 10
    after &= found[1:-2] - np.uint8(ord(".")) > ord("9") - ord(".")  # neither a digit nor a point
    places = np.flatnonzero(after)
    earlier, before = found[places], found[places + 1]
    exponent = _is_one_of(before, b"eE") | (_is_one_of(before, b"+-") & _is_one_of(earlier, b"eE"))
    return not exponent.all()


def _is_one_of(found: np.ndarray, characters: bytes) -> np.ndarray:
    known = np.zeros(256, dtype=bool)
    known[list(characters)] = True
    return known[found]


def read_columns(
    head: Sequence[Sequence[str]],
    rest: Callable[[], Iterator[list[str]]],
    markers: frozenset[str],
    careful: bool,
    strings: Iterable[int] = (),
) -> list[np.ndarray]:
    """Columns of the first rows (`head`) and all others, which each call of `rest` reads anew.

    The first rows tell which columns hold numbers. Where a later row shows a word, reading starts again. `strings`:
    columns whose cells are kept as they are written.
    """
    kept = set(strings)
    found = [typed(cells, markers) for cells in zip(*head, strict=True)]
    words = kept | {j for j, column in enumerate(found) if column.dtype == object}
    unknown = {j for j, column in enumerate(found) if j not in words and np.isnan(column).all()}
    for _ in range(RESTARTS):
        try:
            columns = _grow(head, rest(), words | unknown, markers, careful)
        except UnexpectedRows as other:
            if not other.words:
                raise
            words |= other.words
            continue
        for j in unknown:
            if columns[j].dtype == object:
                columns[j] = typed(["" if cell is None else cell for cell in columns[j]], markers)
        return columns
    raise UnexpectedRows


def _grow(
    head: Sequence[Sequence[str]],
    rest: Iterator[list[str]],
    words: set[int],
    markers: frozenset[str],
    careful: bool,
) -> list[np.ndarray]:
    width = len(head[0])
    known = _Meanings(lambda cell: _string(cell, markers))
    parts: list[list[Any]] = [[] for _ in range(width)]
    block: Sequence[Sequence[str]] = head
    while block:
        if set(map(len, block)) != {width}:
            raise UnexpectedRows
        unlike = set()
        for j, cells in enumerate(zip(*block, strict=True)):
            try:
                parts[j].append([known[c] for c in cells] if j in words else numbers(cells, markers, careful))
            except ValueError:
                unlike.add(j)
        if unlike:
            raise UnexpectedRows(unlike)
        block = list(itertools.islice(rest, BLOCK))
    return [_strings(found) if j in words else np.concatenate(found) for j, found in enumerate(parts)]


def _strings(parts: list[list[str | None]]) -> np.ndarray:
    column = np.empty(sum(map(len, parts)), dtype=object)
    column[:] = list(itertools.chain.from_iterable(parts))
    return column if any(cell is not None for cell in column) else np.full(len(column), np.nan)


def all_numbers(lines: Iterable[str], separator: str, quote: str | None, skip: int, width: int) -> list[np.ndarray]:
    """Columns of a file whose cells are all numbers; ValueError where one is not, or may be a code of many digits."""
    found = np.loadtxt(
        lines, delimiter=separator, quotechar=quote, skiprows=skip, comments=None, ndmin=2, dtype=np.float64
    )
    if found.shape[1] != width:
        raise ValueError("width")
    if _large(found):
        raise ValueError("code")
    return [np.ascontiguousarray(found[:, j]) for j in range(width)]
