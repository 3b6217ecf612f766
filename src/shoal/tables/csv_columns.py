"""Cells of a text file to columns: numbers where every cell is one or missing, else strings.

A file is read in blocks of rows, so that few of its cells are in memory as strings at a time. A file that holds
nothing but numbers is read by numpy, which gives the same numbers ten times as fast.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from shoal.tables.missing import is_marker

BLOCK = 500  # rows; few, so that their cells stay in the processor's cache
RESTARTS = 3  # after cells that are no numbers in columns that began with numbers


class UnexpectedRows(Exception):
    """Rows that differ from the first ones: in length, or with words (in the columns `words`) where numbers were."""

    def __init__(self, words: Iterable[int] = ()) -> None:
        self.words = set(words)


def typed(cells: Sequence[str], markers: frozenset[str]) -> np.ndarray:
    """float64 where every cell is a number or missing, else strings and None.

    >>> typed(["1", "NA", " 2.5"], frozenset()).tolist(), typed(["1_2", "?"], frozenset()).tolist()
    ([1.0, nan, 2.5], ['1_2', None])
    """
    try:
        return numbers(cells, markers)
    except ValueError:
        value = _Meanings(lambda cell: _string(cell, markers))
        column = np.empty(len(cells), dtype=object)
        column[:] = [value[cell] for cell in cells]
        return column


def numbers(cells: Sequence[str], markers: frozenset[str], underscores: bool = True) -> np.ndarray:
    """The cells as numbers; ValueError where one is neither a number nor missing."""
    if not markers and not (underscores and any("_" in cell for cell in cells)):
        try:
            return np.fromiter(map(float, cells), dtype=np.float64, count=len(cells))
        except ValueError:
            pass
    value = _Meanings(lambda cell: _number(cell, markers))
    return np.fromiter((value[cell] for cell in cells), dtype=np.float64, count=len(cells))


class _Meanings(dict[str, Any]):
    """What each different cell means, worked out once."""

    def __init__(self, meaning: Callable[[str], Any]) -> None:
        super().__init__()
        self.meaning = meaning

    def __missing__(self, cell: str) -> Any:
        self[cell] = value = self.meaning(cell)
        return value


def _number(cell: str, markers: frozenset[str]) -> float:
    """As `float` reads it, except that an underscore is no part of a number: "1_2" is a code, not twelve."""
    if is_marker(cell, markers):
        return float("nan")
    if "_" in cell:
        raise ValueError("underscore")
    return float(cell)


def _string(cell: str, markers: frozenset[str]) -> str | None:
    return None if is_marker(cell, markers) else cell.strip()


def read_columns(
    head: Sequence[Sequence[str]], rest: Callable[[], Iterator[list[str]]], markers: frozenset[str], underscores: bool
) -> list[np.ndarray]:
    """Columns of the first rows (`head`) and all others, which each call of `rest` reads anew.

    The first rows tell which columns hold numbers. Where a later row shows a word, reading starts again.
    """
    words = {j for j, cells in enumerate(zip(*head, strict=True)) if typed(cells, markers).dtype == object}
    for _ in range(RESTARTS):
        try:
            return _grow(head, rest(), words, markers, underscores)
        except UnexpectedRows as other:
            if not other.words:
                raise
            words |= other.words
    raise UnexpectedRows


def _grow(
    head: Sequence[Sequence[str]],
    rest: Iterator[list[str]],
    words: set[int],
    markers: frozenset[str],
    underscores: bool,
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
                parts[j].append([known[c] for c in cells] if j in words else numbers(cells, markers, underscores))
            except ValueError:
                unlike.add(j)
        if unlike:
            raise UnexpectedRows(unlike)
        block = list(itertools.islice(rest, BLOCK))
    return [_strings(found) if j in words else np.concatenate(found) for j, found in enumerate(parts)]


def _strings(parts: list[list[str | None]]) -> np.ndarray:
    column = np.empty(sum(map(len, parts)), dtype=object)
    column[:] = list(itertools.chain.from_iterable(parts))
    return column


def all_numbers(lines: Iterable[str], separator: str, quote: str | None, skip: int, width: int) -> list[np.ndarray]:
    """Columns of a file whose cells are all numbers; ValueError where one is not."""
    found = np.loadtxt(
        lines, delimiter=separator, quotechar=quote, skiprows=skip, comments=None, ndmin=2, dtype=np.float64
    )
    if found.shape[1] != width:
        raise ValueError("width")
    return [np.ascontiguousarray(found[:, j]) for j in range(width)]
