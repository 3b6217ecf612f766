"""What users give to the estimators, checked: errors name the rule, the value received and the remedy."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np

from shoal.machine import MOST_THREADS, thread_count

LARGEST_TARGET = 1e37  # predictions are kept in single precision, which ends at 3e38
SMALLEST_TARGET = 1e-30


def positive(name: str, value: Any) -> float | None:
    if value is None:
        return None
    if not isinstance(value, Real) or isinstance(value, bool) or not 0 < float(value) < np.inf:
        raise ValueError(f"{name} must be a number of seconds above zero, or None; got {value!r}")
    return float(value)


def whole(name: str, value: Any, least: int) -> int | None:
    if value is None:
        return None
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}; got {value!r}")
    return int(value)


def yes_or_no(name: str, value: Any) -> bool:
    """A word such as "no" would count as yes."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} must be True or False; got {value!r}")
    return bool(value)


def threads_of(n_jobs: int | None) -> int:
    """None: what SHOAL_THREADS says, or all cores; -1: all cores, -2: all but one, and so on."""
    if n_jobs is None:
        return thread_count()
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, Integral) or n_jobs == 0 or n_jobs > MOST_THREADS:
        raise ValueError(
            f"n_jobs must be a number of threads from 1 to {MOST_THREADS}, -1 (all cores) or below, or None; got "
            f"{n_jobs!r}"
        )
    return int(n_jobs) if n_jobs > 0 else max(1, thread_count() + 1 + int(n_jobs))


def seed_of(random_state: Any) -> int:
    from sklearn.utils import check_random_state

    if isinstance(random_state, Integral) and not isinstance(random_state, bool) and 0 <= int(random_state) < 1 << 32:
        return int(random_state)
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def has_strings(X: Any) -> bool:
    """Whether there are words in a matrix or in a list of rows."""
    if isinstance(X, (list, tuple)):
        rows = (row if isinstance(row, (list, tuple)) else (row,) for row in X)
        return any(isinstance(cell, str) for row in rows for cell in row)
    return isinstance(X, np.ndarray) and X.ndim == 2 and (
        X.dtype.kind in "US" or (X.dtype == object and any(isinstance(cell, str) for cell in X.ravel()))
    )  # fmt: skip


# ---- targets ----


def target_array(y: Any, n: int, name: str) -> np.ndarray:
    """The target as an array with n rows, none of them missing; a single column is one-dimensional."""
    from sklearn.utils.validation import column_or_1d

    if hasattr(y, "to_numpy"):
        y = y.to_numpy()
    array = np.asarray(y)
    if array.ndim == 0 or len(array) != n:
        raise ValueError(f"X and y must have as many rows: inconsistent numbers of samples, {n} and {np.size(array)}")
    _refuse_missing(array, name)
    if array.dtype == object and array.ndim == 1 and all(isinstance(cell, (bool, np.bool_)) for cell in array):
        array = array.astype(bool)
    return column_or_1d(array, warn=True) if array.ndim == 2 and array.shape[1] == 1 else array


def target_name(y: Any, known: str | None) -> str:
    """How a target is called in errors: as its column is, as the command line says, or y."""
    name = plain_name(y, known)
    return f"target {name!r}" if name else "target y"


def plain_name(y: Any, known: str | None) -> str | None:
    name = getattr(y, "name", None)
    return name if isinstance(name, str) else known


def _refuse_missing(y: np.ndarray, name: str) -> None:
    missing = _rows(np.array([_is_missing(cell) for cell in y.ravel()]) if y.dtype == object else y != y, y)
    if missing:
        raise ValueError(
            f"Input y contains NaN: the {name} is missing in {missing:,} of {len(y):,} rows; leave those rows out, or "
            "fill the values in"
        )
    infinite = _rows(np.isinf(y), y) if y.dtype.kind == "f" else 0
    if infinite:
        raise ValueError(
            f"Input y contains infinity: the {name} is infinite in {infinite:,} of {len(y):,} rows; leave those rows "
            "out, or give their values as numbers"
        )


def _is_missing(cell: Any) -> bool:
    """None, NaN, or what pandas has for them."""
    return cell is None or type(cell).__name__ in ("NAType", "NaTType") or (isinstance(cell, Real) and cell != cell)


def _rows(bad: np.ndarray, y: np.ndarray) -> int:
    return int(np.asarray(bad).reshape(len(y), -1).any(axis=1).sum()) if len(y) else 0


def refuse_extreme(values: np.ndarray, name: str) -> None:
    """Numbers whose squares overflow, or vanish, would have neither a loss nor a score."""
    largest = float(np.abs(values).max(initial=0.0))
    if largest > LARGEST_TARGET:
        raise ValueError(
            f"numbers to predict must not be larger than {LARGEST_TARGET:g}, or their squares overflow; the {name} "
            f"goes up to {largest:g}: divide it by a constant, or predict its logarithm"
        )
    if 0 < largest < SMALLEST_TARGET:
        raise ValueError(
            f"numbers to predict must not all be smaller than {SMALLEST_TARGET:g}, or their squares vanish; the {name} "
            f"goes up to {largest:g}: multiply it by a constant, or predict its logarithm"
        )
