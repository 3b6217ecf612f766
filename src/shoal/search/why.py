"""Explanations of rows in numbers and words: what their page and the screen show."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np

from shoal.explain.rows import RowExplanations
from shoal.metrics.tasks import MULTILABEL
from shoal.tables.table import Table

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
