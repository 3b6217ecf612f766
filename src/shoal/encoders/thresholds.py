"""Thresholds of numbers that tell the target apart: the splits of small boosted trees, fitted on the rows of one fold.

Trees only propose. What a network gets is whether a number is above a threshold, which an exporter can write as a
comparison, and which belongs to one column.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shoal.encoders.scaling import SMALLEST_SCALE

ROUNDS = 40  # trees
DEPTH = 3
LEARNING_RATE = 0.3
MOST_BINS = 32  # of a column, which its splits lie between
MOST_ROWS = 2_000  # that trees are fitted on
MOST_CELLS = 200_000  # rows times columns that trees are fitted on
SMALLEST_LEAF = 5.0  # rows
MOST_STEPS = 48
ROWS_PER_STEP = 8  # few rows support few thresholds


@dataclass(frozen=True, eq=False)
class Binned:
    """Columns cut into bins: a cell is above threshold b of its column if its code is above b. Missing cells are 0."""

    codes: np.ndarray  # (n, columns) int64
    thresholds: np.ndarray  # (columns, bins - 1), padded with infinity

    @staticmethod
    def of(columns: np.ndarray, weight: np.ndarray) -> Binned:
        """columns (n, d) with NaN for missing, weight (n,) above zero."""
        found = [_between(columns[:, j], weight) for j in range(columns.shape[1])]
        width = max((len(one) for one in found), default=0)
        thresholds = np.full((len(found), max(width, 1)), np.inf)
        codes = np.zeros(columns.shape, dtype=np.int64)
        for j, one in enumerate(found):
            thresholds[j, : len(one)] = one
            codes[:, j] = np.searchsorted(one, columns[:, j], side="left")
        codes[np.isnan(columns)] = 0
        return Binned(codes, thresholds)

    @property
    def bins(self) -> int:
        return self.thresholds.shape[1] + 1


def _between(column: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Places between neighbouring values: all, or those nearest to equal shares of the weight."""
    known = ~np.isnan(column)
    values, place = np.unique(column[known], return_inverse=True)
    if len(values) < 2:
        return np.empty(0)
    with np.errstate(over="ignore"):
        length = values[1:] - values[:-1]
    middle, apart = values[:-1] + length / 2, length > SMALLEST_SCALE
    middle = np.where(middle < values[1:], middle, values[:-1])
    if len(values) > MOST_BINS:
        mass = np.cumsum(np.bincount(place, weight[known]))[:-1]
        wanted = np.arange(1, MOST_BINS) / MOST_BINS * (mass[-1] + weight[known][place == len(values) - 1].sum())
        places = np.unique(np.minimum(np.searchsorted(mass, wanted * (1 - 1e-12)), len(middle) - 1))
        middle, apart = middle[places], apart[places]
    return np.asarray(middle[apart])


def find_thresholds(
    columns: np.ndarray, target: np.ndarray, weight: np.ndarray, numbers: int
) -> tuple[np.ndarray, np.ndarray]:
    """The places (steps,) and thresholds (steps,) of the most useful splits, ordered by place and size.

    columns  (n, d): numbers first, NaN where missing, then other inputs, which trees may use but which need no steps
    target   (n, outputs): numbers without units, or 0 and 1 for classes
    weight   (n,): a row of weight two counts as the row twice
    """
    rows = np.flatnonzero(weight > 0)
    most_rows = max(1, min(MOST_ROWS, MOST_CELLS // max(columns.shape[1], 1)))
    if len(rows) > most_rows:
        rows = rows[np.linspace(0, len(rows) - 1, most_rows).astype(np.int64)]
    weight = weight[rows] * (len(rows) / weight[rows].sum())
    binned = Binned.of(columns[rows], weight)
    if not numbers or not np.isfinite(binned.thresholds[:numbers]).any():
        return np.empty(0, dtype=np.int64), np.empty(0)
    gains = boosted_gains(binned, target[rows], weight)[:numbers]
    order = np.argsort(-gains, axis=None, kind="stable")
    chosen = np.sort(order[: min(MOST_STEPS, len(rows) // ROWS_PER_STEP)])
    chosen = chosen[gains.ravel()[chosen] > 0]
    place, which = np.divmod(chosen, binned.bins - 1)
    return place, binned.thresholds[place, which]


def boosted_gains(binned: Binned, target: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """(columns, bins - 1): how much each split has reduced the squared error, over all trees and outputs."""
    residual = target - np.average(target, axis=0, weights=weight)
    gains = np.zeros(binned.thresholds.shape)
    outputs = target.shape[1]
    for k in range(ROUNDS):
        output = residual[:, k % outputs]
        leaf = _grow(binned, output, weight, gains)
        mass = np.bincount(leaf, weight)
        mean = np.bincount(leaf, weight * output) / np.maximum(mass, 1e-12)
        output -= LEARNING_RATE * mean[leaf]
    return gains


def _grow(binned: Binned, residual: np.ndarray, weight: np.ndarray, gains: np.ndarray) -> np.ndarray:
    """The leaf of each row in one more tree, (n,); what its splits gain is added to `gains`."""
    n, columns = binned.codes.shape
    bins, node = binned.bins, np.zeros(n, dtype=np.int64)
    cell = np.arange(columns) * bins + binned.codes
    real = np.isfinite(binned.thresholds)
    for level in range(DEPTH):
        nodes = 1 << level
        key = (node[:, None] * (columns * bins) + cell).ravel()
        shape, size = (nodes, columns, bins), nodes * columns * bins
        mass = np.bincount(key, np.repeat(weight, columns), size).reshape(shape).cumsum(axis=2)
        total = np.bincount(key, np.repeat(weight * residual, columns), size).reshape(shape).cumsum(axis=2)
        left, right = mass[:, :, :-1], mass[:, :, -1:] - mass[:, :, :-1]
        with np.errstate(divide="ignore", invalid="ignore"):
            gain = total[:, :, :-1] ** 2 / left + (total[:, :, -1:] - total[:, :, :-1]) ** 2 / right
            gain -= total[:, :, -1:] ** 2 / mass[:, :, -1:]
        gain[~(real[None] & (left >= SMALLEST_LEAF) & (right >= SMALLEST_LEAF))] = 0.0
        best = gain.reshape(nodes, -1).argmax(axis=1)
        place, which = np.divmod(best, bins - 1)
        won = gain.reshape(nodes, -1)[np.arange(nodes), best]
        np.add.at(gains, (place, which), won)
        above = (binned.codes[np.arange(n), place[node]] > which[node]) & (won[node] > 0)
        node = 2 * node + above
    return node
