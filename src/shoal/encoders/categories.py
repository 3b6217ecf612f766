"""Categories: a 0/1 input for each common value, and how frequent a value is where there are too many of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shoal.encoders.column import ColumnEncoder
from shoal.tables.table import Cells

MOST_VALUES = 50  # with an input each
MOST_COUNTED = 10_000  # values whose frequency is kept
RARE = 3.0  # values of less weight than this, or than RARE_SHARE of all weight, are pooled
RARE_SHARE = 0.01
UNSEEN = "\0unseen"  # stands for any string that no fold has seen


@dataclass(frozen=True)
class CategoryEncoder(ColumnEncoder):
    """0/1 inputs for the values of one column.

    `values` have an input each; None is the missing value. With `pooled`, the rest shares one more: values that
    were rare, and values never seen, which are rare by definition. Two values without a pool are one input of -1 and
    1, where an unseen value is 0. `frequent` (value -> log(1 + weight)) is there if values were cut off at the limit.
    """

    kind = "category"
    order = 1

    values: tuple[str | None, ...]
    pooled: bool
    frequent: dict[str, float] | None

    @classmethod
    def fit(cls, cells: Cells, weight: np.ndarray) -> CategoryEncoder:
        codes, values = cells.factor()
        mass = np.bincount(codes, weights=weight, minlength=len(values))
        seen = [j for j in range(len(values)) if mass[j] > 0]
        order = sorted(seen, key=lambda j: -mass[j])  # equal ones in the order of values, which is the alphabet's
        least = min(RARE, RARE_SHARE * float(mass.sum()))
        common = [j for j in order if mass[j] >= least or values[j] is None]
        kept = common[:MOST_VALUES] if len(order) > 2 else order
        counted = [j for j in order if values[j] is not None][:MOST_COUNTED] if len(common) > MOST_VALUES else None
        frequent = {str(values[j]): float(np.log1p(mass[j])) for j in counted} if counted else None
        return cls(tuple(values[j] for j in sorted(kept)), len(kept) < len(order), frequent)

    def number_names(self, column: str) -> list[str]:
        return [] if self.frequent is None else [f"{column}: frequency"]

    def numbers(self, cells: Cells) -> np.ndarray:
        if self.frequent is None:
            return super().numbers(cells)
        codes, values = cells.factor()
        return self.frequencies(values)[codes][:, None]

    def frequencies(self, values: Sequence[str | None]) -> np.ndarray:
        """(values,) float64: log(1 + weight), 0 for an unseen value, NaN for the missing one."""
        assert self.frequent is not None
        return np.array([np.nan if value is None else self.frequent.get(value, 0.0) for value in values])

    @property
    def width(self) -> int:
        return 1 if self._signed else len(self.values) + self.pooled

    @property
    def _signed(self) -> bool:
        return len(self.values) == 2 and not self.pooled

    def input_names(self, column: str) -> list[str]:
        labels = ["missing" if value is None else value for value in self.values]
        if self._signed:
            return [f"{column} = {labels[1]}, not {labels[0]}"]
        return [f"{column} = {label}" for label in labels] + [f"{column} = other"] * self.pooled

    def write_inputs(self, cells: Cells, out: np.ndarray) -> None:
        self.write_values(*cells.factor(), out)

    def write_values(self, codes: np.ndarray, values: Sequence[str | None], out: np.ndarray) -> None:
        """The same for values[codes]."""
        position = {value: j for j, value in enumerate(self.values)}
        elsewhere = len(self.values) if self.pooled else -1
        places = np.array([position.get(value, -1 if value is None else elsewhere) for value in values], dtype=np.int64)
        place = places[codes]
        if self._signed:
            out[:, 0] = np.array([-1.0, 1.0, 0.0], dtype=np.float32)[place]
            return
        known = np.flatnonzero(place >= 0)
        out[known, place[known]] = 1.0
