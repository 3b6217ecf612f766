"""The compiled engine: worker threads take members one group at a time and run whole epochs with weights in cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from shoal import _native
from shoal.population.engines import Progress, Resources
from shoal.population.engines.program import LOSSES, MEMBER_RECORD, STATUS_NAMES, Assignment, Data, Log, Program, State
from shoal.population.members import ACTIVATIONS, INITS, OPTIMIZERS, SCHEDULES

# Names that are passed to the kernel as numbers: the number of a name is its position.
CODES = {
    "activation": ACTIVATIONS, "optimizer": OPTIMIZERS, "schedule": SCHEDULES, "init": INITS, "loss": LOSSES,
    "status": STATUS_NAMES,
}  # fmt: skip


def check_kernel(record: np.dtype, codes: Mapping[str, tuple[str, ...]]) -> None:
    """Raise unless the kernel, which may be of another version, reads records and numbers words as Python does."""
    offsets: Mapping[str, Any] = record.fields or {}
    ours: dict[str, Any] = {
        "bytes of a record": record.itemsize,
        "fields of a record": tuple((name, str(record[name]), offsets[name][1]) for name in record.names or ()),
        **{f"words for {name}": words for name, words in codes.items()},
    }
    theirs: dict[str, Any] = {
        "bytes of a record": getattr(_native, "RECORD_SIZE", None),
        "fields of a record": getattr(_native, "RECORD_FIELDS", None),
        **{f"words for {name}": words for name, words in getattr(_native, "CODES", {}).items()},
    }
    for what in ours | theirs:
        if ours.get(what) != theirs.get(what):
            raise ImportError(
                f"shoal's compiled kernel does not fit this version of the package: {what} are {theirs.get(what)} in "
                f"the kernel and {ours.get(what)} in Python; install shoal again (if you changed a list: change it in "
                "src/shoal/native/shared/ too, then build)"
            )


check_kernel(MEMBER_RECORD, CODES)


class NativeEngine:
    """Trains members in place, without any array of size batch x all neurons."""

    name = "native"

    def train(
        self,
        program: Program,
        data: Data,
        rows: Assignment,
        state: State,
        which: np.ndarray,
        until: np.ndarray,
        log: Log,
        resources: Resources,
        progress: Progress,
    ) -> bool:
        finished: bool = _native.train(
            **networks(program),
            loss=LOSSES.index(program.loss), class_weight=program.class_weight,
            X=data.X, labels=data.labels, targets=data.targets,
            train_rows=rows.train, train_start=rows.train_start, weight=rows.weight,
            valid_rows=rows.valid, valid_start=rows.valid_start, split=rows.split,
            shuffle=rows.shuffle, order=rows.order, horizon=rows.horizon,
            parameters=state.parameters, slots=state.slots, steps=state.steps, epochs=state.epochs,
            best_epoch=state.best_epoch, best_loss=state.best_loss, status=state.status,
            which=which, until=until,
            log_loss=log.loss, log_valid_loss=log.valid_loss, log_valid_score=log.valid_score,
            threads=resources.threads, progress=progress,
        )  # fmt: skip
        return finished

    def predict(
        self,
        program: Program,
        state: State,
        X: np.ndarray,
        which: np.ndarray,
        out: np.ndarray,
        resources: Resources,
    ) -> None:
        _native.predict(
            **networks(program), X=X, parameters=state.parameters, slots=state.slots, best_epoch=state.best_epoch,
            which=which, out=out, threads=resources.threads,
        )  # fmt: skip

    def evaluate(
        self,
        program: Program,
        state: State,
        data: Data,
        which: np.ndarray,
        resources: Resources,
    ) -> tuple[np.ndarray, np.ndarray]:
        losses, scores = np.empty(len(which)), np.empty(len(which))
        _native.evaluate(
            **networks(program), loss=LOSSES.index(program.loss), class_weight=program.class_weight,
            X=data.X, labels=data.labels, targets=data.targets, parameters=state.parameters, slots=state.slots,
            best_epoch=state.best_epoch, which=which, losses=losses, scores=scores, threads=resources.threads,
        )  # fmt: skip
        return losses, scores

    def workspace(self, program: Program, data: Data, rows: Assignment, resources: Resources) -> int:
        n_train = np.diff(rows.train_start)[rows.split]
        batch_rows = np.minimum(program.records["batch_size"], n_train)
        index_bytes = 8 * int(n_train.max(initial=0))
        each = _native.workspace_bytes(**networks(program), n_features=program.n_features, batch_rows=batch_rows)
        return resources.threads * (each + index_bytes)


def predict_own_rows(
    program: Program,
    state: State,
    X: np.ndarray,
    which: np.ndarray,
    first_row: np.ndarray,
    n_rows: np.ndarray,
    threads: int,
) -> np.ndarray:
    """(sum of n_rows, n_outputs): raw outputs of each member for its own n_rows of X, from first_row on.

    Members of all folds predict in one call, where X has the inputs of all folds one below the other.
    """
    out = np.empty((int(n_rows.sum()), program.n_outputs), dtype=np.float32)
    _native.predict_own_rows(
        **networks(program), X=X, parameters=state.parameters, slots=state.slots, best_epoch=state.best_epoch,
        which=which, first_row=first_row, n_rows=n_rows, out=out, threads=threads,
    )  # fmt: skip
    return out


def networks(program: Program) -> dict[str, Any]:
    """The arguments that describe the networks to every entry point of the kernel."""
    return {
        "records": program.records.view(np.uint8).reshape(len(program), MEMBER_RECORD.itemsize),
        "dims": program.layout.dims,
        "features": program.features,
        "n_outputs": program.n_outputs,
    }


def draw(program: Program, state: State, threads: int) -> None:
    """Write every member's initial weights: a pure function of its recipe and shape."""
    _native.draw(**networks(program), n_features=program.n_features, parameters=state.parameters, threads=threads)
