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
        None, "Column separator: one character, or comma, tab, semicolon, bar or blanks. (default: detected)"
    )
    header: bool | None = option(
        None, "Whether the first line holds column names. (default: detected)", flags="--header/--no-header"
    )
    missing: tuple[str, ...] = option(
        (), "Treat cells with this text as missing, in addition to blank, NA, ? and similar; repeatable."
    )


@dataclass(frozen=True)
class DataOptions(ReadingOptions):
    """How a file to learn from is read, and what of it is used."""

    drop: tuple[str, ...] = option((), "Ignore this column; repeatable.")
    kinds: tuple[str, ...] = option(
        (),
        f"Set the kind of a column, as in zip=category: {', '.join(KINDS)}; repeatable.",
        check=_pairs,
        flags="--kind",
        metavar="COLUMN=KIND",
    )
    target: str | None = option(None, "Column to predict: its name or number (0 is the first, -1 the last).")

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
        None,
        "Keep rows with the same value in this column in one fold. The column is not an input.",
        metavar="COLUMN",
    )
    time: str | None = option(
        None,
        "Train on earlier rows and score on later ones, by this column. It stays an input unless dropped.",
        metavar="COLUMN",
    )
    weight: str | None = option(None, "Column with row weights. It is not an input.", metavar="COLUMN")

    def named(self) -> list[str]:
        return [*super().named(), *(name for name in (self.groups, self.time, self.weight) if name is not None)]
