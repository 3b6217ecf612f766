"""Numbers to inputs of a network, in two encodings: "plain" (scaled, with outliers bent back) and "piecewise" (linear).

Both are fitted on weighted rows: a row of weight two counts as the row twice, a row of weight zero not at all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

SMOOTH_LIMIT = 3.0  # scaled values bend towards plus and minus this
LARGEST_SCALED = 1e6  # beyond it squares would overflow before they are bent back
MOST_BINS = 12
MOST_PIECEWISE_COLUMNS = 256
FEWEST_ROWS_PER_BIN = 8
SMALLEST_SCALE = 1e-290  # a column with a smaller spread has none: its inverse would overflow
ROWS_AT_A_TIME = 2048  # whose temporaries stay in the processor's cache


@dataclass(frozen=True, eq=False)
class NumberScaling:
    """How to turn d columns of numbers into inputs. Missing values are put at the median.

    >>> scaling = NumberScaling.fit(np.array([[0.0], [1.0], [2.0], [np.nan]]), np.ones(4))
    >>> scaling.plain(np.array([[1.0], [np.nan]])).ravel().tolist()
    [0.0, 0.0]
    """

    centre: np.ndarray  # (d,)
    scale: np.ndarray  # (d,), zero for a column without spread
    edges: np.ndarray  # (d, bins + 1), padded with the last edge; a bin without length gives no column
    offset: np.ndarray  # (d, bins), mean of each encoded column, taken off

    @staticmethod
    def fit(values: np.ndarray, weight: np.ndarray, order: Callable[[int], np.ndarray] | None = None) -> NumberScaling:
        """values (n, d) float64 with NaN for missing, weight (n,).

        `order` gives the sorted order of a column's rows, where several folds share it.
        """
        used = weight > 0
        d = values.shape[1]
        bins = _bin_count(int(used.sum()), d)
        centre, scale = np.zeros(d), np.zeros(d)
        edges, offset = np.zeros((d, bins + 1)), np.zeros((d, bins))
        shares = np.concatenate([[0.25, 0.5, 0.75], np.linspace(0.0, 1.0, bins + 1)])
        for j in range(d):
            column = np.ascontiguousarray(values[:, j])
            known = used & ~np.isnan(column)
            if not known.any():
                continue
            places = sorted_order(column) if order is None else order(j)
            places = places[known[places]]
            found = _quantiles(column[places], weight[places], shares)
            low, centre[j], high = found[:3]
            distinct = np.unique(found[3:])
            scale[j] = _spread(distinct, low, high)
            edges[j, : len(distinct)], edges[j, len(distinct) :] = distinct, distinct[-1]
            offset[j] = _mean_pieces(edges[j], column[known], weight[known])
        return NumberScaling(centre, scale, edges, offset)

    def width(self, encoding: str) -> int:
        """Columns of "plain" or "piecewise"."""
        return len(self.centre) if encoding == "plain" else len(self._bins.column)

    @cached_property
    def _inverse(self) -> np.ndarray:
        return np.divide(1.0, self.scale, out=np.zeros_like(self.scale), where=self.scale > SMALLEST_SCALE)

    @cached_property
    def _bins(self) -> _Bins:
        length = np.diff(self.edges)
        column, place = np.nonzero(length > SMALLEST_SCALE)
        return _Bins(column, self.edges[column, place], 1.0 / length[column, place], self.offset[column, place])

    def write(self, encoding: str, values: np.ndarray, out: np.ndarray) -> None:
        """Fill out (n, width) with "plain" or "piecewise", a few rows at a time."""
        fill = self._write_plain if encoding == "plain" else self._write_piecewise
        for start in range(0, len(values), ROWS_AT_A_TIME):
            fill(values[start : start + ROWS_AT_A_TIME], out[start : start + ROWS_AT_A_TIME])

    def plain(self, values: np.ndarray) -> np.ndarray:
        """(n, d) float32: (x - median) / (interquartile range), bent smoothly so that outliers stay near 3."""
        return self._made("plain", values)

    def piecewise(self, values: np.ndarray) -> np.ndarray:
        """(n, columns) float32: for each bin between two quantiles, the part of it below x (0 to 1), less its mean."""
        return self._made("piecewise", values)

    def _made(self, encoding: str, values: np.ndarray) -> np.ndarray:
        out = np.empty((len(values), self.width(encoding)), dtype=np.float32)
        self.write(encoding, values, out)
        return out

    def _write_plain(self, values: np.ndarray, out: np.ndarray) -> None:
        scaled = (values - self.centre) * self._inverse
        scaled[np.isnan(values)] = 0.0
        np.clip(scaled, -LARGEST_SCALED, LARGEST_SCALED, out=scaled)
        out[:] = scaled / np.sqrt(1.0 + (scaled / SMOOTH_LIMIT) ** 2)

    def _write_piecewise(self, values: np.ndarray, out: np.ndarray) -> None:
        bins = self._bins
        chosen = values[:, bins.column]
        part = np.clip((chosen - bins.low) * bins.inverse, 0.0, 1.0) - bins.offset
        part[np.isnan(chosen)] = 0.0
        out[:] = part


@dataclass(frozen=True, eq=False)
class _Bins:
    """The bins with a length, of all columns one after the other: (bins,) each."""

    column: np.ndarray
    low: np.ndarray
    inverse: np.ndarray
    offset: np.ndarray


def _bin_count(rows: int, columns: int) -> int:
    """By the number of distinct rows, since equal ones are merged before. Weights may be in any unit."""
    by_rows = rows // FEWEST_ROWS_PER_BIN
    by_columns = MOST_PIECEWISE_COLUMNS // max(columns, 1)
    return int(np.clip(min(by_rows, by_columns), 1, MOST_BINS))


def sorted_order(column: np.ndarray) -> np.ndarray:
    """Rows in the order of their values; missing ones come last."""
    return np.argsort(column, kind="stable").astype(np.uint32 if len(column) < 1 << 32 else np.int64)


def _quantiles(ascending: np.ndarray, mass: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """For each share, the smallest value such that values up to it have at least this share of the mass."""
    total = np.cumsum(mass)
    position = np.searchsorted(total, shares * total[-1] * (1 - 1e-12), side="left")
    return np.asarray(ascending[np.minimum(position, len(ascending) - 1)])


def _pieces(edges: np.ndarray, column: np.ndarray) -> np.ndarray:
    length = np.diff(edges)
    inverse = np.divide(1.0, length, out=np.zeros_like(length), where=length > SMALLEST_SCALE)
    return np.asarray(np.clip((column[:, None] - edges[:-1]) * inverse, 0.0, 1.0))


def _mean_pieces(edges: np.ndarray, column: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Weighted means of the pieces. Rows are summed one after the other, so that blocks of them change no bit."""
    total = np.zeros((1, len(edges) - 1))
    rows = ROWS_AT_A_TIME if len(edges) > 2 else len(column)  # of a single column numpy sums in pairs
    for start in range(0, len(column), rows):
        part = _pieces(edges, column[start : start + rows]) * weight[start : start + rows, None]
        total = (np.concatenate([total, part]) if start else part).sum(axis=0, keepdims=True)
    return np.asarray(total[0] / weight.sum())


def _spread(edges: np.ndarray, low: float, high: float) -> float:
    """The interquartile range; half the whole range where more than half of the values are equal."""
    return float(high - low) if high > low else float(edges[-1] - edges[0]) / 2
