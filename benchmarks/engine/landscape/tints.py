"""Colours of the map: accuracies in steps of equal ratios of the error, as heights on a map of mountains."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

LEVELS = 12  # so many tints are in the style sheet


@dataclass(frozen=True)
class Tints:
    """The accuracies at which a new tint begins, LEVELS - 1 of them."""

    starts: tuple[float, ...]

    @staticmethod
    def of(accuracies: list[float], rows: int) -> Tints:
        """Each step lowers the error by the same factor; an error of zero counts as half a row.

        >>> [round(start, 3) for start in Tints.of([0.0, 0.999], 10_000).starts[:3]]
        [0.438, 0.684, 0.822]
        """
        least = 0.5 / max(rows, 1)
        worst = max(1 - min(accuracies), 2 * least)
        best = min(max(1 - max(accuracies), least), worst / 2)
        return Tints(tuple(1 - worst * (best / worst) ** (step / LEVELS) for step in range(1, LEVELS)))

    def level(self, accuracy: float) -> int:
        """
        >>> tints = Tints.of([0.0, 0.999], 10_000)
        >>> tints.level(0.0), tints.level(0.999), tints.level(1.0)
        (0, 11, 11)
        """
        return bisect_right(self.starts, accuracy + 1e-12)
