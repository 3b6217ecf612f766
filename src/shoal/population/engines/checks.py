"""Conversion of users' arrays to the arrays that engines take, with errors that name what is wrong and where."""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.errors import UserError, WrongType
from shoal.population.engines.program import LOSSES, Data
from shoal.validate import one_of

LARGEST_ROWS = (1 << 31) - 1


def check_loss(loss: str) -> str:
    return one_of("loss", loss, LOSSES)


def check_features(X: Any, n_features: int) -> np.ndarray:
    """(n_rows, n_features) float32 in C order, all finite. float64, integers and Fortran order are converted."""
    names = [str(name) for name in getattr(X, "columns", ())]
    array = _as_array(X)
    if array.ndim != 2:
        raise UserError(f"X must have two dimensions, rows and features; got shape {array.shape}")
    if array.dtype.kind not in "fiub":
        raise WrongType(f"X must hold numbers; got {array.dtype}. Turn text and categories into numbers first")
    if array.shape[1] != n_features:
        raise UserError(f"X must have {n_features} columns, as many as the population; got {array.shape[1]}")
    if not 1 <= array.shape[0] <= LARGEST_ROWS:
        raise UserError(f"X must have from 1 to {LARGEST_ROWS} rows; got {array.shape[0]}")
    with np.errstate(over="ignore"):  # a float64 too large for float32 becomes infinite, which is reported below
        result = np.ascontiguousarray(array, dtype=np.float32)
    _check_finite(result, names)
    return result


def _as_array(X: Any) -> np.ndarray:
    """An array; tables that mix kinds of numbers, and missing values, become float64 with NaN."""
    if hasattr(X, "toarray") and hasattr(X, "nnz"):
        raise WrongType("X is a sparse matrix; give X.toarray()")
    array = np.asarray(X)
    if array.dtype != object:
        return array
    if not any(isinstance(value, (str, bytes)) for value in array.flat):
        try:
            return np.asarray(X.to_numpy(np.float64, na_value=np.nan) if hasattr(X, "to_numpy") else array, np.float64)
        except (TypeError, ValueError):
            pass
    return array


def _check_finite(X: np.ndarray, names: list[str]) -> None:
    for start in range(0, len(X), 4096):  # in pieces, to avoid a mask as large as the data
        bad = ~np.isfinite(X[start : start + 4096])
        if bad.any():
            row, column = (int(k) for k in np.argwhere(bad)[0])
            name = f" ({names[column]!r})" if names else ""
            raise UserError(
                f"X must be finite in float32, but column {column}{name} is {X[start + row, column]} "
                f"in row {start + row}; fill or drop such values first"
            )


def check_data(X: Any, y: Any, n_features: int, n_outputs: int, loss: str) -> Data:
    """Features and targets, checked against the population and against each other."""
    features = check_features(X, n_features)
    target = np.asarray(y)
    if len(target.shape) == 0 or len(target) != len(features):
        raise UserError(f"y must have one entry per row of X: {target.shape=}, {features.shape=}")
    if loss == "cross_entropy":
        return Data(features, _labels(target, n_outputs), np.empty((0, n_outputs), np.float32))
    return Data(features, np.empty(0, np.int32), _targets(target, n_outputs, loss))


def _labels(y: np.ndarray, n_outputs: int) -> np.ndarray:
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1:
        raise UserError(f"y must be one class number per row for cross_entropy; got shape {y.shape}")
    if y.dtype.kind not in "fiub":
        raise WrongType(f"y must hold class numbers; got {y.dtype}. Encode labels first, e.g. with np.unique")
    if y.dtype.kind == "f" and not np.all(y == np.floor(y)):  # NaN and infinity fail here or below
        raise UserError("y must hold whole class numbers for cross_entropy; for a regression use loss='mse'")
    if y.min() < 0 or y.max() >= n_outputs:
        wrong = y[(y < 0) | (y >= n_outputs)][0]
        raise UserError(f"y must be from 0 to {n_outputs - 1}, one class per output; got {wrong}")
    return np.ascontiguousarray(y, dtype=np.int32)


def _targets(y: np.ndarray, n_outputs: int, loss: str) -> np.ndarray:
    if y.dtype.kind not in "fiub":
        raise WrongType(f"y must hold numbers; got {y.dtype}")
    if y.ndim == 1 and n_outputs == 1:
        y = y[:, None]
    if y.ndim != 2 or y.shape[1] != n_outputs:
        raise UserError(f"y must have shape (n_rows, {n_outputs}), a column per output; got {y.shape}")
    with np.errstate(over="ignore"):
        result = np.ascontiguousarray(y, dtype=np.float32)
    if not np.all(np.isfinite(result)):
        row, column = (int(k) for k in np.argwhere(~np.isfinite(result))[0])
        raise UserError(f"y must be finite in float32, but row {row}, column {column} is {result[row, column]}")
    if loss == "bce" and (result.min() < 0 or result.max() > 1):
        wrong = result[(result < 0) | (result > 1)][0]
        raise UserError(f"y must be from 0 to 1 for bce; got {wrong:g}")
    return result


def check_class_weight(class_weight: Any, n_outputs: int, loss: str) -> np.ndarray:
    """(n_outputs,) float32, or empty for none."""
    if class_weight is None:
        return np.empty(0, np.float32)
    if loss != "cross_entropy":
        raise UserError(f"class_weight works with cross_entropy only; for {loss} give weights to rows instead")
    weight = np.ascontiguousarray(class_weight, dtype=np.float32)
    if weight.shape != (n_outputs,):
        raise UserError(f"class_weight needs {n_outputs} numbers, one per output; got shape {weight.shape}")
    if not np.all(np.isfinite(weight)) or np.any(weight <= 0):
        raise UserError(f"class weights must be finite and above zero; got {weight.tolist()}")
    return weight
