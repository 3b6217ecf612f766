"""Who is ahead: ranks, their intervals over tables, wins, ratios of losses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

HIGHER_IS_BETTER = {"loss": False, "score": True}
RESAMPLES = 10_000
CONFIDENCE = 0.95
SMALLEST_LOSS = 1e-3  # smaller ones count as this in ratios: 0.0001 is not ten times as good as 0.001
FAR_BEHIND = 1.15  # times the loss of the best peer


@dataclass(frozen=True)
class Standing:
    """Means over splits, shape (tables, contenders); not a number where a contender failed on a split."""

    tables: Sequence[str]
    contenders: Sequence[str]
    values: dict[str, np.ndarray]  # by measure: "loss", "score"

    @classmethod
    def of(cls, tables: Sequence[str], contenders: Sequence[str], entries: Iterable[dict[str, Any]]) -> Standing:
        cells: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for entry in entries:
            cells.setdefault((entry["table"], entry["contender"]), []).append(entry)

        def mean(measure: str, table: str, contender: str) -> float:
            return float(np.mean([np.nan if "error" in e else e[measure] for e in cells[table, contender]]))

        values = {
            measure: np.array([[mean(measure, t, c) for c in contenders] for t in tables])
            for measure in HIGHER_IS_BETTER
        }
        return cls(tables, contenders, values)

    def column(self, contender: str) -> int:
        return list(self.contenders).index(contender)

    def ranks(self, measure: str) -> np.ndarray:
        """(tables, contenders), 1 is the best; equals share the mean of their places, and failures are last."""
        values = self.values[measure] if HIGHER_IS_BETTER[measure] else -self.values[measure]
        values = np.round(np.where(np.isnan(values), -np.inf, values), 9)  # sums in another order are no difference
        ahead = (values[:, None, :] > values[:, :, None]).sum(axis=2)
        equal = (values[:, None, :] == values[:, :, None]).sum(axis=2)
        return np.asarray(ahead + (equal + 1) / 2)

    def lead(self, measure: str, ours: str, peer: str) -> np.ndarray:
        """(tables,) how many ranks we are ahead of a peer on each table."""
        ranks = self.ranks(measure)
        return np.asarray(ranks[:, self.column(peer)] - ranks[:, self.column(ours)])

    def wins(self, measure: str, ours: str, peer: str) -> tuple[int, int]:
        """Tables won and lost; the others are equal."""
        lead = self.lead(measure, ours, peer)
        return int((lead > 0).sum()), int((lead < 0).sum())

    def ratio(self, ours: str, peer: str) -> float:
        """Geometric mean of our loss over the peer's, on tables where neither failed."""
        losses = np.maximum(self.values["loss"], SMALLEST_LOSS)
        ratios = losses[:, self.column(ours)] / losses[:, self.column(peer)]
        ratios = ratios[~np.isnan(ratios)]
        return float(np.exp(np.log(ratios).mean())) if len(ratios) else float("nan")

    def behind(self, ours: str) -> np.ndarray:
        """(tables,) our loss over that of the best other; infinite where we failed."""
        losses = np.maximum(self.values["loss"], SMALLEST_LOSS)
        mine, others = losses[:, self.column(ours)], np.delete(losses, self.column(ours), axis=1)
        best = np.where(np.isnan(others), np.inf, others).min(axis=1)
        return np.asarray(np.where(np.isnan(mine), np.inf, mine / best))


def interval(values: np.ndarray, seed: int = 0) -> tuple[float, float]:
    """Bootstrap over tables: the middle 95% of means of tables drawn with replacement."""
    drawn = np.random.default_rng(seed).integers(0, len(values), (RESAMPLES, len(values)))
    low, high = np.quantile(values[drawn].mean(axis=1), [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)
