"""The options of reading a table, each in one place (see `shoal.options`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shoal.errors import UserError
from shoal.options import Options, option
from shoal.tables.kinds import KINDS
from shoal.validate import strings


def _pairs(name: str, value: Any) -> tuple[str, ...]:
    pairs = strings(name, value)
    for pair in pairs:
        if "=" not in pair:
            raise UserError(f"{name} must be a column and its kind, as in zip=category; got {pair!r}")
    return pairs


@dataclass(frozen=True)
class ReadingOptions(Options):
    """How a file is read."""

    sep: str | None = option(
        None, "Separator: one character, or comma, tab, semicolon, bar, blanks. (default: guessed)"
    )
    header: bool | None = option(
        None, "Whether the first line holds names. (default: guessed)", flags="--header/--no-header"
    )
    missing: tuple[str, ...] = option(
        (), "A cell that means 'not known', beside blank, NA, ? and the like; repeatable."
    )


@dataclass(frozen=True)
class DataOptions(ReadingOptions):
    """How a file to learn from is read, and what of it is used."""

    drop: tuple[str, ...] = option((), "Leave this column out; repeatable.")
    kinds: tuple[str, ...] = option(
        (), f"What a column is, where the guess is wrong, as in zip=category: {', '.join(KINDS)}; repeatable.",
        check=_pairs, flags="--kind", metavar="COLUMN=KIND", new=True,
    )  # fmt: skip
    target: str | None = option(None, "Column to predict: its name, or its number (0 is the first, -1 the last).")

    def kind_of_columns(self) -> dict[str, str]:
        """What the user says of columns.

        >>> DataOptions(kinds=("zip=category", "a=b=text")).kind_of_columns()
        {'zip': 'category', 'a=b': 'text'}
        """
        pairs = (pair.rpartition("=") for pair in self.kinds)
        return {column: kind for column, _, kind in pairs}

    def named(self) -> list[str]:
        """Columns that the user named or numbered."""
        return [*([] if self.target is None else [self.target]), *self.drop, *self.kind_of_columns()]


@dataclass(frozen=True)
class RowOptions(DataOptions):
    """The same, and the columns that say how rows count and which of them belong together."""

    groups: str | None = option(
        None, "Column that names groups: rows of a group stay in one fold. It is no input.", metavar="COLUMN",
        new=True,
    )  # fmt: skip
    time: str | None = option(
        None, "Column of dates or numbers: train on earlier rows, score on later ones. It stays an input unless "
        "dropped.", metavar="COLUMN", new=True,
    )  # fmt: skip
    weight: str | None = option(None, "Column of weights of the rows. It is no input.", metavar="COLUMN", new=True)

    def named(self) -> list[str]:
        return [*super().named(), *(name for name in (self.groups, self.time, self.weight) if name is not None)]
