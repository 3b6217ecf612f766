"""Measured times against sizes, and what lies between them."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Curve:
    """Seconds against a size (rows, or bytes): straight lines between the points that were measured.

    A line through all points (least squares of relative errors) gives the fixed part and the part per unit.

    >>> curve = Curve(((2, 3.0), (4, 4.0), (8, 6.0)))
    >>> round(curve.fixed, 6), round(curve.slope, 6), curve(6), curve(16)
    (2.0, 0.5, 5.0, 10.0)
    """

    points: tuple[tuple[float, float], ...]
    spread: float = 0.0  # of repeated measurements, as a share of their middle

    @classmethod
    def of(cls, measured: Mapping[float, Iterable[float]]) -> Curve:
        """From several measurements of each size: the best, which other programs have disturbed least."""
        sizes = {size: sorted(values) for size, values in measured.items()}
        points = tuple((size, values[0]) for size, values in sorted(sizes.items()))
        spreads = [
            (values[-1 - len(values) // 4] - values[len(values) // 4]) / 2 / statistics.median(values)
            for values in sizes.values() if len(values) > 2
        ]  # fmt: skip
        return cls(points, statistics.median(spreads) if spreads else 0.0)

    @cached_property
    def _line(self) -> tuple[float, float]:
        """Intercept and slope, neither below zero."""
        x, y = np.array(self.points).T
        if len(x) == 1:
            return 0.0, float(y[0] / x[0])
        weights = 1 / np.maximum(y, 1e-12) ** 2
        mean_x, mean_y = (np.average(values, weights=weights) for values in (x, y))
        slope = max(0.0, float(weights @ ((x - mean_x) * (y - mean_y)) / (weights @ (x - mean_x) ** 2)))
        return max(0.0, float(mean_y - slope * mean_x)), slope

    @property
    def fixed(self) -> float:
        """What a step costs however few rows it has: this never parallelises."""
        return self._line[0]

    @property
    def slope(self) -> float:
        """What each row (or byte) more costs."""
        return self._line[1]

    def __call__(self, size: float) -> float:
        points = self.points
        if len(points) == 1:
            return self.fixed + self.slope * size
        if size <= points[0][0]:  # towards the fixed part, which is never above the first point
            x, y = points[0]
            fixed = min(self.fixed, y)
            return fixed + (y - fixed) * size / x
        (x0, y0), (x1, y1) = points[-2:]
        if size > x1:
            return y1 + max((y1 - y0) / (x1 - x0), 0.0) * (size - x1)
        return float(np.interp(size, [x for x, _ in points], [y for _, y in points]))

    def as_dict(self) -> dict[str, Any]:
        return {"fixed_seconds": self.fixed, "seconds_per_row": self.slope, "spread": self.spread,
                "points": [list(point) for point in self.points]}  # fmt: skip
