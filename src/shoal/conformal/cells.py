"""How strange single cells are, against the cells of their column in the training data.

A cell's strangeness is -log of the estimated share of rows that are at least as strange in that column. Cells of
training rows are judged by all other rows, as a new row is judged by all of them: a value that is there once counts as
one that was never seen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

TAIL = 0.05  # of the rows on either side, whose distances tell how far values usually go
SHORTEST = 0.05  # mean distance in a tail, at least
HALF = 0.5  # of a row: added, so that nothing is impossible


@dataclass(frozen=True)
class Tails:
    """How far numbers go: both ends of a column, each with a share of the rows and their mean distance from it.

    Numbers are put on a scale that is straight near the median and logarithmic far from it, so that distances in a long
    tail fall off alike.
    """

    centre: float
    scale: float
    low: float  # on that scale
    high: float
    low_rows: float  # below low
    high_rows: float
    low_sum: float  # of the distances below low
    high_sum: float
    missing: float  # rows
    rows: float

    @staticmethod
    def fit(values: np.ndarray, weight: np.ndarray) -> Tails:
        """values (n,) with NaN for missing; weight (n,) in rows."""
        known = ~np.isnan(values)
        rows, missing = float(weight.sum()), float(weight[~known].sum())
        if not known.any():
            return Tails(0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, missing, rows)
        order = np.argsort(values[known], kind="stable")
        ascending, mass = values[known][order], weight[known][order]
        share = np.cumsum(mass) / mass.sum()

        def quantile(at: float) -> float:
            return float(ascending[min(np.searchsorted(share, at * (1 - 1e-12)), len(ascending) - 1)])

        centre, width = quantile(0.5), quantile(0.75) - quantile(0.25)
        width = width or float(ascending[-1] - ascending[0]) / 2 or max(abs(centre), 1.0)
        there = np.arcsinh((ascending - centre) / width)
        low, high = (float(np.arcsinh((quantile(at) - centre) / width)) for at in (TAIL, 1 - TAIL))
        below, above = np.maximum(low - there, 0.0), np.maximum(there - high, 0.0)
        return Tails(
            centre, width, low, high, float(mass[below > 0].sum()), float(mass[above > 0].sum()),
            float(below @ mass), float(above @ mass), missing, rows,
        )  # fmt: skip

    def strangeness(self, values: np.ndarray, own: np.ndarray | None = None) -> np.ndarray:
        """(n,) of values; own (n,): what each row of the training data counts for, and is left out."""
        own = np.zeros(len(values)) if own is None else own
        there = np.arcsinh((values - self.centre) / self.scale)
        found = np.zeros(len(values))
        for beyond, count, total in (
            (self.low - there, self.low_rows, self.low_sum),
            (there - self.high, self.high_rows, self.high_sum),
        ):
            out = np.flatnonzero(np.nan_to_num(beyond) > 0)
            left = count - own[out]
            mean = np.where(left > 1e-9, (total - own[out] * beyond[out]) / np.maximum(left, 1e-9), 0.0)
            share = 2 * (np.maximum(left, 0.0) + HALF) / (self.rows - own[out] + 1)
            found[out] = beyond[out] / np.maximum(mean, SHORTEST) - np.log(np.minimum(share, 1.0))
        lacking = np.isnan(values)
        found[lacking] = rarity(self.missing - own[lacking], self.rows - own[lacking])
        return found


@dataclass(frozen=True, eq=False)
class Values:
    """How many rows have each value of a column of categories; None is the missing value."""

    values: tuple[str | None, ...]
    counts: np.ndarray  # (values,) rows with each
    rows: float

    @staticmethod
    def fit(codes: np.ndarray, values: list[str | None], weight: np.ndarray, most: int) -> Values:
        """Only the `most` frequent ones are kept: others count as never seen."""
        mass = np.bincount(codes, weights=weight, minlength=len(values))
        kept = np.sort(np.argsort(-mass, kind="stable")[:most])
        kept = kept[mass[kept] > 0]
        return Values(tuple(values[j] for j in kept), mass[kept], float(weight.sum()))

    def strangeness(self, codes: np.ndarray, values: list[str | None], own: np.ndarray | None = None) -> np.ndarray:
        """(n,) of values[codes]; own (n,): what each row of the training data counts for, and is left out.

        A value seen in c rows is as rare as all values that c others or fewer have: a new row has a value that was
        never seen about as often as rows have one that nobody else has.
        """
        own = np.zeros(len(codes)) if own is None else own
        rows_of = dict(zip(self.values, self.counts.tolist(), strict=True))
        ascending = np.sort(self.counts)
        total = np.concatenate([[0.0], np.cumsum(ascending)])
        seen = np.array([rows_of.get(value, 0.0) for value in values])[codes] - own
        as_rare = total[np.searchsorted(ascending, seen + 1.0 + 1e-9, side="right")] - own
        return rarity(as_rare, self.rows - own)


def rarity(as_rare: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """(n,) strangeness of what so many of the rows are as rare as; twice as much where not one of them is."""
    logs = -np.log((np.maximum(as_rare, 0.0) + HALF) / (rows + 1))
    return np.asarray(np.where(as_rare < 1e-9, 2.0, 1.0) * np.maximum(logs, 0.0))
