"""Rows unlike the training data, and the columns that make them so.

A row is as strange as its strangest cell (`cells.py`), or as the combination of its numbers: its distance from the
centre of the training rows, in units of how numbers vary together (Mahalanobis). The strangeness of each training row,
judged by all others, tells what is usual: the p-value of a new row is the share of training rows that are at least as
strange, the new one among them. So of rows from the same source a share of at most about p has a p-value of p or less.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal.conformal.cells import Tails, Values
from shoal.encoders.encoder import Encoder
from shoal.tables.missing import missing_cells
from shoal.tables.table import Table
from shoal.validate import number

SHARE = 0.01  # of rows from the same source that are marked
MOST_VALUES = 10_000  # of a column of categories that are counted
MOST_NUMBERS = 200  # of more, combinations are not looked at
FEWEST_ROWS_PER_NUMBER = 5
HELD_BACK = 0.01  # of the mean variance, added to each
MOST_NAMED = 3  # columns of a strange combination
NAMED = 0.6  # of the distance that named columns make up


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
    return np.where(missing, np.nan, found)


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
