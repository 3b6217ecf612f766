"""Messages to workers and the journal, and their replies, as bytes: safetensors with JSON, and no code.

What comes back is checked before it is used: shapes, types, and that it fits what was asked for.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from shoal.encoders.encoder import arrays_under
from shoal.encoders.target import TargetScaling
from shoal.errors import UserError
from shoal.files import tensors
from shoal.metrics.metric import METRICS, Metric
from shoal.metrics.tasks import Task
from shoal.population import storage
from shoal.population.members import Member
from shoal.population.population import Population
from shoal.population.rows import Split
from shoal.search.problem.problem import Fold, Matrices
from shoal.search.rounds.training import Assessment, Workload, new_networks

Arrays = dict[str, np.ndarray]
FOLD, SCALING = ("train", "valid", "loss_weight"), ("centre", "scale", "low", "high")
CURVES = ("train_curve", "valid_curve")


@dataclass(frozen=True, eq=False)
class Setting:
    """What all shards of a search share."""

    matrices: Matrices
    metric: Metric
    sample_rows: np.ndarray  # rows kept for honest estimates
    seed: int


# ---- the setting ----


def pack_setting(setting: Setting) -> bytes:
    """A metric that is not Shoal's own goes as a pickle, and is the only thing that does."""
    return tensors.pack(*_setting(setting))


def setting_digest(setting: Setting) -> str:
    """A hash of all of it."""
    return tensors.digest(*_setting(setting))


def _setting(setting: Setting) -> tuple[Arrays, dict[str, Any]]:
    matrices, metric = setting.matrices, setting.metric
    arrays = {"y": matrices.y, "targets": matrices.targets, "sample_rows": setting.sample_rows}
    arrays |= {f"inputs.{name}": matrix for name, matrix in matrices.inputs.items()}
    for k, (fold, split) in enumerate(zip(matrices.folds, matrices.splits, strict=True)):
        arrays |= {f"fold.{k}.{name}": getattr(fold, name) for name in FOLD}
        arrays |= {f"fold.{k}.{name}": getattr(fold.target, name) for name in SCALING}
        arrays |= {f"split.{k}.train": split.train, f"split.{k}.valid": split.valid}
        if split.weight is not None:
            arrays[f"split.{k}.weight"] = split.weight
    own = METRICS.get(metric.name) is metric
    if not own:
        arrays["metric"] = np.frombuffer(_pickled(metric), np.uint8)
    about = {
        "task": asdict(matrices.task), "encodings": list(matrices.inputs), "folds": len(matrices.folds),
        "metric": metric.name if own else None, "seed": setting.seed,
    }  # fmt: skip
    return arrays, about


def _pickled(metric: Metric) -> bytes:
    """Functions that a script or notebook defines travel by value where cloudpickle is there."""
    try:
        import cloudpickle
    except ModuleNotFoundError:
        return pickle.dumps(metric)
    found: bytes = cloudpickle.dumps(metric)
    return found


def load_setting(content: Any) -> Setting:
    """From the bytes of `pack_setting`, or a file mapped into memory that holds them."""
    arrays, about = tensors.unpack(content)
    folds, splits = [], []
    for k in range(about["folds"]):
        mine, rows = arrays_under(f"fold.{k}.", arrays), arrays_under(f"split.{k}.", arrays)
        scaling = TargetScaling(**{name: mine[name] for name in SCALING})
        folds.append(Fold(**{name: mine[name] for name in FOLD}, target=scaling))
        splits.append(Split(rows["train"], rows["valid"], rows.get("weight")))
    inputs = {name: arrays[f"inputs.{name}"] for name in about["encodings"]}
    matrices = Matrices(
        Task(**about["task"]), arrays["y"], tuple(folds), inputs, arrays["targets"], tuple(splits)
    )  # fmt: skip
    name = about["metric"]
    metric = METRICS[name] if name is not None else pickle.loads(arrays["metric"].tobytes())
    return Setting(matrices, metric, arrays["sample_rows"], about["seed"])


# ---- a shard ----


def pack_work(work: Workload, more: Mapping[str, Any] | None = None) -> bytes:
    """`more`: what else the worker is told."""
    arrays = {"until": work.until}
    if work.networks is not None:
        arrays |= {f"networks.{name}": array for name, array in storage.state_arrays(work.networks).items()}
    members = [member.as_dict() for member in work.members]
    about = {"encoding": work.encoding, "members": members}
    return tensors.pack(arrays, about | dict(more or {}))


def load_work(setting: Setting, content: bytes) -> Workload:
    arrays, about = tensors.unpack(content)
    members = tuple(Member.from_dict(member) for member in about["members"])
    networks = arrays_under("networks.", arrays)
    return Workload(
        about["encoding"], members, arrays["until"], setting.seed,
        load_networks(setting.matrices, about["encoding"], members, networks) if networks else None,
    )  # fmt: skip


# ---- networks ----


def pack_networks(networks: Population, moments: bool = True) -> Arrays:
    """Their state. Without `moments` they cannot be trained further: what is needed to predict, and no more."""
    arrays = storage.state_arrays(networks)
    if not moments and not any(member.patience for member in networks.members):
        del arrays["slots"]
    return arrays


def load_networks(
    matrices: Matrices, encoding: str, members: Sequence[Member], arrays: Mapping[str, Any]
) -> Population:
    networks = new_networks(matrices, encoding, members, drawn=False)
    known = dict(arrays)
    known.setdefault("slots", networks.state.slots)
    try:
        storage.fill_state(networks, known)
    except (KeyError, ValueError) as error:
        raise UserError(f"networks do not fit their candidates: {error}") from None
    return networks


# ---- results ----


def pack_assessments(
    matrices: Matrices, found: Sequence[Assessment], whole: Sequence[bool], rows: np.ndarray
) -> Arrays:
    """Assessments of several candidates; of a prediction, only the sample `rows` where it need not be `whole`."""
    folds = len(matrices.folds)
    shapes: dict[str, tuple[int, ...]] = {"fold_epochs": (folds,), "fold_scores": (folds,), "fold_losses": (folds,)}
    arrays = {
        name: np.array([getattr(one, name) for one in found]).reshape(len(found), *shape)
        for name, shape in (shapes | {"score": (), "loss": (), "ended": ()}).items()
    }
    for name in CURVES:
        curves = [getattr(one, name) for one in found]
        arrays[f"{name}.length"] = np.array([len(curve) for curve in curves], dtype=np.int64)
        arrays[name] = np.concatenate(curves) if curves else np.empty(0)
    outputs = matrices.task.n_outputs
    whole_ones = [one.prediction for one, all_rows in zip(found, whole, strict=True) if _has(one) and all_rows]
    samples = [_sample(one, rows) for one, all_rows in zip(found, whole, strict=True) if _has(one) and not all_rows]
    arrays["whole"] = np.array(whole, dtype=bool)
    arrays["predictions"] = np.array(whole_ones, dtype=np.float32).reshape(-1, matrices.n, outputs)
    arrays["samples"] = np.array(samples, dtype=np.float32).reshape(-1, len(rows), outputs)
    return arrays


def _has(found: Assessment) -> bool:
    return found.prediction is not None or found.sample is not None


def _sample(found: Assessment, rows: np.ndarray) -> np.ndarray:
    if found.sample is not None:
        return found.sample
    assert found.prediction is not None
    return found.prediction[rows]


def load_assessments(
    matrices: Matrices, rows: np.ndarray, arrays: Mapping[str, np.ndarray], count: int
) -> list[Assessment]:
    """From `pack_assessments`, checked."""
    folds, outputs = len(matrices.folds), matrices.task.n_outputs
    diverged = ~np.isfinite(_of(arrays, "loss", np.float64, (count,)))
    whole = _of(arrays, "whole", np.bool_, (count,))
    predictions = iter(_of(arrays, "predictions", np.float32, (int((~diverged & whole).sum()), matrices.n, outputs)))
    samples = iter(_of(arrays, "samples", np.float32, (int((~diverged & ~whole).sum()), len(rows), outputs)))
    epochs = _of(arrays, "fold_epochs", np.int64, (count, folds))
    scores, losses = (_of(arrays, name, np.float64, (count, folds)) for name in ("fold_scores", "fold_losses"))
    score, ended = _of(arrays, "score", np.float64, (count,)), _of(arrays, "ended", np.bool_, (count,))
    curves = [_curves(arrays, name, count) for name in CURVES]
    found = []
    for c in range(count):
        known = not diverged[c]
        found.append(Assessment(
            epochs[c], scores[c], losses[c], float(score[c]), float(arrays["loss"][c]),
            next(predictions) if known and whole[c] else None, curves[0][c], curves[1][c], bool(ended[c]),
            next(samples) if known and not whole[c] else None,
        ))  # fmt: skip
    return found


def _curves(arrays: Mapping[str, np.ndarray], name: str, count: int) -> list[np.ndarray]:
    length = _of(arrays, f"{name}.length", np.int64, (count,))
    if (length < 0).any():
        raise UserError(f"{name}.length must not be negative")
    return np.split(_of(arrays, name, np.float64, (int(length.sum()),)), np.cumsum(length)[:-1])


def _of(arrays: Mapping[str, np.ndarray], name: str, kind: Any, shape: tuple[int, ...]) -> np.ndarray:
    """An array that has the type and shape that it should have."""
    array = arrays.get(name)
    if array is None or array.dtype != kind or array.shape != shape:
        got = "nothing" if array is None else f"{array.dtype} {array.shape}"
        raise UserError(f"a result has {got} for {name}, where {np.dtype(kind)} {shape} was expected")
    return array
