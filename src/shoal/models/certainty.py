"""Certainty of a model for single rows: learnt from rows that its networks did not train on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shoal.conformal.calibration import Calibration, check_coverage
from shoal.conformal.spread import Spread
from shoal.conformal.strangeness import SHARE, Strange, Strangeness
from shoal.errors import UserError
from shoal.metrics.tasks import CLASSIFICATION, REGRESSION
from shoal.tables.table import Table

CELLS_AT_ONCE = 1 << 22  # predictions of folds, and inputs of the spread, in memory at a time

if TYPE_CHECKING:
    from shoal.models.model import Model


@dataclass(frozen=True, eq=False)
class Certainty:
    """What `predict_interval`, `predict_set` and `strange` need."""

    calibration: Calibration | None  # None: of several labels at once
    spread: Spread | None  # of numbers
    strangeness: Strangeness


def predict_interval(model: Model, table: Table, coverage: float, threads: int | None = None) -> np.ndarray:
    """(n, n_outputs, 2) lowest and highest values."""
    check_coverage("coverage", coverage)
    if model.task.kind != REGRESSION:
        raise UserError("intervals are for numbers, and this model predicts classes: use predict_set")
    found = _certainty(model, "intervals")
    assert found.calibration is not None
    assert found.spread is not None
    found.calibration.level(coverage)  # too few rows: say so before predicting
    calibration, spread, encoder = found.calibration, found.spread, model.folds[0].encoder

    def intervals(rows: Table) -> np.ndarray:
        prediction = model.predict_folds(rows, threads)
        inputs = np.empty((len(rows), 0))
        if spread.needs_inputs:
            inputs = encoder.transform(rows, ["plain"])["plain"].astype(np.float64)
        return np.stack(calibration.interval(prediction, spread(inputs, prediction), coverage), axis=-1)

    return _some_at_a_time(model, table, intervals)


def predict_set(model: Model, table: Table, coverage: float, threads: int | None = None) -> np.ndarray:
    """(n, n_classes) whether a class may be it."""
    check_coverage("coverage", coverage)
    if model.task.kind == REGRESSION:
        raise UserError("sets are for classes, and this model predicts numbers: use predict_interval")
    if model.task.kind != CLASSIFICATION:
        raise UserError("sets are for one class per row, and this model predicts several labels: use predict_proba")
    found = _certainty(model, "sets")
    assert found.calibration is not None
    found.calibration.level(coverage)
    calibration = found.calibration

    def sets(rows: Table) -> np.ndarray:
        probability = model.predict_folds(rows, threads)
        probability /= probability.sum(axis=-1, keepdims=True)
        return calibration.sets(model.task.temper(probability, model.temperature), coverage)

    return _some_at_a_time(model, table, sets)


def _some_at_a_time(model: Model, table: Table, answer: Callable[[Table], np.ndarray]) -> np.ndarray:
    """What every fold says is held in memory for some rows only."""
    table = model.schema.check(table)
    most = max(1, CELLS_AT_ONCE // (len(model.folds) * model.task.n_outputs + model.folds[0].encoder.width("plain")))
    parts = [slice(start, min(start + most, len(table))) for start in range(0, max(len(table), 1), most)]
    return np.concatenate([answer(table.take(part)) for part in parts])


def strange(model: Model, table: Table, share: float = SHARE) -> Strange:
    """How unlike the training data rows are, and by which columns."""
    return _certainty(model, "strange rows").strangeness.judge(model.schema.check(table), model.folds[0].encoder, share)


def _certainty(model: Model, what: str) -> Certainty:
    if model.certainty is None:
        raise UserError(
            f"this model has no {what}, which need rows that its networks did not train on: use a model from `shoal "
            "search`, ShoalClassifier or ShoalRegressor"
        )
    return model.certainty
