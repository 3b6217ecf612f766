"""Columns that say how rows count and which of them belong together: --groups, --time and --weight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shoal.errors import UserError
from shoal.search.data import TrainingData
from shoal.tables.files import find_column
from shoal.tables.options import RowOptions
from shoal.tables.schema import DROP
from shoal.tables.table import Table
from shoal.terminal import say

NO_INPUTS = {"groups": "names the groups", "weight": "holds the weights of the rows"}


@dataclass(frozen=True)
class RowColumns:
    """The columns by the options that name them."""

    names: dict[str, str]  # option -> column
    drop: tuple[str, ...]  # columns to be left out of the table
    kinds: dict[str, str]

    @staticmethod
    def of(table: Table, target: str, reading: RowOptions) -> RowColumns:
        named = {option: getattr(reading, option) for option in ("groups", "time", "weight")}
        places = {option: find_column(table, name) for option, name in named.items() if name is not None}
        _refuse_twice(table, {"target": find_column(table, target), **places})
        names = {option: table.names[place] for option, place in places.items()}
        dropped = [name for name in reading.drop if find_column(table, name) not in places.values()]
        asked = [name for name in reading.drop if name not in dropped]
        none = dict.fromkeys([*(names[option] for option in NO_INPUTS if option in names), *asked], DROP)
        return RowColumns(names, tuple(dropped), reading.kind_of_columns() | none)

    def describe(self) -> list[str]:
        found = [f"column {self.names[option]!r} {why}, so it is no input" for option, why in NO_INPUTS.items()
                 if option in self.names]  # fmt: skip
        if "time" in self.names:
            found.append(
                f"column {self.names['time']!r} gives the order: networks are scored on later rows than they train on. "
                "Intervals and sets come from the errors on those, and are not guaranteed to hold for still later rows"
            )
        return found

    def arguments(self) -> dict[str, Any]:
        """As estimators take them."""
        return {"sample_weight" if option == "weight" else option: name for option, name in self.names.items()}


def say_notes(data: TrainingData) -> list[str]:
    """Print what was found about rows that depend on each other, and give it back."""
    found = [note.for_command_line() for note in data.notes]
    for line in found:
        say(f"note: {line}")
    return found


def _refuse_twice(table: Table, places: dict[str, int]) -> None:
    seen: dict[int, str] = {}
    for option, place in places.items():
        if place in seen:
            raise UserError(
                f"--{option} must not name the column of --{seen[place]}; {table.names[place]!r} is both: choose "
                "another one"
            )
        seen[place] = option
