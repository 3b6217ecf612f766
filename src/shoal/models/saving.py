"""A model on disk: a folder with `model.json` and `weights.safetensors`. No pickle, no code.

Both files are checked when they are read: the JSON holds a checksum of itself and one of the weights. Equal models are
equal files; what differs from run to run, such as seconds, is in `timings.json`, which need not be there.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from shoal import atomic, plain_files
from shoal.encoders.encoder import Encoder, arrays_under
from shoal.encoders.target import TargetScaling
from shoal.errors import MissingFile, NotAFile, UserError
from shoal.json_values import pieces
from shoal.layout import Layout
from shoal.members import Member
from shoal.metrics.tasks import Task
from shoal.models import checks
from shoal.models.certainty import Certainty
from shoal.models.compact import Compact
from shoal.models.model import FoldTransforms, Model, Part, empty_networks
from shoal.runs.kinds import RUN
from shoal.tables.reading import Reading
from shoal.tables.schema import Schema
from shoal.validate import instance

FORMAT = "shoal-model"
VERSION = 3  # 1 had timings in model.json and scores among the weights, 2 knew no certainty; they are still read
READ = (1, 2, 3)
DESCRIPTION, WEIGHTS, TIMINGS = "model.json", "weights.safetensors", "timings.json"
EXPLANATION = "explanation.json"  # which columns matter; not of the model itself, and need not be there
TARGET = ("centre", "scale", "low", "high")
REMEDY = "use an unchanged copy, or fit and save the model again"


def write_folder(
    target: Path,
    body: dict[str, Any],
    arrays: dict[str, np.ndarray],
    timings: dict[str, Any],
    others: Mapping[str, dict[str, Any]] | None = None,
) -> None:
    """Write the files of a model into the folder `target`: all of them, or none. `others`: more JSON, by file."""
    from safetensors.numpy import save as to_bytes

    weights = to_bytes({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    body["weights_sha256"] = hashlib.sha256(weights).hexdigest()
    whole = {"format": FORMAT, "version": VERSION, "sha256": _sha(body), "body": body}
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic.new_folder(target) as folder:
        (folder / WEIGHTS).write_bytes(weights)
        for name, content in ((DESCRIPTION, whole), (TIMINGS, timings), *(others or {}).items()):
            with open(folder / name, "w", encoding="utf-8") as file:
                file.writelines(pieces(content))


def read_folder(folder: Path, parameters: tuple[str, ...] | None) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What `write_folder` wrote, every field of it checked.

    `parameters`: those that an estimator may have; None: nobody uses them.
    """
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
    with naming(folder / DESCRIPTION):
        checks.check_body(body, parameters)
    with naming(folder / WEIGHTS):
        arrays = from_bytes(weights)
        checks.check_arrays(arrays, body["task"]["n_outputs"], len(body["encoders"]))
    return body, arrays


@contextmanager
def naming(file: Path) -> Iterator[None]:
    """Turn any error in reading a file into one sentence that names the file."""
    from safetensors import SafetensorError

    try:
        yield
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
    own = {DESCRIPTION, WEIGHTS, TIMINGS, EXPLANATION}
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
            raise MissingFile(f"the run in {folder} has no model yet; the command that began it goes on with it")
        raise MissingFile(f"{folder} has no {DESCRIPTION}; a model is a folder with {DESCRIPTION} and {WEIGHTS}")
    whole = read_json(file)
    if not isinstance(whole, dict) or whole.get("format") != FORMAT:
        raise UserError(f"{file} does not describe a Shoal model; save one with shoal.save")
    if whole.get("version") not in READ:
        raise UserError(f"{file} has format version {whole.get('version')}; this Shoal reads up to version {VERSION}")
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


def describe_model(model: Model) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The model's part of model.json, and its weights."""
    arrays: dict[str, np.ndarray] = {}
    encoders = []
    for k, fold in enumerate(model.folds):
        described, parts = fold.encoder.state()
        described.pop("schema", None)
        encoders.append(described)
        arrays |= {f"bag.{k}.encoder.{name}": array for name, array in parts.items()}
        arrays |= {f"bag.{k}.target.{name}": getattr(fold.target, name) for name in TARGET}
    arrays |= {f"networks.{encoding}": population.state.parameters for encoding, population in model.networks.items()}
    body = {
        "task": {"kind": model.task.kind, "n_outputs": model.task.n_outputs},
        "schema": model.schema.as_dict(),
        "encoders": encoders,
        "widths": {encoding: population.n_features for encoding, population in model.networks.items()},
        "parts": [_plain_part(part) for part in model.parts],
        "temperature": model.temperature,
        "certainty": None,
    }
    if model.certainty is not None:
        body["certainty"], found = model.certainty.state()
        arrays |= {f"certainty.{name}": array for name, array in found.items()}
    if model.compact is not None:
        body["compact"] = model.compact.as_dict()
    return body, arrays


def _plain_part(part: Part) -> dict[str, Any]:
    member = {name: getattr(part.member, name) for name in ("hidden", "activation", "features")}
    return {"recipe": part.recipe, "label": part.label, "view": part.encoding, "weight": part.weight, "member": member}


def restore_model(body: dict[str, Any], arrays: dict[str, np.ndarray]) -> Model:
    task, schema = Task(body["task"]["kind"], body["task"]["n_outputs"]), Schema.from_dict(body["schema"])
    folds = []
    for k, described in enumerate(body["encoders"]):
        encoder = Encoder.from_state(described | {"schema": body["schema"]}, arrays_under(f"bag.{k}.encoder.", arrays))
        target = TargetScaling(**{name: arrays[f"bag.{k}.target.{name}"] for name in TARGET})
        folds.append(FoldTransforms(replace(encoder, schema=schema), target))
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
    for encoding, width in body["widths"].items():
        members = [part.member for part in parts if part.encoding == encoding]
        stored = arrays[f"networks.{encoding}"]
        size = Layout([member for member in members for _ in folds], width, task.n_outputs).total
        if stored.shape != (size,) or stored.dtype != np.float32:
            raise UserError(f"the weights of {encoding!r} have {stored.shape} where ({size},) fit")
        networks[encoding] = population = empty_networks(task, width, members, len(folds))
        population.state.parameters[:] = stored
    compact = body.get("compact")  # models from before it existed lack it
    if compact is not None:
        compact = Compact.from_dict(compact, len(parts), len(folds), checks.TEMPERATURE)
    model = Model(task, schema, tuple(folds), parts, networks, float(body["temperature"]), compact=compact)
    checks.check_prediction(model)
    known = body.get("certainty")
    if known is None:
        return model
    certainty = Certainty.from_state(instance("certainty", known, dict), arrays_under("certainty.", arrays), model)
    return replace(model, certainty=certainty)


def restore_predictor(target: Any, body: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Give an object what prediction needs: the model, classes, names of columns, and how the file was read."""
    target.model_ = restore_model(body, arrays)
    target.schema_ = target.model_.schema
    if body["classes"] is not None:
        target.classes_ = np.array(body["classes"]["values"], dtype=np.dtype(body["classes"]["dtype"]))
    if body["one_column"] is not None:
        target.one_column_ = body["one_column"]
    names = body["feature_names"]
    if names is None and body["target_name"] is not None:  # of a table of the command line, as version 1 saved it
        names = [column.name for column in target.schema_.columns]
    if names is not None:
        target.feature_names_in_ = np.array(names, dtype=object)
    if body["target_name"] is not None:
        target.target_name_ = body["target_name"]
    if body.get("reading") is not None:
        target.reading_ = Reading.of(body["reading"])
