"""Texts from the rows of a table: which columns, how they are joined, which rows are skipped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from shoal.errors import UserError
from shoal.tables.files import find_name, read_texts

GAP = "\n\n"


@dataclass
class Texts:
    """The usable rows, as cells of the chosen columns, and notes on what was skipped."""

    file: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    read: int  # rows of the file
    notes: list[str] = field(default_factory=list)


def read(path: Path, columns: Sequence[str] = (), sep: str | None = None, header: bool = True) -> Texts:
    """The texts of a file, from the given columns or from all. Blank and repeated rows are skipped, with a note."""
    names, rows, understood = read_texts(path, sep=sep, header=header)
    places = [find_name(names, column) for column in split_names(columns, names)] or list(range(len(names)))
    for place in places:
        if places.count(place) > 1:
            raise UserError(f"--columns names {names[place]!r} twice; give each column once")
    texts = Texts(path.name, tuple(names[place] for place in places), [], len(rows), list(understood.notes))
    blank, partly = 0, 0
    seen: set[tuple[str, ...]] = set()
    for row in rows:
        cells = tuple(row[place].replace("\r\n", "\n") if row[place].strip() else "" for place in places)
        blank += not any(cells)
        partly += any(cells) and not all(cells)
        if any(cells) and cells not in seen:
            seen.add(cells)
            texts.rows.append(cells)
    repeated = len(rows) - blank - len(texts.rows)
    if blank:
        texts.notes.append(f"{_rows(blank)} skipped: all cells are empty")
    if repeated:
        texts.notes.append(f"{_rows(repeated)} skipped: duplicate text")
    if partly:
        texts.notes.append(f"{_rows(partly)} with an empty cell: the text skips that part")
    if len(texts.rows) < 2:
        found = "no row" if not texts.rows else "only one row"
        raise UserError(f"{path} has {found} with text; at least 2 are needed, one to train on and one to test with")
    return texts


def split_names(given: Sequence[str], names: Sequence[str]) -> list[str]:
    """Column names from one or more flags, separated by commas; a name may contain a comma itself.

    >>> split_names(["statement,solution"], ["statement", "solution"]), split_names(["a, b"], ["a, b", "c"])
    (['statement', 'solution'], ['a, b'])
    """
    parts = [[part] if part in names else part.split(",") for part in given]
    return [name.strip() if name not in names else name for part in parts for name in part if name.strip()]


def _rows(count: int) -> str:
    return f"{count:,} row{'s' * (count != 1)}"


def join(columns: Sequence[str], cells: Sequence[str]) -> str:
    """One text: the columns in order, each under its name; a single column has no name above it.

    >>> join(["statement", "hint", "solution"], ["Add them.", "", "a + b"])
    'statement:\\nAdd them.\\n\\nsolution:\\na + b'
    """
    if len(columns) == 1:
        return cells[0]
    return GAP.join(f"{name}:\n{cell}" for name, cell in zip(columns, cells, strict=True) if cell)


def prompt(columns: Sequence[str], given: Sequence[str]) -> str:
    """A text with its first columns only and the name of the next one, for the model to continue.

    >>> prompt(["statement", "solution"], ["Add them."])
    'statement:\\nAdd them.\\n\\nsolution:\\n'
    """
    if len(columns) < 2:
        return "".join(given)
    if len(given) >= len(columns):
        raise UserError(
            f"the model was trained on the columns {', '.join(columns)}; give at most {len(columns) - 1} of them, "
            f"so that at least one is left to generate; got {len(given)}"
        )
    parts = [f"{name}:\n{cell}" for name, cell in zip(columns, given, strict=False) if cell]
    return GAP.join([*parts, f"{columns[len(given)]}:\n"])


def shape(columns: Sequence[str]) -> str:
    """The format of a text, as shown to users.

    >>> shape(["statement", "solution"])
    'statement:\\n...\\n\\nsolution:\\n...'
    """
    return join(columns, ["..."] * len(columns))


def split(count: int, test: float, seed: int) -> tuple[list[int], list[int]]:
    """Training rows and test rows, at least one of each, drawn with the seed.

    >>> train, tested = split(10, 0.2, seed=0)
    >>> len(train), len(tested), sorted(train + tested) == list(range(10))
    (8, 2, True)
    """
    held = min(max(1, round(count * test)), count - 1)
    order = np.random.default_rng(seed).permutation(count).tolist()
    return sorted(order[held:]), sorted(order[:held])
