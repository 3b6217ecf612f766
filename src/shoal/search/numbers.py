"""Numbers to inputs of a network: robust scaling with smooth clipping, and piecewise-linear encoding.

Both are fitted on weighted rows: a row of weight two counts as the row twice, a row of weight zero not at all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

SMOOTH_LIMIT = 3.0  # scaled values bend towards plus and minus this
LARGEST_SCALED = 1e6  # beyond it squares would overflow before they are bent back
MOST_BINS = 12
MOST_PIECEWISE_COLUMNS = 256
FEWEST_ROWS_PER_BIN = 8


@dataclass(frozen=True, eq=False)
class Numbers:
    """How to turn d columns of numbers into inputs. Missing values are put at the median.

    >>> numbers = Numbers.fit(np.array([[0.0], [1.0], [2.0], [np.nan]]), np.ones(4))
    >>> numbers.plain(np.array([[1.0], [np.nan]])).ravel().tolist()
    [0.0, 0.0]
    """

    centre: np.ndarray  # (d,)
    scale: np.ndarray  # (d,), zero for a column without spread
    edges: np.ndarray  # (d, bins + 1), padded with the last edge; a bin without length gives no column
    offset: np.ndarray  # (d, bins), mean of each encoded column, taken off

    @staticmethod
    def fit(values: np.ndarray, weight: np.ndarray) -> Numbers:
        """values (n, d) float64 with NaN for missing, weight (n,)."""
        used = weight > 0
        values, weight = values[used], weight[used]
        d = values.shape[1]
        bins = _bin_count(len(values), d)
        centre, scale = np.zeros(d), np.zeros(d)
        edges, offset = np.zeros((d, bins + 1)), np.zeros((d, bins))
        shares = np.concatenate([[0.25, 0.5, 0.75], np.linspace(0.0, 1.0, bins + 1)])
        for j in range(d):
            known = ~np.isnan(values[:, j])
            if not known.any():
                continue
            found = _quantiles(values[known, j], weight[known], shares)
            low, centre[j], high = found[:3]
            distinct = np.unique(found[3:])
            scale[j] = _spread(distinct, low, high)
            edges[j, : len(distinct)], edges[j, len(distinct) :] = distinct, distinct[-1]
        numbers = Numbers(centre, scale, edges, offset)
        for j in range(d):
            known = ~np.isnan(values[:, j])
            if known.any():
                pieces = numbers._pieces(values[known, j], j)
                offset[j] = (pieces * weight[known, None]).sum(axis=0) / weight[known].sum()
        return numbers

    def plain(self, values: np.ndarray) -> np.ndarray:
        """(n, d) float32: (x - median) / (interquartile range), bent smoothly so that outliers stay near 3."""
        known = ~np.isnan(values)
        inverse = np.divide(1.0, self.scale, out=np.zeros_like(self.scale), where=self.scale > 0)
        scaled = (np.where(known, values, self.centre) - self.centre) * inverse
        scaled = np.clip(scaled, -LARGEST_SCALED, LARGEST_SCALED)
        return (scaled / np.sqrt(1.0 + (scaled / SMOOTH_LIMIT) ** 2)).astype(np.float32)

    def piecewise(self, values: np.ndarray) -> np.ndarray:
        """(n, columns) float32: for each bin between two quantiles, the part of it below x (0 to 1), less its mean."""
        blocks = []
        for j in range(values.shape[1]):
            real = np.flatnonzero(np.diff(self.edges[j]) > 0)
            known = ~np.isnan(values[:, j])
            block = np.zeros((len(values), len(real)), dtype=np.float32)
            block[known] = (self._pieces(values[known, j], j) - self.offset[j])[:, real]
            blocks.append(block)
        return (
            np.ascontiguousarray(np.concatenate(blocks, axis=1)) if blocks else np.empty((len(values), 0), np.float32)
        )

    def _pieces(self, column: np.ndarray, j: int) -> np.ndarray:
        length = np.diff(self.edges[j])
        inverse = np.divide(1.0, length, out=np.zeros_like(length), where=length > 0)
        return np.asarray(np.clip((column[:, None] - self.edges[j, :-1]) * inverse, 0.0, 1.0))

    def state(self) -> dict[str, np.ndarray]:
        return {"centre": self.centre, "scale": self.scale, "edges": self.edges, "offset": self.offset}

    @staticmethod
    def from_state(state: dict[str, np.ndarray]) -> Numbers:
        return Numbers(
            **{name: np.asarray(state[name], dtype=np.float64) for name in ("centre", "scale", "edges", "offset")}
        )


def _bin_count(rows: int, columns: int) -> int:
    """By distinct rows (a problem merges equal ones first): weights may be in any unit, so their sum says nothing."""
    by_rows = rows // FEWEST_ROWS_PER_BIN
    by_columns = MOST_PIECEWISE_COLUMNS // max(columns, 1)
    return int(np.clip(min(by_rows, by_columns), 1, MOST_BINS))


def _quantiles(column: np.ndarray, mass: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Smallest values below or at which lie at least these shares of the mass."""
    order = np.argsort(column, kind="stable")
    total = np.cumsum(mass[order])
    position = np.searchsorted(total, shares * total[-1] * (1 - 1e-12), side="left")
    return np.asarray(column[order][np.minimum(position, len(column) - 1)])


def _spread(edges: np.ndarray, low: float, high: float) -> float:
    """The interquartile range; half the whole range where more than half of the values are equal."""
    return float(high - low) if high > low else float(edges[-1] - edges[0]) / 2
