"""Saves and loads what forests know apart from their model (see `shoal.models.saving`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from shoal.encoders.encoder import arrays_under
from shoal.files.json_values import plain
from shoal.metrics.tasks import REGRESSION
from shoal.models.saving import EXPLANATION, Described, restore_predictor
from shoal.population.members import Member
from shoal.search.results import row_explanations
from shoal.search.results.saving import plain_parameters
from shoal.tools.forest import ShoalForestClassifier, ShoalForestRegressor
from shoal.validate import instance

NOT_RESULTS = {  # fitted attributes that are restored with the model
    "model_", "schema_", "background_", "classes_", "one_column_", "n_features_in_", "feature_names_in_"
}  # fmt: skip


def describe(estimator: Any) -> Described:
    results = {name: value for name, value in vars(estimator).items() if name.endswith("_") and name not in NOT_RESULTS}
    arrays = {f"results.{name}": value for name, value in results.items() if isinstance(value, np.ndarray)}
    others = {name: value for name, value in results.items() if not isinstance(value, np.ndarray)}
    body = {
        "parameters": plain_parameters(estimator, estimator.get_params()) | _recipes(estimator.member),
        "results": others,
    }
    return Described(body, arrays, {EXPLANATION: plain(row_explanations.described(estimator))})


def _recipes(given: Any) -> dict[str, Any]:
    """The parameter that is a member, or a list of them, where it is given."""
    if isinstance(given, Member):
        return {"member": given.as_dict()}
    return {} if given is None else {"member": [member.as_dict() for member in given]}


def _member(value: Any) -> Any:
    if isinstance(value, list):
        return [Member.from_dict(member) for member in value]
    return Member.from_dict(value) if isinstance(value, dict) else value


def restore(body: dict[str, Any], arrays: dict[str, np.ndarray], folder: Path, network: Any = None) -> Any:
    kind = ShoalForestRegressor if body["task"]["kind"] == REGRESSION else ShoalForestClassifier
    estimator = kind(**body["parameters"] | {"member": _member(body["parameters"].get("member"))})
    restore_predictor(estimator, body, arrays)
    row_explanations.restore(estimator, folder)
    del estimator.explanation_  # only a search has one
    for name, value in {**instance("results", body.get("results"), dict), **arrays_under("results.", arrays)}.items():
        setattr(estimator, name, estimator.restored(name, value))
    return estimator
