"""The options of reading a table, each in one place (see `shoal.options`)."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.options import Options, option


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
    target: str | None = option(None, "Column to predict: its name, or its number (0 is the first, -1 the last).")
