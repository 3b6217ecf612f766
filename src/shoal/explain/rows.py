"""Explanations of single rows: what each column adds to the prediction of a row."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shoal.console.notebook import InNotebook
from shoal.errors import UserError
from shoal.explain.shapley import MOST_EXACT, PAIRS, Mixer, exact_values, games_of, sampled_values
from shoal.models.model import Model
from shoal.tables.table import Table

MOST_PAIRS = 256  # where seconds are given: more would change nothing that anyone sees


@dataclass(frozen=True, eq=False)
class RowExplanations(InNotebook):
    """Contributions of columns to predictions. The `values` of a row sum to its prediction minus the `mean`.

    For one number, arrays have the shapes (rows, columns), (rows,) and (); for classes or several numbers they have
    one more axis for these, at the end.
    """

    columns: tuple[str, ...]
    values: np.ndarray
    error: np.ndarray  # standard error of the values, from sampling; zero where they are exact
    prediction: np.ndarray
    mean: np.ndarray  # of the predictions of the background rows
    outputs: tuple[str, ...] | None = None  # names of the classes, or None
    walks: int = 0  # from background rows to each row; 0: exact

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        how = "exact" if not self.walks else f"{self.walks} samples each"
        return f"RowExplanations({len(self)} rows, {len(self.columns)} columns, {how})"

    def of(self, output: int) -> RowExplanations:
        """Of one class, or one of several numbers, by its place."""
        if self.values.ndim == 2:
            return self
        return RowExplanations(
            self.columns, self.values[..., output], self.error[..., output], self.prediction[..., output],
            self.mean[..., output], None, self.walks,
        )  # fmt: skip


def explain_rows(
    model: Model,
    rows: Table,
    background: Table,
    *,
    outputs: Sequence[str] | None = None,
    seconds: float | None = None,
    exact: bool = False,
    seed: int = 0,
    threads: int | None = None,
) -> RowExplanations:
    """Shapley values of the columns that the model uses.

    outputs  names of the classes; None: the model predicts numbers
    seconds  at most, about; None: a fixed number of samples, and the same values every time
    exact    from all sets of columns, for few columns
    """
    columns = tuple(column.name for column in model.schema.used)
    if exact and len(columns) > MOST_EXACT:
        raise UserError(
            f"exact=True is for at most {MOST_EXACT} columns, since every set of them is tried; the model uses "
            f"{len(columns)}: use exact=False"
        )
    begun = time.monotonic()
    walks = 0
    if exact:
        whole = Mixer(model, rows, background, threads).game()
        values = exact_values(whole, len(columns))
        error = np.zeros_like(values)
    else:
        whole, parts = games_of(model, rows, background, threads, seed)
        values, error, walks = sampled_values(
            whole, parts, len(columns), PAIRS if seconds is None else MOST_PAIRS, seed,
            lambda: seconds is not None and time.monotonic() - begun >= seconds,
        )  # fmt: skip
    names = None if outputs is None else tuple(outputs)
    found = RowExplanations(columns, values, error, whole.rows, whole.background.mean(axis=0), names, walks)
    return found.of(0) if outputs is None and values.shape[-1] == 1 else found
