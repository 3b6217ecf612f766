"""Fits as `shoal search` does them: of a table, on a clock, from a journal, or an earlier run again."""

from __future__ import annotations

from typing import Any

from shoal.tables.reading import Reading
from shoal.tables.table import Table


def fit_table(model: Any, X: Any, y: Any, name: str = "y", reading: Reading | None = None, **how: Any) -> Any:
    """`how`: a clock, a journal or an earlier run; `reading`: how the file was read."""
    model._fit(Table.of(X), y, {}, **how)
    model.target_name_ = name
    if reading is not None:
        model.reading_ = reading
    return model
