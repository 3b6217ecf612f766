"""Numbers and booleans: taken as they are, with an input that says where they are missing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shoal.encoders.column import ColumnEncoder
from shoal.tables.missing import missing_cells
from shoal.tables.table import Cells


@dataclass(frozen=True)
class NumberEncoder(ColumnEncoder):
    """One number, and one input that is 1 where it is missing, if it sometimes is."""

    kind = "number"
    order = 0

    missing: bool  # whether there is such an input

    @classmethod
    def fit(cls, cells: Cells, weight: np.ndarray) -> NumberEncoder:
        return cls(sometimes_missing(cells, weight))

    def number_names(self, column: str) -> list[str]:
        return [column]

    def numbers(self, cells: Cells) -> np.ndarray:
        return cells.values[:, None]

    @property
    def shared_numbers(self) -> bool:
        return True

    def input_names(self, column: str) -> list[str]:
        return [f"{column} is missing"] * self.missing

    @property
    def width(self) -> int:
        return int(self.missing)

    def write_inputs(self, cells: Cells, out: np.ndarray) -> None:
        out[:, 0] = missing_cells(cells.values)


def sometimes_missing(cells: Cells, weight: np.ndarray) -> bool:
    """Missing in some of the rows that count, and not in all of them, where it would tell nothing."""
    missing = missing_cells(cells.values)
    return bool(missing.any() and (missing & (weight > 0)).any() and (~missing & (weight > 0)).any())
