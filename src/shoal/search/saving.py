"""A fitted estimator on disk: a folder with `model.json` and `weights.safetensors`. No pickle, no code.

Both files are checked when they are read: the JSON holds a checksum of itself and one of the weights. Equal models are
equal files; what differs from run to run, such as seconds, is in `timings.json`, which need not be there.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from shoal.layout import Layout
from shoal.members import Member
from shoal.search import sealed
from shoal.search.cv_results import param_columns
from shoal.search.encode import Encoder
from shoal.search.estimators import ShoalClassifier, ShoalRegressor
from shoal.search.honest import HonestScore
from shoal.search.leaderboard import Leaderboard
from shoal.search.model import Bag, Model, Part, empty_networks
from shoal.search.problem import Target
from shoal.search.reading import Reading
from shoal.search.schema import Schema
from shoal.search.tasks import Task

FORMAT = "shoal-model"
VERSION = 2  # version 1 had the timings in model.json and the scores among the weights; it is still read
READ = (1, 2)
DESCRIPTION, WEIGHTS, TIMINGS = "model.json", "weights.safetensors", "timings.json"
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
REMEDY = "use an unchanged copy, or fit and save the model again"


def save(estimator: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator into the folder `path`, under another name first: it is there whole, or not at all."""
    from safetensors.numpy import save as to_bytes
    from sklearn.utils.validation import check_is_fitted

    if not isinstance(estimator, (ShoalClassifier, ShoalRegressor)):
        raise TypeError(f"save takes a ShoalClassifier or a ShoalRegressor; got {type(estimator).__name__}")
    check_is_fitted(estimator)
    target = Path(path)
    _check_place(target)
    body, arrays, timings = _describe(estimator)
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
        (temporary / TIMINGS).write_text(json.dumps(timings), encoding="utf-8")
        if target.exists():
            shutil.rmtree(target)
        os.replace(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def load(path: str | os.PathLike[str]) -> Any:
    """A fitted estimator from `save`, or of a run of `shoal search`: the folder of the model, or that of the run.

    Runs no code from the files; needs neither PyTorch nor the training data.
    """
    from safetensors.numpy import load as from_bytes

    folder = model_folder(path)
    body = _read_description(folder)
    try:
        weights = (folder / WEIGHTS).read_bytes()
    except FileNotFoundError:
        raise FileNotFoundError(f"{folder} has no {WEIGHTS}: copy the whole folder") from None
    if hashlib.sha256(weights).hexdigest() != body.get("weights_sha256"):
        raise ValueError(f"{folder / WEIGHTS} is truncated or was altered: its checksum is not that of {DESCRIPTION}")
    timings = _read_timings(folder / TIMINGS)
    with _naming(folder / DESCRIPTION):
        sealed.check_body(body, PARAMETERS)
    with _naming(folder / WEIGHTS):
        arrays = from_bytes(weights)
        sealed.check_arrays(arrays, body["task"]["n_outputs"], len(body["encoders"]))
    with _naming(folder / DESCRIPTION):
        estimator = _restore(body, arrays)
    _restore_timings(estimator, timings, folder / TIMINGS)
    return estimator


@contextmanager
def _naming(file: Path) -> Iterator[None]:
    """Whatever a file with a fitting checksum does to those who read it: one sentence that names the file."""
    from safetensors import SafetensorError

    try:
        yield
    except RecursionError:
        raise ValueError(f"{file} cannot be read as a model: it is nested too deeply; {REMEDY}") from None
    except (TypeError, ValueError, LookupError, ArithmeticError, AttributeError, SafetensorError) as error:
        what = f"{error.args[0]} is missing" if isinstance(error, KeyError) else " ".join(str(error).split())
        raise ValueError(f"{file} cannot be read as a model: {what}; {REMEDY}") from error


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
    if target.is_dir() and not {file.name for file in target.iterdir()} <= {DESCRIPTION, WEIGHTS, TIMINGS}:
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
    whole = read_json(file)
    if not isinstance(whole, dict) or whole.get("format") != FORMAT:
        raise ValueError(f"{file} does not describe a Shoal model; save one with shoal.save")
    if whole.get("version") not in READ:
        raise ValueError(f"{file} has format version {whole.get('version')}; this Shoal reads up to version {VERSION}")
    body = whole.get("body")
    try:
        intact = isinstance(body, dict) and _sha(_canonical(body)) == whole.get("sha256")
    except RecursionError:
        raise ValueError(f"{file} is nested too deeply to describe a model; {REMEDY}") from None
    if not intact:
        raise ValueError(f"{file} was altered: its checksum is wrong")
    return dict(body)  # type: ignore[arg-type]


def read_json(file: Path) -> Any:
    """What a file of JSON holds, or a sentence."""
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except RecursionError:
        raise ValueError(f"{file} is no file of Shoal: its brackets are nested too deeply; {REMEDY}") from None
    except (ValueError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} is truncated or is no JSON: {error}") from error


# ---- what is written ----


def _describe(estimator: Any) -> tuple[dict[str, Any], dict[str, np.ndarray], dict[str, Any]]:
    """For model.json, for the weights and for the timings."""
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
    reading: Reading | None = getattr(estimator, "_reading", None)
    results = {name: value for name, value in estimator.cv_results_.items() if not name.startswith("param_")}
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
        "reading": None if reading is None else reading.as_dict(),
        "leaderboard": estimator._board.columns | {"seconds": None},
        "cv_results": results | {"mean_fit_time": None},
        "best_member": estimator.best_member_.as_dict(),
        "honest_score": estimator.honest_score_.as_dict(),
        "results": {name: _plain(getattr(estimator, name)) for name in RESULTS},
    }
    timings = {
        "n_jobs": body["parameters"].pop("n_jobs", None),
        "seconds": estimator._board.columns["seconds"],
        "mean_fit_time": results["mean_fit_time"],
    }
    return _as_json(body), arrays, _as_json(timings)


def _as_json(value: dict[str, Any]) -> Any:
    return _finite(json.loads(json.dumps(value, default=_plain)))


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
    names = body["feature_names"]
    if names is None and body["target_name"] is not None:  # of a table of the command line, as version 1 saved it
        names = [column.name for column in estimator.schema_.columns]
    if names is not None:
        estimator.feature_names_in_ = np.array(names, dtype=object)
    if body["target_name"] is not None:
        estimator.target_name_ = body["target_name"]
    if body.get("reading") is not None:
        estimator._reading = Reading.of(body["reading"])
    board = {name: [_number(cell) if name in NUMBERS else cell for cell in column or ()]
             for name, column in body["leaderboard"].items()}  # fmt: skip
    estimator._board = Leaderboard(board)
    estimator.cv_results_ = _restore_results(body["cv_results"]) | _under("results.", arrays)
    estimator.best_member_ = Member.from_dict(body["best_member"])
    estimator.honest_score_ = HonestScore(**{name: _number(value) for name, value in body["honest_score"].items()})
    for name in RESULTS:
        setattr(estimator, name, _number(body["results"][name]))
    return estimator


def _number(value: Any) -> Any:
    return sealed.WORDS.get(value, value) if isinstance(value, str) else value


def _restore_results(columns: dict[str, Any]) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for name, column in columns.items():
        if name == "params" or column is None:
            results[name] = column
        else:
            values = sealed.numbers(f"cv_results.{name}", column)
            results[name] = values.astype(np.int32) if name.startswith("rank") else values
    results["params"] = [  # JSON has lists where members have tuples
        {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
        for fields in results["params"]
    ]
    return results | param_columns(results["params"])


def _read_timings(file: Path) -> dict[str, Any] | None:
    if not file.is_file():
        return None
    try:
        found = read_json(file)
        if not isinstance(found, dict):
            raise ValueError(f"{file} must hold an object; got {type(found).__name__}")
    except ValueError as error:
        raise ValueError(f"{error}; the model does not need it: delete it") from None
    return found


def _restore_timings(estimator: Any, timings: dict[str, Any] | None, file: Path) -> None:
    """Seconds that a model of version 2 was made in; unknown where the file is not there."""
    board, results = estimator._board.columns, estimator.cv_results_
    rows = len(board["rank"])
    try:
        jobs = None if timings is None else timings.get("n_jobs")
        if jobs is not None:
            estimator.n_jobs = sealed.whole("n_jobs", jobs, -sealed.LARGEST)
        for target, name in ((board, "seconds"), (results, "mean_fit_time")):
            if isinstance(target[name], np.ndarray) or target[name]:
                continue  # it was in model.json
            values = np.full(rows, np.nan) if timings is None else sealed.numbers(name, timings.get(name))
            if len(values) != rows:
                raise ValueError(f"{name} must have {rows} rows, as the leaderboard; got {len(values)}")
            target[name] = values.tolist() if target is board else values
    except ValueError as error:
        raise ValueError(f"{file} was altered: {error}; the model does not need it: delete it") from None


def _restore_model(body: dict[str, Any], arrays: dict[str, np.ndarray]) -> Model:
    task, schema = Task(body["task"]["kind"], body["task"]["n_outputs"]), Schema.from_dict(body["schema"])
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
        members = [part.member for part in parts if part.view == view]
        stored = arrays[f"networks.{view}"]
        size = Layout([member for member in members for _ in bags], width, task.n_outputs).total
        if stored.shape != (size,) or stored.dtype != np.float32:
            raise ValueError(f"the weights of {view!r} have {stored.shape} where ({size},) fit")
        networks[view] = population = empty_networks(task, width, members, len(bags))
        population.state.parameters[:] = stored
    model = Model(task, schema, tuple(bags), parts, networks, float(body["temperature"]))
    sealed.check_prediction(model)
    return model


def _under(prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)}
