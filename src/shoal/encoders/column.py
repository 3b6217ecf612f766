"""The interface of every column encoder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from shoal.tables.table import Cells


class ColumnEncoder(ABC):
    """What the cells of one column become, fitted on the training rows of one fold: numbers, inputs, or both.

    Numbers are scaled with the numbers of all other columns, in the encodings of `scaling`; NaN is missing.
    Inputs go to the networks as they are. Write `number_names` and `numbers`, or `input_names` and `write_inputs`.

    The result must depend on the different rows and their total weights alone: a row of weight two counts as the row
    twice, a row of weight zero leaves no trace, and the order of rows does not matter.

    A custom object works in place of the name of a kind: `kinds={"angle": Angle()}`. `kind` says how
    its cells are read. `fit` is called on a copy of the object for each fold and returns the fitted encoder, which
    may be that copy. Models with it can predict, but not be saved: their files hold no code.
    """

    kind: ClassVar[str]  # one of shoal.tables.kinds.KINDS
    order: ClassVar[int] = 3  # its place among the columns of the result: numbers and dates 0, categories 1, texts 2

    @classmethod
    @abstractmethod
    def fit(cls, cells: Cells, weight: np.ndarray) -> ColumnEncoder:
        """Fitted on the cells; weight (n,) is not negative, and not zero everywhere."""

    def number_names(self, column: str) -> list[str]:
        """Names of what `numbers` gives."""
        return []

    def numbers(self, cells: Cells) -> np.ndarray:
        """(n, number of names) float64, NaN where missing."""
        return np.empty((len(cells), 0))

    @property
    def shared_numbers(self) -> bool:
        """Whether the numbers are the same in every fold, so that they need to be made and sorted only once."""
        return not self.number_names("")

    def input_names(self, column: str) -> list[str]:
        """Names of what `write_inputs` fills in."""
        return []

    @property
    def width(self) -> int:
        """How many inputs there are."""
        return len(self.input_names(""))

    def write_inputs(self, cells: Cells, out: np.ndarray) -> None:
        """Fill out (n, width) float32, which holds zeros."""
        if out.shape[1]:
            raise NotImplementedError(f"{type(self).__name__} has input_names but no write_inputs")
