"""The weights of members as layers (W, b), read from and written to the flat buffers of a population."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from shoal.errors import UserError, WrongType
from shoal.population.engines.program import ACTIVE, DIVERGED, Program, State, delivered

Layers = list[tuple[np.ndarray, np.ndarray]]


def read_layers(program: Program, state: State, i: int) -> Layers:
    """Copies of the weights with which member `i` predicts, with zeros for columns that it does not see."""
    buffer, start = delivered(program, state, i)
    layers = [(view[:-1].copy(), view[-1].copy()) for view in program.layout.views(i, buffer, start)]
    columns = program.layout.members[i].features
    if columns:
        full = np.zeros((program.n_features, layers[0][0].shape[1]), dtype=np.float32)
        full[list(columns)] = layers[0][0]
        layers[0] = (full, layers[0][1])
    return layers


def write_layers(program: Program, state: State, i: int, weights: Sequence[Any], reset: bool) -> None:
    """Make `weights` those of member `i`, all or none; best weights from before are forgotten.

    `reset`: forget moments, updates and a divergence as well.
    """
    views = program.layout.views(i, state.parameters)
    layers = _checked(program, i, weights)
    for view, (weight, bias) in zip(views, layers, strict=True):
        view[:-1], view[-1] = weight, bias
    state.best_epoch[i], state.best_loss[i] = 0, np.inf
    if reset:
        record = program.records[i]
        begin = int(record["slots"])
        state.slots[begin : begin + int(record["optimizer_slots"] * record["slot_size"])] = 0
        state.steps[i] = 0
        if state.status[i] == DIVERGED:
            state.status[i] = ACTIVE


def _checked(program: Program, i: int, weights: Sequence[Any]) -> Layers:
    """The layers in float32, without the columns that the member does not see."""
    shapes = program.layout.shapes(i)
    shapes[0] = (program.n_features, shapes[0][1])
    if len(weights) != len(shapes):
        raise UserError(f"member {i} has {len(shapes)} layers, each a pair (W, b); got {len(weights)}")
    layers = [_layer(f"of layer {k} of member {i}", pair, shape)
              for k, (pair, shape) in enumerate(zip(weights, shapes, strict=True))]  # fmt: skip
    columns = program.layout.members[i].features
    if columns:
        unseen = np.ones(program.n_features, bool)
        unseen[list(columns)] = False
        if layers[0][0][unseen].any():
            raise UserError(f"member {i} sees {len(columns)} columns only; the weights of all others must be zero")
        layers[0] = (layers[0][0][list(columns)], layers[0][1])
    return layers


def _layer(where: str, pair: Any, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise WrongType(f"the weights {where} must be a pair (W, b); got {type(pair).__name__}")
    return _array(f"W {where}", pair[0], shape), _array(f"b {where}", pair[1], shape[1:])


def _array(name: str, value: Any, shape: tuple[int, ...]) -> np.ndarray:
    array = np.asarray(value)
    if array.shape != shape or array.dtype.kind not in "fiub":
        raise UserError(f"{name} must hold numbers of shape {shape}; got {array.dtype} of shape {array.shape}")
    with np.errstate(over="ignore"):  # too large for float32: infinite, which is reported
        found = array.astype(np.float32)
    if not np.isfinite(found).all():
        raise UserError(f"{name} must be finite in float32; got {found[~np.isfinite(found)][0]}")
    return found


class SideBySide(NamedTuple):
    """All members of a population as rows of matrices; what is written here is written to its state."""

    parameters: np.ndarray  # (members, floats): layer after layer, each a (fan_in + 1, fan_out) matrix, then padding
    moments: np.ndarray  # (members, slots of the optimiser, floats)


def stacked(program: Program, state: State) -> SideBySide:
    """Views of the weights and moments of members that all have the same shape and optimiser, and no patience."""
    records, layout = program.records, program.layout
    slots, size = int(records["optimizer_slots"][0]), int(layout.sizes[0])
    alike = np.all(layout.n_layers == layout.n_layers[0]) and np.all(records["optimizer_slots"] == slots)
    if not alike or np.ptp(layout.dims.reshape(len(program), -1), axis=0).any() or records["patience"].any():
        raise UserError("only members of one shape and one optimiser, without patience, lie side by side")
    return SideBySide(state.parameters.reshape(len(program), size), state.slots.reshape(len(program), slots, size))
