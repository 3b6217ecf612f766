"""Checks that the contents of a model's files fit together. Checksums prove that nobody altered them (`saving`)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from shoal.errors import UserError
from shoal.metrics.tasks import CLASSIFICATION, REGRESSION
from shoal.models.certainty import predict_interval, predict_set, strange
from shoal.models.compact import compact_model
from shoal.models.model import Model
from shoal.models.networks import TorchNetwork
from shoal.tables.table import Table
from shoal.validate import shown

TEMPERATURES = (0.01, 100.0)  # the search looks at far fewer
UNEVEN = 1e-6  # by which weights of parts may miss one in all
LOWEST_COVERAGE = 0.01  # which the fewest rows are enough for
WORDS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}  # JSON has no such numbers


def check_model(model: Model, classes: list[Any] | None) -> None:
    """Refuse parts that do not fit each other. Numbers have no classes."""
    if not abs(math.fsum(part.weight for part in model.parts) - 1.0) <= UNEVEN:
        raise UserError("the weights of parts must sum to 1")
    if classes is not None and len(classes) != model.task.n_outputs:
        raise UserError(f"classes must be as many as the outputs, {model.task.n_outputs}; got {len(classes)}")
    if not any(isinstance(networks, TorchNetwork) for networks in model.networks.values()):  # whose code comes later
        _check_prediction(model)


def _check_prediction(model: Model) -> None:
    """Predict a row of missing values to see whether encoders, networks, weights and certainty fit each other."""
    missing: dict[str, Any] = {"date": np.array(["NaT"], "datetime64[us]"), "number": np.array([np.nan])}
    missing |= {"boolean": missing["number"]}
    nothing = np.array([None], dtype=object)
    columns = [missing.get(column.kind, nothing) for column in model.schema.used]
    table = Table([column.name for column in model.schema.used], columns)
    try:
        with np.errstate(all="ignore"):
            answers = [model.predict(table, threads=1)]
            if model.compact is not None:
                answers.append(compact_model(model).predict(table, threads=1))
            if model.certainty is not None:
                strange(model, table)
                answers += _uncertain(model, table)
    except (AssertionError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise UserError(f"encoders, networks and weights must fit each other; they do not ({error})") from error
    for answer in answers:
        if answer.shape != (1, model.task.n_outputs) or not np.isfinite(answer).all():
            raise UserError(f"predictions must be {model.task.n_outputs} finite numbers; got {shown(answer.tolist())}")


def _uncertain(model: Model, table: Table) -> list[np.ndarray]:
    """Ends of the narrowest intervals, or the smallest set; several labels have neither."""
    if model.task.kind == REGRESSION:
        return list(np.moveaxis(predict_interval(model, table, LOWEST_COVERAGE, threads=1), -1, 0))
    return [predict_set(model, table, LOWEST_COVERAGE, threads=1)] if model.task.kind == CLASSIFICATION else []
