"""Populations on disk: one sealed file of `shoal.files.tensors`, with the members as JSON in its header."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.errors import MissingFile, UserError
from shoal.files import tensors
from shoal.population.engines.program import STATUS_NAMES
from shoal.population.history import CURVES, History
from shoal.population.members import Member

if TYPE_CHECKING:
    from shoal.population.population import Population

FORMAT = "shoal-population"
VERSION = "3"
PER_MEMBER = ("steps", "epochs", "best_epoch", "best_loss", "status")


def copy_state(given: Population, chosen: np.ndarray, made: Population, places: np.ndarray) -> None:
    """Copy parameters, slots and counters of the chosen members: chosen[k] becomes member places[k]."""
    source, old, target, new = given.program, given.state, made.program, made.state
    for k, i in zip(places, chosen, strict=True):
        size = int(source.layout.sizes[i])
        begin, end = int(source.records["parameters"][i]), int(target.records["parameters"][k])
        new.parameters[end : end + size] = old.parameters[begin : begin + size]
        slots = size * (int(source.records["optimizer_slots"][i]) + int(source.records["patience"][i] > 0))
        begin, end = int(source.records["slots"][i]), int(target.records["slots"][k])
        new.slots[end : end + slots] = old.slots[begin : begin + slots]
    for name in PER_MEMBER:
        getattr(new, name)[places] = getattr(old, name)[chosen]


def state_arrays(population: Population) -> dict[str, np.ndarray]:
    """All that training has changed: parameters, moments, counters and curves."""
    state, history = population.state, population.history
    arrays = {name: getattr(state, name) for name in ("parameters", "slots", *PER_MEMBER)}
    return arrays | {f"history.{name}": getattr(history, name) for name in CURVES}


def fill_state(population: Population, arrays: Mapping[str, np.ndarray], seconds: float = 0.0) -> None:
    """Put what `state_arrays` gave into a population of the same members; ValueError or KeyError if it does not fit."""
    _check_counters(arrays)
    for name in ("parameters", "slots", *PER_MEMBER):
        _put(getattr(population.state, name), arrays[name], name)
    curves: dict[str, Any] = {name: np.array(arrays[f"history.{name}"], dtype=np.float64) for name in CURVES}
    if any(curve.shape != (len(population), curves["loss"].shape[1]) for curve in curves.values()):
        raise UserError("the history does not fit the members")
    population.history = History(**curves, seconds=seconds)


def save_population(population: Population, path: str | os.PathLike[str]) -> None:
    """Write a file; a crash leaves either the old file or the new one."""
    target = Path(path)
    if not target.parent.is_dir():
        raise MissingFile(f"there is no folder {target.parent} to save into; make it first")
    about = {
        "members": [member.as_dict() for member in population.members],
        "n_features": population.n_features,
        "n_outputs": population.n_outputs,
        "loss": population.loss,
        "seconds": population.history.seconds,
    }
    arrays = state_arrays(population) | {"class_weight": population.program.class_weight}
    tensors.write_sealed(target, arrays, about, {"format": FORMAT, "version": VERSION})


def load_population(
    path: str | os.PathLike[str], make: Callable[..., Population], memory_limit: int | None
) -> Population:
    """Read and check a file from `save_population`; `make` returns an empty population to fill in."""
    about, arrays = _read(Path(path))
    try:
        members = [Member.from_dict(recipe) for recipe in about["members"]]
        population = make(
            members, about["n_features"], about["n_outputs"], about["loss"], class_weight=arrays["class_weight"],
            memory_limit=memory_limit,
        )  # fmt: skip
        fill_state(population, arrays, float(about["seconds"]))
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise UserError(f"{path} is damaged or was altered: {error}") from error
    return population


def _read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    try:
        labels = tensors.read_labels(path)
        if labels.get("format") != FORMAT:
            raise UserError(f"{path} is not a Shoal population; save one with Population.save")
        if labels.get("version") != VERSION:
            raise UserError(f"{path} has format version {labels.get('version')}; this Shoal reads {VERSION}")
        _, arrays, about = tensors.read_sealed(path)
    except FileNotFoundError:
        raise MissingFile(f"there is no file {path}") from None
    except tensors.NotTensors as error:
        raise UserError(
            f"{path} is damaged, was altered or is not a Shoal population ({error}); restore it from a copy or train "
            "again"
        ) from None
    return about, arrays


def _check_counters(arrays: Mapping[str, np.ndarray]) -> None:
    if arrays["status"].max(initial=0) >= len(STATUS_NAMES):
        raise UserError(f"status must be below {len(STATUS_NAMES)}")
    for name in ("steps", "epochs", "best_epoch"):
        if arrays[name].min(initial=0) < 0:
            raise UserError(f"{name} must not be negative")
    if np.any(arrays["best_epoch"] > arrays["epochs"]):
        raise UserError("a best epoch is later than the last one")


def _put(target: np.ndarray, source: np.ndarray, name: str) -> None:
    if source.shape != target.shape or source.dtype != target.dtype:
        raise UserError(f"{name} has {source.dtype} {source.shape} where {target.dtype} {target.shape} was expected")
    target[...] = source
