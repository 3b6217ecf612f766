"""Rows unlike the training data, and the columns that make them so.

A cell's strangeness is -log of the estimated share of rows that are at least as strange in that column. Cells of
training rows are judged by all other rows, as a new row is judged by all of them: a value that is there once counts as
one that was never seen.

A row is as strange as its strangest cell, or as the combination of its numbers: its distance from the centre of the
training rows, in units of how numbers vary together (Mahalanobis). The strangeness of each training row,
judged by all others, tells what is usual: the p-value of a new row is the share of training rows that are at least as
strange, the new one among them. So of rows from the same source a share of at most about p has a p-value of p or less.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal.encoders.encoder import Encoder
from shoal.encoders.scaling import LARGEST_NUMBER
from shoal.tables.missing import missing_cells
from shoal.tables.table import Table
from shoal.validate import number

TAIL = 0.05  # of the rows on either side, whose distances tell how far values usually go
SHORTEST = 0.05  # mean distance in a tail, at least
HALF = 0.5  # of a row: added, so that nothing is impossible
SHARE = 0.01  # of rows from the same source that are marked
MOST_VALUES = 10_000  # of a column of categories that are counted
MOST_NUMBERS = 200  # of more, combinations are not looked at
FEWEST_ROWS_PER_NUMBER = 5
HELD_BACK = 0.01  # of the mean variance, added to each
MOST_NAMED = 3  # columns of a strange combination
NAMED = 0.6  # of the distance that named columns make up


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


@dataclass(frozen=True, eq=False)
class Strange:
    """How strange rows are: `estimator.strange(X)`."""

    p_values: np.ndarray  # (n,) share of the training rows that are as strange
    share: float  # of rows from the same source that may be marked
    columns: list[list[str]]  # of the rows that are marked, those that make them strange, the worst first

    @property
    def marked(self) -> np.ndarray:
        """(n,) whether a row is unlike the training data."""
        return self.p_values <= self.share


@dataclass(frozen=True, eq=False)
class Combination:
    """How the scaled numbers of rows vary together."""

    centre: np.ndarray  # (d,)
    inverse: np.ndarray  # (d, d) of the covariance
    tails: Tails  # of the logarithm of distances

    def distances(self, scaled: np.ndarray) -> np.ndarray:
        away = scaled - self.centre
        return np.asarray(np.log(np.maximum(((away @ self.inverse) * away).sum(axis=1), 1e-12)))

    def shares(self, scaled: np.ndarray) -> np.ndarray:
        """(n, d) what each number adds to the squared distance."""
        away = scaled - self.centre
        return np.asarray((away @ self.inverse) * away)

    def strangeness(self, scaled: np.ndarray) -> np.ndarray:
        return self._upper(self.distances(scaled), None)

    def _upper(self, distances: np.ndarray, own: np.ndarray | None) -> np.ndarray:
        """Rows near the centre are not strange."""
        return np.where(distances > self.tails.centre, self.tails.strangeness(distances, own), 0.0)

    @staticmethod
    def fit(scaled: np.ndarray, weight: np.ndarray) -> tuple[Combination, np.ndarray] | None:
        """And the strangeness of these rows, each judged by all others; None where rows are too few to tell."""
        rows, d = float(weight.sum()), scaled.shape[1]
        if not 2 <= d <= MOST_NUMBERS or len(scaled) < FEWEST_ROWS_PER_NUMBER * d:
            return None
        share = (weight / rows)[:, None]
        centre = (share * scaled).sum(axis=0)
        away = scaled - centre
        covariance = (share * away).T @ away
        inverse = np.linalg.inv(covariance + np.eye(d) * max(HELD_BACK * np.trace(covariance) / d, 1e-9))
        inverse = 0.5 * (inverse + inverse.T)
        own = np.minimum(weight, 1.0)
        squared = ((away @ inverse) * away).sum(axis=1)
        alone = np.log(np.maximum(squared / np.maximum(1.0 - own * squared / rows, 0.05), 1e-12))
        found = Combination(centre, inverse, Tails.fit(alone, weight))
        return found, found._upper(alone, own)


@dataclass(frozen=True, eq=False)
class Strangeness:
    """What is usual in the training data."""

    numbers: dict[str, Tails]
    values: dict[str, Values]
    combination: Combination | None
    scores: np.ndarray  # (rows,) strangeness of training rows, ascending
    mass: np.ndarray  # (rows,) weight of those from this one on

    @staticmethod
    def fit(
        table: Table,
        weight: np.ndarray,
        kinds: Mapping[str, str],
        rows: np.ndarray,
        rows_weight: np.ndarray,
        scaled: np.ndarray,
    ) -> Strangeness:
        """table: all training rows, with their weights. Some different `rows` of them are judged: numbers of the rows,
        the weight of all rows that are equal to each, and their scaled numbers.
        """
        unit = max(1.0, np.count_nonzero(weight) / weight.sum())  # weights in a small unit count as one row each
        weight, rows_weight = weight * unit, rows_weight * unit
        some, own = table.take(rows), np.minimum(rows_weight, 1.0)
        scores = np.zeros(len(rows))
        numbers: dict[str, Tails] = {}
        values: dict[str, Values] = {}
        for name, kind in kinds.items():
            if kind == "category":
                codes, different = table.cells(name).factor()
                values[name] = Values.fit(codes, different, weight, MOST_VALUES)
                found = values[name].strangeness(codes[rows], different, own)
            else:
                cells = as_numbers(some[name])
                numbers[name] = Tails.fit(cells, rows_weight)
                found = numbers[name].strangeness(cells, own)
            scores = np.maximum(scores, found)
        combined = Combination.fit(scaled, rows_weight)
        if combined is not None:
            scores = np.maximum(scores, combined[1])
        order = np.argsort(scores, kind="stable")
        mass = np.cumsum(rows_weight[order][::-1])[::-1]
        return Strangeness(numbers, values, None if combined is None else combined[0], scores[order], mass)

    def judge(self, table: Table, encoder: Encoder, share: Any = SHARE) -> Strange:
        """table: with the columns of the model's schema."""
        share = number("share", share, above=0, below=1, what="a share of rows")
        names = [*self.numbers, *self.values]
        cells = np.stack([self._cells(table, name) for name in names], axis=1)
        scores = cells.max(axis=1)
        if self.combination is not None:
            scaled = encoder.numbers(table)
            scores = np.maximum(scores, self.combination.strangeness(scaled))
        place = np.searchsorted(self.scores, scores - 1e-12, side="left")
        p_values = (np.append(self.mass, 0.0)[place] + 1.0) / (self.mass[0] + 1.0)
        columns: list[list[str]] = [[] for _ in range(len(table))]
        usual = self._threshold(share)
        for row in np.flatnonzero(p_values <= share):
            worst = np.argsort(-cells[row], kind="stable")
            columns[row] = [names[j] for j in worst if cells[row, j] >= usual - 1e-12]
            if self.combination is not None and not columns[row]:
                columns[row] = _blamed(self.combination.shares(scaled[row : row + 1])[0], encoder)
        return Strange(p_values, share, columns)

    def _threshold(self, share: float) -> float:
        """The lowest strangeness with a p-value of at most this share."""
        p_values = (np.append(self.mass[1:], 0.0) + 1.0) / (self.mass[0] + 1.0)  # of scores just above each
        above = np.flatnonzero(p_values <= share)
        return float(self.scores[above[0]]) if len(above) else np.inf

    def _cells(self, table: Table, name: str) -> np.ndarray:
        if name in self.values:
            return self.values[name].strangeness(*table.cells(name).factor())
        return self.numbers[name].strangeness(as_numbers(table[name]))


def as_numbers(cells: np.ndarray) -> np.ndarray:
    """(n,) float64, NaN where missing: numbers as they are, days of dates, the number of words of texts."""
    if cells.dtype == object:
        return np.array([np.nan if text is None else float(len(text.split())) for text in cells])
    missing = missing_cells(cells)
    if cells.dtype.kind == "M":
        found = cells.astype("datetime64[us]").astype(np.int64) / 86_400e6
    else:
        found = cells.astype(np.float64)
    return np.where(missing, np.nan, np.clip(found, -LARGEST_NUMBER, LARGEST_NUMBER))


def _blamed(shares: np.ndarray, encoder: Encoder) -> list[str]:
    """The columns that make up most of a distance, the largest part first."""
    total: dict[str, float] = {}
    columns = [name for name, part in encoder.columns.items() for _ in part.number_names(name)]
    for name, share in zip(columns, shares, strict=True):
        total[name] = total.get(name, 0.0) + float(share)
    order = sorted(total, key=lambda name: -total[name])
    named: list[str] = []
    for name in order[:MOST_NAMED]:
        named.append(name)
        if sum(total[one] for one in named) >= NAMED * sum(total.values()):
            break
    return named
