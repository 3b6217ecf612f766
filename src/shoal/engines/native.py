"""The compiled engine: worker threads take members one group at a time and run whole epochs with weights in cache."""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal import _native
from shoal.engines import Progress, Resources
from shoal.engines.program import LOSSES, RECIPE, Assignment, Data, Log, Program, State

if RECIPE.itemsize != _native.RECIPE_SIZE:
    raise ImportError("shoal's compiled kernel does not fit this version of the package; install shoal again")


class NativeEngine:
    """Members are trained where they are; nothing of size batch x all neurons ever exists."""

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
        batch_rows = np.minimum(program.recipes["batch_size"], n_train)
        index_bytes = 8 * int(n_train.max(initial=0))
        each = _native.workspace_bytes(**networks(program), n_features=program.n_features, batch_rows=batch_rows)
        return resources.threads * (each + index_bytes)


def networks(program: Program) -> dict[str, Any]:
    """What every entry point of the kernel wants to know of the networks."""
    return {
        "recipes": program.recipes.view(np.uint8).reshape(len(program), RECIPE.itemsize),
        "dims": program.layout.dims,
        "features": program.features,
        "n_outputs": program.n_outputs,
    }


def draw(program: Program, state: State, threads: int) -> None:
    """Write every member's initial weights: a pure function of its recipe and shape."""
    _native.draw(**networks(program), n_features=program.n_features, parameters=state.parameters, threads=threads)
