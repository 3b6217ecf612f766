"""What a round of a search has done, written down so that it can be done again to the bit, without clock or user.

An entry of the log is a dict of plain lists, as it stands in `settings.json`:

    recipes  (encoding, member) of each candidate; candidates are known by their place here
    rungs    in order: which candidates were `trained`, to how many `epochs` on each fold, and whose weights were `kept`
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shoal.members import Member
from shoal.search.candidates import Candidate
from shoal.search.space import Recipe


class LogEntry:
    """The log of one round. `content` is what goes into the file."""

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        self.candidates = list(candidates)
        self.content: dict[str, Any] = {
            "recipes": [[candidate.recipe.encoding, candidate.recipe.member.as_dict()] for candidate in candidates],
            "rungs": [],
        }
        self._written: dict[int, list[int]] = {}  # epochs of each candidate, by its number, as last written down

    def write(self, trained: Sequence[Candidate], kept: Sequence[Candidate]) -> None:
        """A rung: who was trained and assessed, and who goes on."""
        first = self.candidates[0].number
        epochs = [candidate.fold_epochs.tolist() for candidate in trained]
        self._written |= dict(zip([candidate.number for candidate in trained], epochs, strict=True))
        self.content["rungs"].append({
            "trained": [candidate.number - first for candidate in trained],
            "epochs": epochs,
            "kept": [candidate.number - first for candidate in kept],
        })  # fmt: skip

    def write_end(self, alive: Sequence[Candidate]) -> None:
        """The rung in which the round was ended early.

        Some candidates may have been trained, others be as the rung before has left them, and others be lost. All
        that matters later is who was assessed since the last rung, and whose weights are still there.
        """
        nothing: list[int] = []
        trained = [
            candidate for candidate in self.candidates
            if candidate.epochs and candidate.fold_epochs.tolist() != self._written.get(candidate.number, nothing)
        ]  # fmt: skip
        kept = [candidate for candidate in alive if candidate.epochs]
        self.write(trained, sorted(kept, key=lambda candidate: candidate.number))


def read_recipes(entry: dict[str, Any]) -> list[Recipe]:
    """The recipes of an entry."""
    return [Recipe(Member.from_dict(member), encoding) for encoding, member in entry["recipes"]]
