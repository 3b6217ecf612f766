"""Targets, and whether what was measured meets them. Nothing here knows the answer beforehand."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.harness.tables import ResultTable, significant


@dataclass(frozen=True)
class Target:
    """A bound, and what was measured against it; None: not measured in this run.

    >>> Target("native against reference, worst cell", 12.0, 10.0, unit="x").met
    True
    >>> Target("peak memory", 1.2, 1.0, at_least=False, unit=" GB").met
    False
    """

    what: str
    measured: float | None
    bound: float
    at_least: bool = True
    unit: str = ""
    note: str = ""
    complete: bool = True  # False: less was measured than the target speaks of
    scaled: bool = False  # extrapolated from a part: marked with ~

    @property
    def met(self) -> bool | None:
        if self.measured is None:
            return None
        if math.isnan(self.measured):
            return False
        return self.measured >= self.bound if self.at_least else self.measured < self.bound

    def as_dict(self) -> dict[str, Any]:
        return {
            "target": self.what, "bound": self.bound, "at_least": self.at_least, "unit": self.unit.strip(),
            "measured": self.measured, "met": self.met, "complete": self.complete, "note": self.note,
            **({"scaled": True} if self.scaled else {}),
        }  # fmt: skip


def at_worst(values: Iterable[float | None]) -> float | None:
    """The smallest of what was measured; None if nothing was."""
    return min((value for value in values if value is not None), default=None)


def verdict_table(targets: Sequence[Target]) -> ResultTable:
    words = {True: "met", False: "NOT met", None: "not measured"}
    rows = []
    for target in targets:
        bound = f"{'at least' if target.at_least else 'below'} {significant(target.bound)}{target.unit}"
        mark = "~" if target.scaled else ""
        measured = "-" if target.measured is None else f"{mark}{significant(target.measured, 4)}{target.unit}"
        verdict = words[target.met] + ("" if target.complete or target.met is None else " in this part")
        rows.append([target.what, bound, measured, verdict, target.note])
    return ResultTable("Targets", ["target", "bound", "measured", "verdict", "note"], rows)
