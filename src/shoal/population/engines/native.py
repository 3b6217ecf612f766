"""The compiled engine: worker threads take members one group at a time and run whole epochs with weights in cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from shoal import _native
from shoal.population.engines.program import (
    LOSSES,
    MEMBER_RECORD,
    STATUS_NAMES,
    Assignment,
    Data,
    Program,
    Resources,
    Selection,
    State,
    Training,
)
from shoal.population.members import ACTIVATIONS, INITS, OPTIMIZERS, SCHEDULES

# Names that are passed to the kernel as numbers: the number of a name is its position.
CODES = {
    "activation": ACTIVATIONS, "optimizer": OPTIMIZERS, "schedule": SCHEDULES, "init": INITS, "loss": LOSSES,
    "status": STATUS_NAMES,
}  # fmt: skip


def check_kernel(record: np.dtype, codes: Mapping[str, tuple[str, ...]]) -> None:
    """Raise unless the kernel, which may be of another version, reads records and numbers words as Python does."""
    fields = tuple((name, str(kind), offset) for name, (kind, offset, *_) in (record.fields or {}).items())
    ours = {"bytes of a record": record.itemsize, "fields of a record": fields}
    theirs = {name: getattr(_native, constant, None)
              for name, constant in zip(ours, ("RECORD_SIZE", "RECORD_FIELDS"), strict=True)}  # fmt: skip
    for found, words in ((ours, codes), (theirs, getattr(_native, "CODES", {}))):
        found |= {f"words for {name}": known for name, known in words.items()}
    for what in ours | theirs:
        if ours.get(what) != theirs.get(what):
            raise ImportError(
                f"shoal's compiled kernel does not fit this version of the package: {what} are {theirs.get(what)} in "
                f"the kernel and {ours.get(what)} in Python; install shoal again (if you changed a list: change it in "
                "src/shoal/population/native/shared/ too, then build)"
            )


check_kernel(MEMBER_RECORD, CODES)


class NativeEngine:
    """Trains members in place, without any array of size batch x all neurons."""

    name = "native"

    def train(self, training: Training) -> bool:
        rows, log = training.rows, training.log
        finished: bool = _native.train(
            **_trained(training), **_targets(training.program, training.data),
            train_rows=rows.train, train_start=rows.train_start, weight=rows.weight,
            valid_rows=rows.valid, valid_start=rows.valid_start, split=rows.split,
            shuffle=rows.shuffle, order=rows.order, horizon=rows.horizon,
            steps=training.state.steps, epochs=training.state.epochs, best_loss=training.state.best_loss,
            status=training.state.status, until=training.until,
            log_loss=log.loss, log_valid_loss=log.valid_loss, log_valid_score=log.valid_score,
            progress=training.progress,
        )  # fmt: skip
        return finished

    def predict(self, selection: Selection, X: np.ndarray, out: np.ndarray) -> None:
        _native.predict(**_trained(selection), X=X, out=out)

    def evaluate(self, selection: Selection, data: Data) -> tuple[np.ndarray, np.ndarray]:
        losses, scores = np.empty(len(selection.which)), np.empty(len(selection.which))
        _native.evaluate(**_trained(selection), **_targets(selection.program, data), losses=losses, scores=scores)
        return losses, scores

    def workspace(self, program: Program, rows: Assignment, resources: Resources) -> int:
        n_train = np.diff(rows.train_start)[rows.split]
        batch_rows = np.minimum(program.records["batch_size"], n_train)
        index_bytes = 8 * int(n_train.max(initial=0))
        each = _native.workspace_bytes(**networks(program), n_features=program.n_features, batch_rows=batch_rows)
        return resources.threads * (each + index_bytes)


def predict_own_rows(selection: Selection, X: np.ndarray, first_row: np.ndarray, n_rows: np.ndarray) -> np.ndarray:
    """(sum of n_rows, n_outputs): raw outputs of each member for its own n_rows of X, from first_row on.

    Members of all folds predict in one call, where X has the inputs of all folds one below the other.
    """
    out = np.empty((int(n_rows.sum()), selection.program.n_outputs), dtype=np.float32)
    _native.predict_own_rows(**_trained(selection), X=X, first_row=first_row, n_rows=n_rows, out=out)
    return out


def networks(program: Program) -> dict[str, Any]:
    """The arguments that describe the networks to every entry point of the kernel."""
    return {
        "records": program.records.view(np.uint8).reshape(len(program), MEMBER_RECORD.itemsize),
        "dims": program.layout.dims,
        "features": program.features,
        "n_outputs": program.n_outputs,
    }


def _trained(selection: Selection) -> dict[str, Any]:
    """The arguments for members with their weights."""
    state = selection.state
    return networks(selection.program) | {
        "parameters": state.parameters,
        "slots": state.slots,
        "best_epoch": state.best_epoch,
        "which": selection.which,
        "threads": selection.resources.threads,
    }


def _targets(program: Program, data: Data) -> dict[str, Any]:
    """The arguments for rows and losses."""
    return {
        "X": data.X,
        "labels": data.labels,
        "targets": data.targets,
        "loss": LOSSES.index(program.loss),
        "class_weight": program.class_weight,
    }


def draw(program: Program, state: State, threads: int) -> None:
    """Write every member's initial weights: a pure function of its recipe and shape."""
    _native.draw(**networks(program), n_features=program.n_features, parameters=state.parameters, threads=threads)
