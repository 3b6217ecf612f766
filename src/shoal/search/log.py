"""What a round of a search has done, written down so that it can be done again to the bit, without clock or user.

A page of the log is a dict of plain lists, as it stands in `settings.json`:

    recipes  (view, member) of each unit; units are known by their place here
    rungs    in order: which units were `trained`, to how many `epochs` on each fold, and whose weights were `kept` then
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shoal.members import Member
from shoal.search.candidates import Unit
from shoal.search.space import Recipe


class Page:
    """The log of one round. `entry` is what goes into the file."""

    def __init__(self, units: Sequence[Unit]) -> None:
        self.units = list(units)
        self.entry: dict[str, Any] = {
            "recipes": [[unit.recipe.view, unit.recipe.member.as_dict()] for unit in units],
            "rungs": [],
        }
        self._written: dict[int, list[int]] = {}  # epochs of each unit, by its number, as last written down

    def write(self, trained: Sequence[Unit], kept: Sequence[Unit]) -> None:
        """A rung: who was trained and assessed, and who goes on."""
        first = self.units[0].number
        epochs = [unit.fold_epochs.tolist() for unit in trained]
        self._written |= dict(zip([unit.number for unit in trained], epochs, strict=True))
        self.entry["rungs"].append({
            "trained": [unit.number - first for unit in trained],
            "epochs": epochs,
            "kept": [unit.number - first for unit in kept],
        })  # fmt: skip

    def write_end(self, alive: Sequence[Unit]) -> None:
        """The rung in which the round was ended early.

        Some of its units may have been trained, others be as the rung before has left them, and others be lost. All
        that matters later is who was assessed since the last rung, and whose weights are still there.
        """
        nothing: list[int] = []
        trained = [
            unit for unit in self.units
            if unit.epochs and unit.fold_epochs.tolist() != self._written.get(unit.number, nothing)
        ]  # fmt: skip
        kept = [unit for unit in alive if unit.epochs]
        self.write(trained, sorted(kept, key=lambda unit: unit.number))


def read_recipes(entry: dict[str, Any]) -> list[Recipe]:
    """The recipes of a page."""
    return [Recipe(Member.from_dict(member), view) for view, member in entry["recipes"]]
