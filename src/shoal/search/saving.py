"""A fitted estimator on disk: a folder with `model.json` and `weights.safetensors`. No pickle, no code.

Both files are checked when they are read: the JSON holds a checksum of itself and one of the weights.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from shoal.members import Member
from shoal.search.encode import Encoder
from shoal.search.estimators import ShoalClassifier, ShoalRegressor, param_columns
from shoal.search.honest import HonestScore
from shoal.search.leaderboard import Leaderboard
from shoal.search.model import Bag, Model, Part, empty_networks
from shoal.search.problem import Target
from shoal.search.schema import Schema
from shoal.search.tasks import Task

FORMAT = "shoal-model"
VERSION = 1
DESCRIPTION, WEIGHTS = "model.json", "weights.safetensors"
KINDS = {"classifier": ShoalClassifier, "regressor": ShoalRegressor}
PARAMETERS = (
    "strategy", "recipes", "budget", "scoring", "seeds", "epochs", "ensemble", "refit", "n_jobs", "random_state",
    "class_weight",
)  # fmt: skip
TARGET = ("centre", "scale", "low", "high")
NUMBERS = (
    "score",
    "loss",
    "fold_spread",
    "seed_spread",
)  # of the leaderboard; infinite where networks diverged
RESULTS = ("best_score_", "best_index_", "luck_", "n_networks_", "ensemble_gain_", "n_features_in_")


def save(estimator: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator into the folder `path`, under another name first: it is there whole, or not at all."""
    from safetensors.numpy import save as to_bytes
    from sklearn.utils.validation import check_is_fitted

    if not isinstance(estimator, (ShoalClassifier, ShoalRegressor)):
        raise TypeError(f"save takes a ShoalClassifier or a ShoalRegressor; got {type(estimator).__name__}")
    check_is_fitted(estimator)
    target = Path(path)
    _check_place(target)
    body, arrays = _describe(estimator)
    weights = to_bytes({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    body["weights_sha256"] = hashlib.sha256(weights).hexdigest()
    text = _canonical(body)
    whole = {"format": FORMAT, "version": VERSION, "sha256": _sha(text), "body": body}
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        (temporary / WEIGHTS).write_bytes(weights)
        (temporary / DESCRIPTION).write_text(json.dumps(whole), encoding="utf-8")
        if target.exists():
            shutil.rmtree(target)
        os.replace(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def load(path: str | os.PathLike[str]) -> Any:
    """A fitted estimator from `save`. Runs no code from the files; needs neither PyTorch nor the training data."""
    from safetensors import SafetensorError
    from safetensors.numpy import load as from_bytes

    folder = Path(path)
    body = _read_description(folder)
    try:
        weights = (folder / WEIGHTS).read_bytes()
    except FileNotFoundError:
        raise FileNotFoundError(f"{folder} has no {WEIGHTS}: copy the whole folder") from None
    if hashlib.sha256(weights).hexdigest() != body.get("weights_sha256"):
        raise ValueError(f"{folder / WEIGHTS} is truncated or was altered: its checksum is not that of {DESCRIPTION}")
    try:
        return _restore(body, from_bytes(weights))
    except (KeyError, TypeError, ValueError, IndexError, SafetensorError) as error:
        raise ValueError(f"{folder} cannot be read as a model: {error}") from error


def model_folder(path: str | os.PathLike[str]) -> Path:
    """The folder of a model, given that or the folder of its run."""
    folder = Path(path)
    if not (folder / DESCRIPTION).is_file() and (folder / "model").is_dir():
        return folder / "model"
    return folder  # `load` says what is wrong with it


def _check_place(target: Path) -> None:
    """Replace models only, never somebody's folder of other things."""
    if target.is_file():
        raise ValueError(f"{target} is a file; a model is saved as a folder: give another name")
    if target.is_dir() and not {file.name for file in target.iterdir()} <= {DESCRIPTION, WEIGHTS}:
        raise ValueError(f"{target} holds other files than a model; give the name of a new folder")


def _canonical(body: dict[str, Any]) -> str:
    return json.dumps(body, sort_keys=True, separators=(",", ":"))


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _read_description(folder: Path) -> dict[str, Any]:
    file = folder / DESCRIPTION
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}; a model is a folder with {DESCRIPTION} and {WEIGHTS}")
    if not file.is_file():
        raise FileNotFoundError(f"{folder} has no {DESCRIPTION}; a model is a folder with {DESCRIPTION} and {WEIGHTS}")
    try:
        whole = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} is truncated or is no JSON: {error}") from error
    if not isinstance(whole, dict) or whole.get("format") != FORMAT:
        raise ValueError(f"{file} does not describe a Shoal model; save one with shoal.save")
    if whole.get("version") != VERSION:
        raise ValueError(f"{file} has format version {whole.get('version')}; this Shoal reads version {VERSION}")
    body = whole.get("body")
    if not isinstance(body, dict) or _sha(_canonical(body)) != whole.get("sha256"):
        raise ValueError(f"{file} was altered: its checksum is wrong")
    return body


# ---- what is written ----


def _describe(estimator: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    model: Model = estimator.model_
    arrays: dict[str, np.ndarray] = {}
    encoders = []
    for k, bag in enumerate(model.bags):
        described, parts = bag.encoder.state()
        described.pop("schema", None)
        encoders.append(described)
        arrays |= {f"bag.{k}.encoder.{name}": array for name, array in parts.items()}
        arrays |= {f"bag.{k}.target.{name}": getattr(bag.target, name) for name in TARGET}
    arrays |= {f"networks.{view}": population.state.parameters for view, population in model.networks.items()}
    results = dict(estimator.cv_results_)
    for name in [name for name in results if name.startswith("param_")]:  # they are in "params" as well
        results.pop(name)
    for name in [name for name, value in results.items() if isinstance(value, np.ndarray) and "time" not in name]:
        arrays[f"results.{name}"] = results.pop(name)
    body = {
        "kind": "classifier" if isinstance(estimator, ShoalClassifier) else "regressor",
        "parameters": _plain_parameters(estimator),
        "task": {"kind": model.task.kind, "n_outputs": model.task.n_outputs},
        "schema": model.schema.as_dict(),
        "encoders": encoders,
        "widths": {view: population.n_features for view, population in model.networks.items()},
        "parts": [_plain_part(part) for part in model.parts],
        "temperature": model.temperature,
        "classes": _plain_classes(getattr(estimator, "classes_", None)),
        "one_column": getattr(estimator, "_one_column", None),
        "feature_names": _names(estimator),
        "target_name": getattr(estimator, "target_name_", None),
        "leaderboard": estimator._board.columns,
        "cv_results": results,
        "best_member": estimator.best_member_.as_dict(),
        "honest_score": estimator.honest_score_.as_dict(),
        "results": {name: _plain(getattr(estimator, name)) for name in RESULTS},
    }
    return _finite(json.loads(json.dumps(body, default=_plain))), arrays


def _plain_parameters(estimator: Any) -> dict[str, Any]:
    """Those that fit into JSON. A space, a splitter or a generator does not: a loaded estimator has the defaults."""
    found = {name: _plain(value) for name, value in estimator.get_params(deep=False).items() if name in PARAMETERS}
    plain = (str, int, float, bool, type(None))
    return {name: value for name, value in found.items() if isinstance(value, plain)}


def _plain_part(part: Part) -> dict[str, Any]:
    member = {name: getattr(part.member, name) for name in ("hidden", "activation", "features")}
    return {"recipe": part.recipe, "label": part.label, "view": part.view, "weight": part.weight, "member": member}


def _finite(value: Any) -> Any:
    """JSON has no infinities: those of networks that diverged become words."""
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_finite(part) for part in value]
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value.tolist() if isinstance(value, np.ndarray) else value


def _plain_classes(classes: np.ndarray | None) -> dict[str, Any] | None:
    if classes is None:
        return None
    return {"dtype": "object" if classes.dtype == object else classes.dtype.str, "values": classes.tolist()}


def _names(estimator: Any) -> list[str] | None:
    names = getattr(estimator, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


# ---- what is read ----


def _restore(body: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
    estimator = KINDS[body["kind"]](**body["parameters"])
    estimator.model_ = _restore_model(body, arrays)
    estimator.schema_ = estimator.model_.schema
    if body["classes"] is not None:
        estimator.classes_ = np.array(body["classes"]["values"], dtype=np.dtype(body["classes"]["dtype"]))
    if body["one_column"] is not None:
        estimator._one_column = body["one_column"]
    if body["feature_names"] is not None:
        estimator.feature_names_in_ = np.array(body["feature_names"], dtype=object)
    if body["target_name"] is not None:
        estimator.target_name_ = body["target_name"]
    words = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
    board = {name: [words.get(cell, cell) if name in NUMBERS else cell for cell in column]
             for name, column in body["leaderboard"].items()}  # fmt: skip
    estimator._board = Leaderboard(board)
    estimator.cv_results_ = body["cv_results"] | _under("results.", arrays)
    estimator.cv_results_ |= param_columns(estimator.cv_results_["params"])
    estimator.best_member_ = Member.from_dict(body["best_member"])
    estimator.honest_score_ = HonestScore(**body["honest_score"])
    for name in RESULTS:
        setattr(estimator, name, body["results"][name])
    return estimator


def _restore_model(body: dict[str, Any], arrays: dict[str, np.ndarray]) -> Model:
    task, schema = Task(**body["task"]), Schema.from_dict(body["schema"])
    bags = []
    for k, described in enumerate(body["encoders"]):
        encoder = Encoder.from_state(described | {"schema": body["schema"]}, _under(f"bag.{k}.encoder.", arrays))
        target = Target(**{name: arrays[f"bag.{k}.target.{name}"] for name in TARGET})
        bags.append(Bag(replace(encoder, schema=schema), target))
    parts = tuple(
        Part(
            part["recipe"],
            part["label"],
            part["view"],
            Member.from_dict(part["member"] | {"optimizer": "sgd"}),
            part["weight"],
        )
        for part in body["parts"]
    )
    networks = {}
    for view, width in body["widths"].items():
        population = empty_networks(task, width, [part.member for part in parts if part.view == view], len(bags))
        stored = arrays[f"networks.{view}"]
        if stored.shape != population.state.parameters.shape or stored.dtype != np.float32:
            raise ValueError(
                f"the weights of {view!r} have {stored.shape} where {population.state.parameters.shape} fit"
            )
        population.state.parameters[:] = stored
        networks[view] = population
    return Model(task, schema, tuple(bags), parts, networks, float(body["temperature"]))


def _under(prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)}
