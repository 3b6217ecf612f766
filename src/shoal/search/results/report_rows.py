"""The part of the report on single rows: widths of intervals, or sizes of sets, and for which rows they are large.

All of it is of rows as the networks saw them that did not train on them.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from shoal.metrics.tasks import CLASSIFICATION, REGRESSION
from shoal.search.results.result import SearchResult
from shoal.search.scoring.calibrate import HeldOutPredictions
from shoal.tables.frames import cell_text
from shoal.tables.missing import missing_cells
from shoal.tables.table import Table

COVERAGE = 0.9
MOST_COLUMNS = 3  # shown
MOST_VALUES = 6  # of a category
FEWEST_ROWS_OF_PART_SHOWN = 20
MATTERS = 0.05  # of the variance of widths or sizes that a column must explain
THIRDS = (1 / 3, 2 / 3)


def one_row(result: SearchResult, classes: list[str] | None) -> dict[str, Any] | None:
    """None where there is too little to go by, or several numbers or labels at once."""
    outcome, task = result.outcome, result.problem.task
    certainty, held = outcome.model.certainty, outcome.held_out
    known = task.kind == CLASSIFICATION or (task.kind == REGRESSION and task.n_outputs == 1)
    if certainty is None or certainty.calibration is None or not known or held.effective < COVERAGE / (1 - COVERAGE):
        return None
    typical = certainty.calibration.typical(COVERAGE)
    said = {"coverage": COVERAGE, "rows": int(held.count), "refit": outcome.refit}
    table = result.searched.table.take(result.problem.first_of[held.rows])
    if task.kind == REGRESSION:
        assert held.spread is not None
        width = _by_row(held, 2 * typical[0] * held.spread[:, 0])
        ends = np.quantile(width, (0.1, 0.5, 0.9)).tolist()
        return said | {"kind": "numbers", "widths": ends, "columns": for_whom(table, width)}
    inside = 1.0 - held.prediction <= typical[0] + 1e-12
    inside[np.arange(len(inside)), held.prediction.argmax(axis=1)] = True
    size = _by_row(held, inside.sum(axis=1).astype(np.float64))
    sizes = np.bincount(np.rint(size).astype(np.int64), minlength=task.n_outputs + 1)[1:]
    return said | {
        "kind": "classes",
        "sizes": (sizes / sizes.sum()).tolist(),
        "classes": _by_class(result, held, size, classes or []),
        "columns": for_whom(table, size),
    }


def _by_row(held: HeldOutPredictions, values: np.ndarray) -> np.ndarray:
    """(r,) the mean over the folds that held out a row."""
    count = np.bincount(held.row, minlength=len(held.rows))
    return np.asarray(np.bincount(held.row, values, len(held.rows)) / np.maximum(count, 1))


def _by_class(
    result: SearchResult, held: HeldOutPredictions, size: np.ndarray, names: list[str]
) -> list[dict[str, Any]]:
    y = result.problem.y[held.rows]
    return [
        {"name": name, "rows": int((y == k).sum()), "size": float(size[y == k].mean())}
        for k, name in enumerate(names)
        if (y == k).any()
    ]


def for_whom(table: Table, size: np.ndarray) -> list[dict[str, Any]]:
    """The columns by which widths or sizes differ most: each with its parts, their rows and their mean size."""
    total, found = float(size.var()), []
    for name, column in zip(table.names, table.columns, strict=True):
        part, labels = _parts(column)
        parts = [(label, size[part == k]) for k, label in enumerate(labels)]
        parts = [(label, mine) for label, mine in parts if len(mine) >= FEWEST_ROWS_OF_PART_SHOWN]
        if len(parts) < 2 or total <= 0:
            continue
        rows = sum(len(mine) for _, mine in parts)
        middle = sum(mine.sum() for _, mine in parts) / rows
        explained = sum(len(mine) * (mine.mean() - middle) ** 2 for _, mine in parts) / rows / total
        if explained >= MATTERS:
            shown = [{"label": label, "rows": len(mine), "size": float(mine.mean())} for label, mine in parts]
            found.append((-explained, {"name": name, "parts": shown}))
    return [entry for _, entry in sorted(found, key=lambda pair: pair[0])[:MOST_COLUMNS]]


def _parts(column: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """A part for each row, and their names: values of a category, thirds of numbers and dates, missing cells."""
    missing = missing_cells(column)
    part = np.full(len(column), -1)
    if column.dtype == object:
        values, counts = np.unique(column[~missing].astype(str), return_counts=True)
        kept = values[np.argsort(-counts, kind="stable")[:MOST_VALUES]].tolist()
        place = {value: k for k, value in enumerate(kept)}
        part[~missing] = [place.get(str(value), -1) for value in column[~missing]]
        labels = kept
    else:
        known = np.sort(column[~missing])
        if not len(known):
            return part, []
        edges = np.unique([known[int(share * (len(known) - 1))] for share in THIRDS])
        part[~missing] = np.searchsorted(edges, column[~missing], side="left")
        words = [cell_text(edge) if column.dtype.kind == "M" else f"{edge:.4g}" for edge in edges]
        between = [f"{low} to {high}" for low, high in pairwise(words)]
        labels = [f"up to {words[0]}", *between, f"above {words[-1]}"]
    part[missing] = len(labels)
    return part, [*labels, "missing"]
