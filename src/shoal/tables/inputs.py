"""Turns any X that users give, for training and for prediction, into a table.

Training and prediction take the same forms (`named_columns`): frames, dicts of columns, lists of dicts (rows with
names), arrays, lists of rows. For prediction, columns with names are found by them, in any order; more columns than
the training data had are ignored, with a note; columns without names are those of the training data, in their order.

scikit-learn is imported where it is used: rows of a file do not need it, and it takes a second.
"""

from __future__ import annotations

import datetime
import decimal
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np

from shoal.errors import UserError
from shoal.tables.frames import beyond, unmasked
from shoal.tables.reading import Reading
from shoal.tables.schema import Schema
from shoal.tables.spelling import LARGEST_WHOLE
from shoal.tables.table import Table, listed, nested, rows_as_columns, with_unique_names


def named_columns(X: Any) -> Any:
    """A list of dicts as a dict of columns, a frame with different names for all columns, an array without masks.

    All else stays as it is.
    """
    return with_unique_names(rows_as_columns(unmasked(X)))


def has_names(X: Any) -> bool:
    """Frames, dicts (one of scipy's sparse matrices is a subclass of dict) and our own tables."""
    return isinstance(X, Table) or type(X) is dict or hasattr(X, "columns")


def has_strings(X: Any) -> bool:
    """Whether there are words in a matrix or in a list of rows."""
    if isinstance(X, (list, tuple)):
        rows = (row if isinstance(row, (list, tuple)) else (row,) for row in X)
        return any(isinstance(cell, str) for row in rows for cell in row)
    return isinstance(X, np.ndarray) and X.ndim == 2 and (
        X.dtype.kind in "US" or (X.dtype == object and any(isinstance(cell, str) for cell in X.ravel()))
    )  # fmt: skip


def has_objects(X: Any) -> bool:
    """Whether there are cells that scikit-learn makes no numbers of, or only inexact ones.

    These are dates, times, decimals, missing values of pandas, and whole numbers that float64 does not hold exactly.
    """
    if isinstance(X, (list, tuple)):
        cells: Iterable[Any] = [cell for row in X if isinstance(row, (list, tuple)) for cell in row]
    elif isinstance(X, np.ndarray) and X.dtype == object:
        cells = X.ravel()
    else:
        return isinstance(X, np.ndarray) and (X.dtype.kind in "Mm" or (X.ndim == 2 and beyond(X)))
    kinds = (datetime.date, datetime.time, datetime.timedelta, np.datetime64, np.timedelta64, decimal.Decimal)
    if any(issubclass(kind, kinds) or kind.__name__ in ("NAType", "NaTType") for kind in set(map(type, cells))):
        return True
    return any(isinstance(cell, int) and abs(cell) > LARGEST_WHOLE for cell in cells)


def training_table(estimator: Any, X: Any) -> tuple[Table, bool]:
    """The table that an estimator is fitted on, and whether it was an array of numbers.

    Sets `n_features_in_` and, where there are names, `feature_names_in_`. Frames keep the types of their columns;
    arrays are checked as scikit-learn does.
    """
    from sklearn.utils.validation import validate_data

    X = named_columns(X)
    if isinstance(X, Table) or type(X) is dict:
        table = Table.of(X)
        estimator.n_features_in_ = len(table.names)
        estimator.feature_names_in_ = np.array(table.names, dtype=object)
        return table, False
    if has_names(X) or has_strings(X) or has_objects(X):
        validate_data(estimator, X, reset=True, skip_check_array=True)
        table = Table.of(X)
        dates = any(column.dtype.kind == "M" for column in table.columns)
        return table, not (has_names(X) or has_strings(X) or dates)
    array = validate_data(estimator, X, reset=True, dtype=np.float64, ensure_all_finite=False, ensure_min_samples=2)
    return Table.of(array), True


def new_table(estimator: Any, X: Any) -> Table:
    """The table that a fitted estimator predicts."""
    schema: Schema = estimator.schema_
    reading: Reading = getattr(estimator, "reading_", None) or Reading()
    X = named_columns(X)
    if not has_names(X):
        table = reading.without_marks(_by_place(estimator, X, reading))
        warn_of_conversion(schema, table, stacklevel=5)
        return table
    table = Table.of(X, missing=reading.missing)
    if len(table) == 0:
        raise UserError("the table has no rows: found array with 0 sample(s); at least 1 is needed")
    if not hasattr(estimator, "feature_names_in_") and schema.missing(table):
        name = type(estimator).__name__
        warnings.warn(f"X has feature names, but {name} was fitted without feature names", UserWarning, stacklevel=4)
        _check_width(estimator, len(table.names))
        return Table.of(table, [column.name for column in schema.columns])
    schema.refuse_missing(table)
    extra = schema.unknown(table, {*reading.columns, getattr(estimator, "target_name_", None)})
    if extra:
        warnings.warn(f"{ignored(extra)}", UserWarning, stacklevel=4)
    warn_of_conversion(schema, table, stacklevel=5)
    return reading.without_marks(table)


def warn_of_conversion(schema: Schema, table: Table, stacklevel: int) -> None:
    """Say where numbers in strings have another decimal sign than in training."""
    said = schema.conversion(table)
    if said is not None:
        warnings.warn(said, UserWarning, stacklevel=stacklevel)


def ignored(extra: list[str]) -> str:
    """A sentence that names columns which are ignored."""
    return f"columns that the training data did not have are ignored: {listed(extra)}"


def _by_place(estimator: Any, X: Any, reading: Reading) -> Table:
    from sklearn.utils.validation import check_array

    names = [column.name for column in estimator.schema_.columns]
    if not (has_strings(X) or has_objects(X)):
        X = check_array(X, dtype=np.float64, ensure_all_finite=False, estimator=estimator, input_name="X")
    elif isinstance(X, (list, tuple)):
        X = nested(X)
    if X.ndim == 2:
        _check_width(estimator, X.shape[1])
    return Table.of(X, names, missing=reading.missing)


def _check_width(estimator: Any, width: int) -> None:
    if width != estimator.n_features_in_:
        raise UserError(
            f"X has {width} features, but {type(estimator).__name__} is expecting {estimator.n_features_in_} features "
            "as input: give all columns of the training data, in their order, or a table with names"
        )
