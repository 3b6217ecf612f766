"""The values to predict, checked: errors name the rule, the value received and the remedy."""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.errors import UserError
from shoal.tables.frames import unmasked
from shoal.tables.missing import is_missing, missing_cells

LARGEST_TARGET = 1e37  # predictions are kept in single precision, which ends at 3e38
SMALLEST_TARGET = 1e-30


def target_array(y: Any, n: int, name: str) -> np.ndarray:
    """The target as an array with n rows, none of them missing; a single column is one-dimensional."""
    from sklearn.utils.validation import column_or_1d

    if hasattr(y, "to_numpy"):
        y = y.to_numpy()
    array = np.asarray(unmasked(y))
    if array.ndim == 0 or len(array) != n:
        raise UserError(f"X and y must have as many rows: inconsistent numbers of samples, {n} and {np.size(array)}")
    _refuse_missing(array, name)
    if array.dtype == object and array.ndim == 1 and all(isinstance(cell, (bool, np.bool_)) for cell in array):
        array = array.astype(bool)
    return column_or_1d(array, warn=True) if array.ndim == 2 and array.shape[1] == 1 else array


def target_name(y: Any, known: str | None) -> str:
    """The name of a target in errors: that of its column, the one known from the command line, or y."""
    name = plain_name(y, known)
    return f"target {name!r}" if name else "target y"


def plain_name(y: Any, known: str | None) -> str | None:
    name = getattr(y, "name", None)
    return name if isinstance(name, str) else known


def _refuse_missing(y: np.ndarray, name: str) -> None:
    cells = y.ravel()  # a blank string may be a class
    missing = _rows(np.array([is_missing(c) for c in cells]) if y.dtype == object else missing_cells(cells), y)
    if missing:
        raise UserError(
            f"Input y contains NaN: the {name} is missing in {missing:,} of {len(y):,} rows; leave those rows out, or "
            "fill the values in"
        )
    infinite = _rows(np.isinf(y), y) if y.dtype.kind == "f" else 0
    if infinite:
        raise UserError(
            f"Input y contains infinity: the {name} is infinite in {infinite:,} of {len(y):,} rows; leave those rows "
            "out, or give their values as numbers"
        )


def _rows(bad: np.ndarray, y: np.ndarray) -> int:
    return int(np.asarray(bad).reshape(len(y), -1).any(axis=1).sum()) if len(y) else 0


def refuse_extreme(values: np.ndarray, name: str) -> None:
    """Refuse numbers whose squares overflow or vanish: they would have neither a loss nor a score."""
    largest = float(np.abs(values).max(initial=0.0))
    if largest > LARGEST_TARGET:
        raise UserError(
            f"numbers to predict must not be larger than {LARGEST_TARGET:g}, or their squares overflow; the {name} "
            f"goes up to {largest:g}: divide it by a constant, or predict its logarithm"
        )
    if 0 < largest < SMALLEST_TARGET:
        raise UserError(
            f"numbers to predict must not all be smaller than {SMALLEST_TARGET:g}, or their squares vanish; the {name} "
            f"goes up to {largest:g}: multiply it by a constant, or predict its logarithm"
        )
