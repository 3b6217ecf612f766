"""Explanations of a fitted estimator, and their file: `explanation.json` in the model folder.

It is no part of the model: whether it is there changes no prediction, and it may be deleted. It holds a few rows of the
training data, which explanations of single rows are compared with.
"""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np

from shoal.errors import CompleteError, UserError
from shoal.explain.results import Explanation, Importances
from shoal.explain.rows import RowExplanations, explain_rows
from shoal.metrics.tasks import MULTILABEL
from shoal.models.saving import EXPLANATION, read_json
from shoal.search.results.explaining import output_names
from shoal.tables.missing import missing_cells
from shoal.tables.table import Table
from shoal.validate import number

FORMAT, VERSION = "shoal-explanation", 1
LEAST_SECONDS = 0.0


def importance_of(estimator: Any) -> Importances:
    """`AttributeError`, as attributes have it, where it is not known."""
    name = type(estimator).__name__
    if "model_" not in vars(estimator):
        raise AttributeError(f"this {name} has no importance_ yet: call fit first")
    explanation: Explanation | None = getattr(estimator, "explanation_", None)
    if explanation is None:
        raise AttributeError(
            f"this {name} has no importance_: its model was saved without {EXPLANATION}, or there was no time for it; "
            "fit again with explain_seconds=5"
        )
    return explanation.importance


def background_of(estimator: Any) -> Table:
    """Rows of the training data."""
    background: Table | None = getattr(estimator, "background_", None)
    if background is None:
        raise UserError(
            f"explain compares rows with some of the training data, and this model has none, since {EXPLANATION} is "
            "missing: give rows of the training data as background= (--background FILE)"
        )
    return background


def explain_estimator(
    estimator: Any, rows: Table, background: Table, seconds: float | None, exact: bool, threads: int | None
) -> RowExplanations:
    if seconds is not None:
        number("seconds", seconds, LEAST_SECONDS, what="a number of seconds")
    if len(background) < 2:
        raise UserError(f"background must have at least 2 rows to compare with; got {len(background)}")
    model = estimator.model_
    names = output_names(model, getattr(estimator, "classes_", None))
    return explain_rows(model, rows, background, outputs=names, seconds=seconds, exact=exact, threads=threads)


# ---- the file ----


def described(estimator: Any) -> dict[str, Any]:
    """What explanation.json holds; empty, where nothing is known."""
    explanation: Explanation | None = getattr(estimator, "explanation_", None)
    background: Table | None = getattr(estimator, "background_", None)
    if explanation is None and background is None:
        return {}
    return {
        "format": FORMAT, "version": VERSION,
        "explanation": None if explanation is None else explanation.as_dict(),
        "background": None if background is None else _plain_table(background),
    }  # fmt: skip


def restore(estimator: Any, folder: Path) -> None:
    """Give an estimator what the file says, where there is one."""
    file = folder / EXPLANATION
    estimator.explanation_, estimator.background_ = None, None
    if not file.is_file():
        return
    try:
        found = read_json(file)
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise UserError(f"{file} is no explanation of Shoal's")
        if found.get("version") != VERSION:
            raise UserError(f"{file} has format version {found.get('version')}; this Shoal reads version {VERSION}")
        if found.get("explanation") is not None:
            estimator.explanation_ = Explanation.from_dict(found["explanation"])
        if found.get("background") is not None:
            background = _table(found["background"])
            estimator.background_ = estimator.model_.schema.check(background)
    except (AttributeError, KeyError, LookupError, TypeError, ValueError) as error:
        what = f"{error.args[0]} is missing" if isinstance(error, KeyError) else " ".join(str(error).split())
        raise CompleteError(f"{file} cannot be read: {what}; the model does not need it: delete it") from None


def _plain_table(table: Table) -> dict[str, Any]:
    columns = [
        {"name": name, "dates": column.dtype.kind == "M", "cells": _plain_cells(column)}
        for name, column in zip(table.names, table.columns, strict=True)
    ]
    return {"rows": len(table), "columns": columns}


def _plain_cells(column: np.ndarray) -> list[Any]:
    missing = missing_cells(column)
    cells = column.astype(str).tolist() if column.dtype.kind == "M" else column.tolist()
    return [None if gone else cell for cell, gone in zip(cells, missing, strict=True)]


def _table(plain: dict[str, Any]) -> Table:
    names, columns = [], []
    for column in plain["columns"]:
        cells = column["cells"]
        if len(cells) != plain["rows"]:
            raise UserError(f"the cells of {column['name']!r} must be {plain['rows']}; got {len(cells)}")
        names.append(str(column["name"]))
        if column["dates"]:
            columns.append(np.array(["NaT" if cell is None else cell for cell in cells], dtype="datetime64[us]"))
        elif all(cell is None or isinstance(cell, (int, float)) for cell in cells) and any(
            cell is not None for cell in cells
        ):
            columns.append(np.array([np.nan if cell is None else cell for cell in cells], dtype=np.float64))
        else:
            columns.append(np.array(cells, dtype=object))
    return Table(names, columns)


# ---- in words ----

ROWS_SHOWN = 100
LINES, COLUMNS = 10, 3  # rows on the screen, and columns of each


def why_data(estimator: Any, table: Table, found: RowExplanations, title: str) -> dict[str, Any]:
    """Data of `shoal.report.why_page`: for each row the answer and what each column added to it."""
    from shoal.version import __version__

    checked = estimator.model_.schema.check(table)
    return {
        "title": title,
        "created": datetime.datetime.now().strftime("%Y-%m-%d %H:%M"),
        "version": __version__,
        "target": getattr(estimator, "target_name_", None) or "the target",
        "walks": found.walks,
        "rows": [_row(estimator, checked, found, k) for k in range(len(found))],
    }


def _row(estimator: Any, table: Table, found: RowExplanations, k: int) -> dict[str, Any]:
    """Of classes, the one that is predicted is explained; of several numbers the first."""
    output, answer = _answer(estimator, found, k)
    one = found.of(output)
    columns = [
        {"column": name, "value": _cell(table[name][k]), "adds": float(adds), "error": float(error)}
        for name, adds, error in zip(found.columns, one.values[k], one.error[k], strict=True)
    ]
    columns.sort(key=lambda column: -abs(column["adds"]))
    return {
        "number": k + 1, "answer": answer, "prediction": float(one.prediction[k]), "mean": float(one.mean),
        "share": found.outputs is not None and hasattr(estimator, "classes_"), "columns": columns,
    }  # fmt: skip


def _answer(estimator: Any, found: RowExplanations, k: int) -> tuple[int, str | None]:
    """Which output is explained, and its name."""
    if found.outputs is None:
        return 0, None
    if not hasattr(estimator, "classes_"):
        return 0, found.outputs[0]
    likely = int(np.argmax(found.prediction[k]))
    kind = estimator.model_.task.kind
    return likely, f"label {found.outputs[likely]}" if kind == MULTILABEL else found.outputs[likely]


def _cell(value: Any) -> Any:
    """A cell as JSON has it; None: missing."""
    if isinstance(value, np.datetime64):
        return None if np.isnat(value) else str(value.astype("datetime64[s]")).replace("T00:00:00", "")
    if isinstance(value, (float, np.floating)):
        return None if np.isnan(value) else float(value)
    return value


def why_lines(data: dict[str, Any]) -> list[str]:
    """The first rows as lines of text."""
    lines = []
    for row in data["rows"][:LINES]:
        said = _number(row["prediction"], row["share"])
        said = said if row["answer"] is None else f"{row['answer']} ({said})"
        parts = [f"{one['column']} {_number(one['adds'], row['share'], sign=True)}" for one in row["columns"][:COLUMNS]]
        lines.append(
            f"row {row['number']}: {said}, {_number(row['mean'], row['share'])} on average; {', '.join(parts)}"
        )
    rest = len(data["rows"]) - LINES
    return lines + ([f"and {rest} more rows"] if rest > 0 else [])


def _number(value: float, share: bool, sign: bool = False) -> str:
    """
    >>> _number(0.931, True), _number(-0.02, True, sign=True), _number(12.345, False, sign=True)
    ('93.1%', '-2.0 points', '+12.35')
    """
    plus = "+" if sign else ""
    if share:
        return f"{100 * value:{plus}.1f}" + (" points" if sign else "%")
    return f"{value:{plus}.4g}"
