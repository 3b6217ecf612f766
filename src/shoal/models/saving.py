"""A model on disk: a folder with `model.json` and `weights.safetensors`. No pickle, no code.

Both files are checked when they are read: the JSON holds a checksum of itself and one of the weights. Equal models are
equal files.

Every model has a `kind`, which says what made it. What prediction needs is the same for all kinds; the module of a kind
(`KINDS`) adds what else its estimators know. A new kind is one module with `describe` and `restore`, and one line here.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from shoal.encoders.encoder import Encoder, arrays_under
from shoal.encoders.states import describe, restore
from shoal.encoders.target import TargetScaling
from shoal.errors import CompleteError, MissingFile, NotAFile, UserError, WrongType
from shoal.files import atomic, plain_files
from shoal.files.json_values import pieces, plain
from shoal.metrics.tasks import Task
from shoal.models import checks
from shoal.models.certainty import Certainty
from shoal.models.compact import Compact
from shoal.models.model import FoldTransforms, Model, Part, empty_networks
from shoal.models.networks import TorchNetwork
from shoal.population.layout import Layout
from shoal.population.members import Member
from shoal.population.population import Population
from shoal.runs.kinds import RUN
from shoal.tables.reading import Reading
from shoal.tables.schema import Schema
from shoal.validate import instance, number

KINDS = {  # kind of a model -> module with `describe(fitted)` and `restore(body, arrays, folder)`
    "search": "shoal.search.results.saving",
    "network": "shoal.parallel.saving",
    "forest": "shoal.tools.saving",
}
FORMAT, VERSION = "shoal-model", 7
DESCRIPTION, WEIGHTS = "model.json", "weights.safetensors"
EXPLANATION = "explanation.json"  # which columns matter; not of the model itself, and need not be there
REMEDY = "use an unchanged copy, or fit and save the model again"


@dataclass
class Described:
    """What the estimators of a kind know beside the model."""

    body: dict[str, Any]  # for model.json
    arrays: dict[str, np.ndarray] = field(default_factory=dict)  # names begin with "results."
    files: dict[str, Any] = field(default_factory=dict)  # JSON of more files, by name


def save(fitted: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted model into a folder: whole, or not at all. An earlier model there is replaced.

    Parameters
    ----------
    fitted : estimator
        Any of Shoal's estimators that predicts, or what `shoal.load` gives.
    path : path
        The folder.

    Examples
    --------
    >>> import shoal, tempfile
    >>> X = np.arange(30.0).reshape(-1, 1)
    >>> model = shoal.ShoalForestRegressor(10, epochs=1).fit(X, X[:, 0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     shoal.save(model, folder + "/model")
    ...     again = shoal.load(folder + "/model")
    >>> bool(np.all(again.predict(X) == model.predict(X)))
    True
    """
    kind = getattr(fitted, "model_kind", None)
    if kind not in KINDS:
        raise WrongType(
            f"save takes a fitted search or forest of Shoal's, or a loaded model; got {type(fitted).__name__}"
        )
    if not hasattr(fitted, "model_"):
        from sklearn.exceptions import NotFittedError

        raise NotFittedError(f"this {type(fitted).__name__} is not fitted yet: call fit before save")
    target = Path(path)
    check_place(target)
    own = importlib.import_module(KINDS[kind]).describe(fitted)
    described, arrays = describe_model(fitted.model_)
    body = {"kind": kind, **described, **_describe_predictor(fitted), **own.body}
    # JSON has no infinities: those of networks that diverged become words.
    write_folder(target, plain(body, other=repr), arrays | own.arrays, own.files)


def load(path: str | os.PathLike[str], network: Any = None) -> Any:
    """Load a model that `save` or a run has written. Runs no code from the files.

    Parameters
    ----------
    path : path
        The folder of the model, or of the run.
    network : nn.Module, optional
        Needed for a custom network that `shoal train` has trained: a new one, whose weights are replaced.

    Returns
    -------
    estimator or Predictor
        Fitted, with `predict`.

    Examples
    --------
    See `shoal.save`.
    """
    folder = model_folder(path)
    body, arrays = read_folder(folder)
    with naming(folder / DESCRIPTION):
        return importlib.import_module(KINDS[body["kind"]]).restore(body, arrays, folder, network)


# ---- folders and files ----


def write_folder(target: Path, body: dict[str, Any], arrays: dict[str, np.ndarray], files: dict[str, Any]) -> None:
    """Write the files of a model into the folder `target`: all of them, or none."""
    from safetensors.numpy import save as to_bytes

    weights = to_bytes({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    body["weights_sha256"] = hashlib.sha256(weights).hexdigest()
    whole = {"format": FORMAT, "version": VERSION, "sha256": _sha(body), "body": body}
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic.new_folder(target) as folder:
        (folder / WEIGHTS).write_bytes(weights)
        for name, content in {DESCRIPTION: whole, **files}.items():
            with open(folder / name, "w", encoding="utf-8") as file:
                file.writelines(pieces(content))


def read_folder(folder: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What `write_folder` wrote, by its checksums."""
    from safetensors.numpy import load as from_bytes

    body = _read_description(folder)
    try:
        weights = plain_files.read_bytes(folder / WEIGHTS, most=None)
    except FileNotFoundError:
        raise MissingFile(f"{folder} has no {WEIGHTS}: copy the whole folder") from None
    except MemoryError:
        raise UserError(f"{folder / WEIGHTS} does not fit into memory; {REMEDY}") from None
    if hashlib.sha256(weights).hexdigest() != body.get("weights_sha256"):
        raise UserError(f"{folder / WEIGHTS} is truncated or was altered: its checksum is not that of {DESCRIPTION}")
    with naming(folder / WEIGHTS):
        arrays = from_bytes(weights)
        for name, array in arrays.items():
            if array.dtype.kind == "f" and not name.startswith("results.") and not np.isfinite(array).all():
                raise UserError(f"{name} must be finite")
    return body, arrays


@contextmanager
def naming(file: Path) -> Iterator[None]:
    """Turn any error in reading a file into one sentence that names the file."""
    from safetensors import SafetensorError

    try:
        yield
    except CompleteError:
        raise
    except RecursionError:
        raise UserError(f"{file} cannot be read as a model: it is nested too deeply; {REMEDY}") from None
    except (TypeError, ValueError, LookupError, ArithmeticError, AttributeError, SafetensorError) as error:
        what = f"{error.args[0]} is missing" if isinstance(error, KeyError) else " ".join(str(error).split())
        raise UserError(f"{file} cannot be read as a model: {what}; {REMEDY}") from error


def model_folder(path: str | os.PathLike[str]) -> Path:
    """The folder of a model, given that or the folder of its run."""
    folder = Path(path)
    if not (folder / DESCRIPTION).is_file() and (folder / "model").is_dir():
        return folder / "model"
    return folder  # `load` says what is wrong with it


def check_place(target: Path) -> None:
    """Replace models only, never somebody's folder of other things."""
    if target.is_file():
        raise UserError(f"{target} is a file; a model is saved as a folder: give another name")
    own = {DESCRIPTION, WEIGHTS, EXPLANATION}
    others = sorted(file.name for file in target.iterdir() if file.name not in own) if target.is_dir() else []
    if others:
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        raise UserError(
            f"{target} holds other files than a model: {others[0]}{more}; move that away, or give the name of a new "
            "folder"
        )


def _sha(body: dict[str, Any]) -> str:
    """The checksum of its one spelling in JSON."""
    digest = hashlib.sha256()
    for piece in pieces(body, sort_keys=True, separators=(",", ":")):
        digest.update(piece.encode())
    return digest.hexdigest()


def _read_description(folder: Path) -> dict[str, Any]:
    file = folder / DESCRIPTION
    if not folder.is_dir():
        raise MissingFile(f"there is no folder {folder}; a model is a folder with {DESCRIPTION} and {WEIGHTS}")
    if not file.is_file():
        if (folder / RUN).is_file():
            raise MissingFile(f"the run in {folder} has no model yet; run the command that began it again to resume it")
        raise MissingFile(f"{folder} has no {DESCRIPTION}; a model is a folder with {DESCRIPTION} and {WEIGHTS}")
    whole = read_json(file)
    if not isinstance(whole, dict) or whole.get("format") != FORMAT:
        raise UserError(f"{file} does not describe a Shoal model; save one with shoal.save")
    if whole.get("version") != VERSION:
        raise UserError(f"{file} has format version {whole.get('version')}; this Shoal reads version {VERSION}")
    body = whole.get("body")
    try:
        intact = isinstance(body, dict) and _sha(body) == whole.get("sha256")
    except RecursionError:
        raise UserError(f"{file} is nested too deeply to describe a model; {REMEDY}") from None
    if not intact:
        raise UserError(f"{file} was altered: its checksum is wrong")
    return dict(body)  # type: ignore[arg-type]


def read_json(file: Path) -> Any:
    """What a file of JSON holds; errors name the file."""
    try:
        return json.loads(plain_files.read_text(file))
    except NotAFile as error:
        raise UserError(f"{error}; {REMEDY}") from None
    except RecursionError:
        raise UserError(f"{file} is no file of Shoal: its brackets are nested too deeply; {REMEDY}") from None
    except (ValueError, UnicodeDecodeError) as error:
        raise UserError(f"{file} is truncated or is no JSON: {error}") from error


# ---- models ----


def describe_model(model: Model) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The model's part of model.json, and its weights."""
    arrays: dict[str, np.ndarray] = {}
    folds = []
    for k, fold in enumerate(model.folds):
        described, parts = fold.encoder.state()
        folds.append(described)
        arrays |= {f"folds.{k}.encoder.{name}": array for name, array in parts.items()}
        describe(fold.target, f"folds.{k}.target", arrays)
    body = {
        "task": {"kind": model.task.kind, "n_outputs": model.task.n_outputs},
        "schema": describe(model.schema, "schema", arrays),
        "folds": folds,
        "networks": {name: _describe_networks(name, networks, arrays) for name, networks in model.networks.items()},
        "parts": [{**vars(part), "member": _describe_member(part.member)} for part in model.parts],
        "temperature": model.temperature,
        "certainty": describe(model.certainty, "certainty", arrays),
        "compact": describe(model.compact, "compact", arrays),
    }
    return body, arrays


def _describe_networks(
    encoding: str, networks: Population | TorchNetwork, arrays: dict[str, np.ndarray]
) -> dict[str, Any]:
    """What model.json says of the networks of an encoding; their weights go into `arrays`."""
    place = f"networks.{encoding}"
    if isinstance(networks, TorchNetwork):
        arrays |= {f"{place}.{name}": array for name, array in networks.arrays.items()}
        return {"width": networks.n_features, "net": networks.net}
    arrays[place] = networks.state.parameters
    return {"width": networks.n_features}


def _describe_member(member: Member) -> dict[str, Any]:
    return {name: getattr(member, name) for name in ("hidden", "activation", "features")}


def _member(described: dict[str, Any]) -> Member:
    return Member.from_dict(described | {"optimizer": "sgd"})


def _describe_predictor(fitted: Any) -> dict[str, Any]:
    """What prediction needs beside the model."""
    classes: np.ndarray | None = getattr(fitted, "classes_", None)
    names = getattr(fitted, "feature_names_in_", None)
    dtype = None if classes is None else "object" if classes.dtype == object else classes.dtype.str
    return {
        "classes": None if classes is None else {"dtype": dtype, "values": classes.tolist()},
        "one_column": getattr(fitted, "one_column_", None),
        "feature_names": None if names is None else [str(name) for name in names],
        "target_name": getattr(fitted, "target_name_", None),
        "reading": describe(getattr(fitted, "reading_", None), "reading", {}),
    }


def restore_model(body: dict[str, Any], arrays: dict[str, np.ndarray]) -> Model:
    task, schema = Task(**body["task"]), restore(Schema, "schema", body["schema"], {})
    folds = []
    for k, described in enumerate(body["folds"]):
        encoder = Encoder.from_state(schema, described, arrays_under(f"folds.{k}.encoder.", arrays))
        folds.append(FoldTransforms(encoder, restore(TargetScaling, f"folds.{k}.target", {}, arrays)))
    parts = tuple(Part(**part | {"member": _member(part["member"])}) for part in body["parts"])
    networks = {}
    for encoding, described in body["networks"].items():
        members = [part.member for part in parts if part.encoding == encoding]
        networks[encoding] = _restore_networks(f"networks.{encoding}", described, arrays, task, members, len(folds))
    compact = restore(Compact | None, "compact", body["compact"], {})
    temperature = number("temperature", body["temperature"], *checks.TEMPERATURES)
    certainty = restore(Certainty | None, "certainty", body["certainty"], arrays)
    model = Model(task, schema, tuple(folds), parts, networks, temperature, certainty, compact)
    checks.check_model(model, body["classes"] and body["classes"]["values"])
    return model


def _restore_networks(
    place: str, described: dict[str, Any], arrays: dict[str, np.ndarray], task: Task, members: list[Member], folds: int
) -> Population | TorchNetwork:
    width = described["width"]
    if "net" in described:
        instance(f"{place}.net.net", described["net"]["net"], str)
        return TorchNetwork(described["net"], width, task.n_outputs, arrays_under(f"{place}.", arrays))
    stored = arrays[place]
    size = Layout([member for member in members for _ in range(folds)], width, task.n_outputs).total
    if stored.shape != (size,) or stored.dtype != np.float32:
        raise UserError(f"the weights {place!r} have {stored.shape} where ({size},) fit")
    population = empty_networks(task, width, members, folds)
    population.state.parameters[:] = stored
    return population


def restore_predictor(target: Any, body: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Give an object what prediction needs: the model, classes, names of columns, and how the file was read."""
    target.model_ = restore_model(body, arrays)
    target.schema_ = target.model_.schema
    target.n_features_in_ = len(target.schema_.columns)
    known = {
        "one_column_": body["one_column"],
        "target_name_": body["target_name"],
        "reading_": restore(Reading | None, "reading", body["reading"], {}),
    }
    if body["classes"] is not None:
        known["classes_"] = np.array(body["classes"]["values"], dtype=np.dtype(body["classes"]["dtype"]))
    if body["feature_names"] is not None:
        known["feature_names_in_"] = np.array(body["feature_names"], dtype=object)
    vars(target).update({name: value for name, value in known.items() if value is not None})
