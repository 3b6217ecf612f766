"""What the files of a model may hold: a field that is out of its range is refused by name, even if checksums fit."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from shoal.errors import UserError
from shoal.metrics.tasks import CLASSIFICATION, MULTILABEL, REGRESSION
from shoal.models.certainty import check_certainty
from shoal.models.compact import Compact
from shoal.models.model import Model
from shoal.models.networks import TorchNetwork
from shoal.tables.kinds import KINDS
from shoal.tables.parse import DECIMALS
from shoal.tables.schema import DROPPED, Schema
from shoal.tables.table import Table
from shoal.validate import instance, number, one_of, shown, whole

TEMPERATURE = (0.01, 100.0)  # the search looks at far fewer
LARGEST = 1 << 31
UNEVEN = 1e-6  # by which weights of parts may miss one in all
WORDS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}  # JSON has no such numbers


def check_body(body: Mapping[str, Any], kinds: Iterable[str]) -> None:
    """Refuse fields that are out of their range; of those that every kind of model has."""
    one_of("kind", body["kind"], kinds)
    task = body["task"]
    one_of("task.kind", task["kind"], (CLASSIFICATION, MULTILABEL, REGRESSION))
    whole("task.n_outputs", task["n_outputs"], 1, LARGEST)
    number("temperature", body["temperature"], *TEMPERATURE)
    if not body["folds"]:
        raise UserError("folds must not be empty")
    names, columns = body["feature_names"], body["schema"]["columns"]
    if names is not None and names != [column["name"] for column in columns]:
        raise UserError(f"feature_names must be null or the names of the columns; got {shown(names)}")
    if body["target_name"] is not None:
        instance("target_name", body["target_name"], str)
    _check_parts(body["parts"], body["networks"])
    _check_classes(body)


def check_parameters(given: Any, known: Iterable[str]) -> dict[str, Any]:
    """The parameters of an estimator that a file gives, if there are such."""
    unknown = set(instance("parameters", given, dict)) - set(known)
    if unknown:
        raise UserError(f"parameters must be those of an estimator; got {shown(min(unknown))}")
    return dict(given)


def _check_parts(parts: Sequence[Mapping[str, Any]], networks: Mapping[str, Any]) -> None:
    for encoding, about in networks.items():
        whole(f"networks.{encoding}.width", about["width"], 1, LARGEST)
    for k, part in enumerate(parts):
        number(f"parts.{k}.weight", part["weight"], 0.0, 1.0 + UNEVEN)
        whole(f"parts.{k}.recipe", part["recipe"], 0, LARGEST)
        instance(f"parts.{k}.label", part["label"], str)
    total = math.fsum(part["weight"] for part in parts)
    if abs(total - 1.0) > UNEVEN:
        raise UserError(f"the weights of parts must sum to 1; they sum to {total:.6g}")
    if set(networks) != {part["encoding"] for part in parts}:
        raise UserError(f"the encodings of parts must be those of networks, {', '.join(networks)}; they are others")


def _check_classes(body: Mapping[str, Any]) -> None:
    classes = body["classes"]
    if body["task"]["kind"] == REGRESSION:
        if classes is not None:
            raise UserError(f"classes must be null where numbers are predicted; got {shown(classes)}")
        instance("one_column", body["one_column"], bool)
        return
    values = instance("classes.values", classes["values"], list)
    if len(values) != body["task"]["n_outputs"]:
        raise UserError(f"classes must be as many as task.n_outputs, {body['task']['n_outputs']}; got {len(values)}")
    kind = instance("classes.dtype", classes["dtype"], str).lstrip("<>=|")
    if kind != "object" and (not kind[:1] or kind[0] not in "biufUS" or not kind[1:].isdigit()):
        raise UserError(f"classes.dtype must be one of numbers or strings; got {shown(classes['dtype'])}")
    if not all(isinstance(value, (str, int, float)) for value in values):
        raise UserError(f"classes.values must be numbers or strings; got {shown(values)}")


def check_search(body: Mapping[str, Any]) -> int:
    """Refuse results that no search gives; the number of recipes."""
    instance("results", body["results"], dict)
    board = instance("leaderboard", body["leaderboard"], dict)
    known = {name: column for name, column in board.items() if column is not None}
    lengths = {len(instance(f"leaderboard.{name}", column, list)) for name, column in known.items()}
    if len(lengths) != 1 or 0 in lengths:
        raise UserError(f"columns of leaderboard must be equally long, and not empty; got lengths {sorted(lengths)}")
    rows = lengths.pop()
    whole("results.best_index_", body["results"].get("best_index_"), 0, rows - 1)
    whole("results.n_networks_", body["results"].get("n_networks_"), 1, LARGEST)
    for column in (body["params"], *instance("fold_scores", body["fold_scores"], list)):
        if len(instance("params and fold_scores", column, list)) != rows:
            raise UserError(f"params and fold_scores must have {rows} rows, as leaderboard; got {len(column)}")
    for name, value in instance("honest_score", body["honest_score"], dict).items():
        if name not in ("metric", "problem") and WORDS.get(str(value)) is None:
            number(f"honest_score.{name}", value)
    instance("best_member", body["best_member"], dict)
    return rows


def check_arrays(arrays: Mapping[str, np.ndarray], n_outputs: int, folds: int) -> None:
    """Refuse weights and scales that no training gives."""
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not name.startswith("results.") and not np.isfinite(array).all():
            bad = array[~np.isfinite(array)].ravel()[0]
            raise UserError(f"{name} must be finite; got {bad}")
    for k in range(folds):
        target = {name: arrays[f"folds.{k}.target.{name}"] for name in ("centre", "scale", "low", "high")}
        for name, array in target.items():
            if array.shape != (n_outputs,):
                raise UserError(f"folds.{k}.target.{name} must have the shape ({n_outputs},); got {array.shape}")
        if (target["scale"] <= 0).any():
            raise UserError(f"folds.{k}.target.scale must be above zero; got {target['scale'].min()}")
        if (target["low"] > target["high"]).any():
            raise UserError(f"folds.{k}.target.low must not be above folds.{k}.target.high; got {target['low'].max()}")


def check_schema(schema: Schema) -> None:
    for column in schema.columns:
        one_of(f"the kind of {column.name!r}", column.kind, (*KINDS, *DROPPED))
    one_of("schema.decimal", schema.decimal, DECIMALS)


def check_model(model: Model) -> None:
    """Refuse parts that do not fit each other, for files that were altered."""
    if model.certainty is not None:
        check_certainty(model.certainty, model)
    if model.compact is not None:
        check_compact(model.compact, len(model.parts), len(model.folds))
    if not any(isinstance(networks, TorchNetwork) for networks in model.networks.values()):  # whose code comes later
        _check_prediction(model)


def check_compact(compact: Compact, parts: int, folds: int) -> None:
    """Refuse what cannot be taken from a model of so many parts and folds."""
    number("compact.temperature", compact.temperature, *TEMPERATURE)
    whole("compact.folds", compact.folds, 1, folds)
    if not 0 < len(set(compact.parts) & set(range(parts))) == len(compact.parts):
        raise UserError(f"compact.parts must be different places among the parts; got {compact.parts}")


def _check_prediction(model: Model) -> None:
    """Predict a row of missing values to see whether encoders, networks and weights fit each other."""
    missing: dict[str, Any] = {"date": np.array(["NaT"], "datetime64[us]"), "number": np.array([np.nan])}
    missing |= {"boolean": missing["number"]}
    nothing = np.array([None], dtype=object)
    columns = [missing.get(column.kind, nothing) for column in model.schema.used]
    table = Table([column.name for column in model.schema.used], columns)
    try:
        answer = model.predict(table, threads=1)
    except (AssertionError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise UserError(f"encoders, networks and weights must fit each other; they do not ({error})") from error
    if answer.shape != (1, model.task.n_outputs) or not np.isfinite(answer).all():
        raise UserError(f"predictions must be {model.task.n_outputs} finite numbers; got {shown(answer.tolist())}")


# ---- values as JSON has them ----


def numbers(name: str, values: Any) -> np.ndarray:
    """(n,) of a list in which words stand for what JSON cannot write."""
    found = [WORDS.get(value, value) if isinstance(value, str) else value for value in instance(name, values, list)]
    for value in found:
        number(name, 0.0 if isinstance(value, float) else value)
    return np.array(found, dtype=np.float64)
