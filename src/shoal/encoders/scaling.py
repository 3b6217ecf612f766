"""Numbers to inputs of a network, in four encodings.

plain      scaled, with outliers bent back
piecewise  linear in each bin between two quantiles
quantile   the quantile of a normal distribution, linear in each bin
steps      as "quantile", and whether the number is above each of some thresholds (see `thresholds`)

All are fitted on weighted rows: a row of weight two counts as the row twice, a row of weight zero not at all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import NormalDist

import numpy as np

SMOOTH_LIMIT = 3.0  # scaled values bend towards plus and minus this
LARGEST_SCALED = 1e6  # beyond it squares would overflow before they are bent back
MOST_BINS = 12
MOST_PIECEWISE_COLUMNS = 256
FEWEST_ROWS_PER_BIN = 8
NORMAL = NormalDist()
LEAST_SHARE = 0.01  # of the rows beyond the first and the last edge, as the quantiles there count them
LARGEST_NUMBER = 1e300  # larger ones are fitted as this one: differences would overflow
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
    levels: np.ndarray  # (d, bins + 1), what "quantile" is at each edge
    step_column: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))  # (steps,)
    step_above: np.ndarray = field(default_factory=lambda: np.empty(0))  # (steps,) thresholds
    step_offset: np.ndarray = field(default_factory=lambda: np.empty(0))  # (steps,) shares of rows above, taken off

    @staticmethod
    def fit(values: np.ndarray, weight: np.ndarray, order: Callable[[int], np.ndarray] | None = None) -> NumberScaling:
        """values (n, d) float64 with NaN for missing, weight (n,).

        `order` gives the sorted order of a column's rows, where several folds share it.
        """
        used = weight > 0
        d = values.shape[1]
        bins = _bin_count(int(used.sum()), d)
        centre, scale = np.zeros(d), np.zeros(d)
        edges, offset, levels = np.zeros((d, bins + 1)), np.zeros((d, bins)), np.zeros((d, bins + 1))
        shares = np.concatenate([[0.25, 0.5, 0.75], np.linspace(0.0, 1.0, bins + 1)])
        for j in range(d):
            column = np.clip(values[:, j], -LARGEST_NUMBER, LARGEST_NUMBER)
            known = used & ~np.isnan(column)
            if not known.any():
                continue
            places = sorted_order(column) if order is None else order(j)
            places = places[known[places]]
            found = _quantiles(column[places], weight[places], shares)
            low, centre[j], high = found[:3]
            distinct = np.unique(found[3:])
            distinct = distinct[np.diff(distinct, prepend=-np.inf) > SMALLEST_SCALE]
            scale[j] = _spread(distinct, low, high)
            edges[j, : len(distinct)], edges[j, len(distinct) :] = distinct, distinct[-1]
            offset[j] = _mean_pieces(edges[j], column[known], weight[known])
            levels[j] = _levels(edges[j], offset[j], column[places], weight[places])
        return NumberScaling(centre, scale, edges, offset, levels)

    def with_steps(
        self, values: np.ndarray, weight: np.ndarray, column: np.ndarray, above: np.ndarray
    ) -> NumberScaling:
        """The same with thresholds (steps,) of these columns (steps,), fitted on values (n, d) and weight (n,)."""
        chosen, used = values[:, column], weight > 0
        known = ~np.isnan(chosen[used])
        mass = (known * weight[used, None]).sum(axis=0)
        share = ((chosen[used] > above) * weight[used, None]).sum(axis=0) / np.maximum(mass, 1e-300)
        return replace(self, step_column=column, step_above=above, step_offset=share)

    def width(self, encoding: str) -> int:
        """Columns of an encoding."""
        if encoding == "piecewise":
            return len(self._bins.column)
        return len(self.centre) + (len(self.step_column) if encoding == "steps" else 0)

    def columns(self, encoding: str) -> np.ndarray:
        """(width,) the number that each column of an encoding is made of."""
        if encoding == "piecewise":
            return self._bins.column
        own = np.arange(len(self.centre))
        return np.concatenate([own, self.step_column]) if encoding == "steps" else own

    @property
    def bins(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Low end, 1 / length and offset of each column of "piecewise"."""
        return self._bins.low, self._bins.inverse, self._bins.offset

    @property
    def heights(self) -> np.ndarray:
        """How far "quantile" rises in the bin of each column of "piecewise"."""
        return np.diff(self.levels)[np.diff(self.edges) > SMALLEST_SCALE]

    @cached_property
    def _inverse(self) -> np.ndarray:
        return np.divide(1.0, self.scale, out=np.zeros_like(self.scale), where=self.scale > SMALLEST_SCALE)

    @cached_property
    def _slopes(self) -> tuple[np.ndarray, np.ndarray]:
        """(d, bins) 1 / length of each bin, 0 for one without length; and how far "quantile" rises in it."""
        length = np.diff(self.edges)
        return np.divide(1.0, length, out=np.zeros_like(length), where=length > SMALLEST_SCALE), np.diff(self.levels)

    @cached_property
    def _bins(self) -> _Bins:
        length = np.diff(self.edges)
        column, place = np.nonzero(length > SMALLEST_SCALE)
        return _Bins(column, self.edges[column, place], 1.0 / length[column, place], self.offset[column, place])

    def write(self, encoding: str, values: np.ndarray, out: np.ndarray) -> None:
        """Fill out (n, width) with an encoding, a few rows at a time."""
        fill = {
            "plain": self._write_plain, "piecewise": self._write_piecewise, "quantile": self._write_quantile,
            "steps": self._write_steps,
        }[encoding]  # fmt: skip
        with np.errstate(over="ignore"):  # far beyond the ends, where all is cut off
            for start in range(0, len(values), ROWS_AT_A_TIME):
                fill(values[start : start + ROWS_AT_A_TIME], out[start : start + ROWS_AT_A_TIME])

    def plain(self, values: np.ndarray) -> np.ndarray:
        """(n, d) float32: (x - median) / (interquartile range), bent smoothly so that outliers stay near 3."""
        return self._made("plain", values)

    def piecewise(self, values: np.ndarray) -> np.ndarray:
        """(n, columns) float32: for each bin between two quantiles, the part of it below x (0 to 1), less its mean."""
        return self._made("piecewise", values)

    def quantile(self, values: np.ndarray) -> np.ndarray:
        """(n, d) float32: the quantile of a normal distribution that corresponds to x, less its mean."""
        return self._made("quantile", values)

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

    def _write_quantile(self, values: np.ndarray, out: np.ndarray) -> None:
        inverse, rise = self._slopes
        column = np.arange(values.shape[1])
        above = values > self.edges.T[:, None, :]  # (bins + 1, n, d)
        passed = above.view(np.uint8).sum(axis=0, dtype=np.uint8).astype(np.intp)
        bin_of = np.clip(passed - 1, 0, inverse.shape[1] - 1)
        part = np.clip((values - self.edges[column, bin_of]) * inverse[column, bin_of], 0.0, 1.0)
        found = self.levels[column, bin_of] + part * rise[column, bin_of]
        found[np.isnan(values)] = 0.0
        out[:] = found

    def _write_steps(self, values: np.ndarray, out: np.ndarray) -> None:
        d = values.shape[1]
        self._write_quantile(values, out[:, :d])
        self.write_steps(values, out[:, d:])

    def write_steps(self, values: np.ndarray, out: np.ndarray) -> None:
        """Fill out (n, steps) with the columns that "steps" has beside those of "quantile"."""
        chosen = values[:, self.step_column]
        out[:] = np.where(np.isnan(chosen), 0.0, (chosen > self.step_above) - self.step_offset)


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
    with np.errstate(over="ignore"):
        return np.asarray(np.clip((column[:, None] - edges[:-1]) * inverse, 0.0, 1.0))


def _mean_pieces(edges: np.ndarray, column: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Weighted means of the pieces. Rows are summed one after the other, so that blocks of them change no bit."""
    total = np.zeros((1, len(edges) - 1))
    rows = ROWS_AT_A_TIME if len(edges) > 2 else len(column)  # of a single column numpy sums in pairs
    for start in range(0, len(column), rows):
        part = _pieces(edges, column[start : start + rows]) * weight[start : start + rows, None]
        total = (np.concatenate([total, part]) if start else part).sum(axis=0, keepdims=True)
    return np.asarray(total[0] / weight.sum())


def _levels(edges: np.ndarray, offset: np.ndarray, ascending: np.ndarray, mass: np.ndarray) -> np.ndarray:
    """(bins + 1,) normal quantiles of the share of the mass below each edge, less their mean over the rows."""
    total = np.concatenate([[0.0], np.cumsum(mass)])
    below, up_to = (total[np.searchsorted(ascending, edges, side)] for side in ("left", "right"))
    shares = np.clip((below + up_to) / (2 * total[-1]), LEAST_SHARE, 1 - LEAST_SHARE)
    found = np.array([NORMAL.inv_cdf(share) for share in shares])
    first = -(np.diff(found) * offset).sum()
    return np.asarray(found - found[0] + first)


def _spread(edges: np.ndarray, low: float, high: float) -> float:
    """The interquartile range; half the whole range where more than half of the values are equal."""
    return float(high - low) if high > low else float(edges[-1] - edges[0]) / 2
