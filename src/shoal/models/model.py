"""The model that a search gives back: networks, each with the encoder of the fold that it was trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shoal.encoders.encoder import Encoder
from shoal.encoders.target import TargetScaling
from shoal.members import Member
from shoal.metrics.tasks import CLASSIFICATION, Task
from shoal.models.certainty import Certainty
from shoal.population import Population
from shoal.tables.schema import Schema
from shoal.tables.table import Table

CELLS_AT_ONCE = 1 << 24  # predictions held in memory at a time


@dataclass(frozen=True)
class Part:
    """One recipe's place in the ensemble. Its networks, one per fold, are averaged with equal weight."""

    recipe: int  # row of the leaderboard
    label: str
    encoding: str
    member: Member  # as far as prediction needs it
    weight: float


@dataclass(frozen=True, eq=False)
class FoldTransforms:
    """What was fitted on the training rows of one fold: how to encode inputs, how to scale outputs back."""

    encoder: Encoder
    target: TargetScaling


@dataclass(frozen=True, eq=False)
class Model:
    """Parts times folds networks: member p * n_folds + k of an encoding's population is its part p on fold k."""

    task: Task
    schema: Schema
    folds: tuple[FoldTransforms, ...]
    parts: tuple[Part, ...]
    networks: dict[str, Population]
    temperature: float = 1.0
    certainty: Certainty | None = None  # of single rows; None: saved before there was such a thing

    def __len__(self) -> int:
        return len(self.parts) * len(self.folds)

    @property
    def parameters(self) -> int:
        return sum(int(population.layout.counts.sum()) for population in self.networks.values())

    def predict(self, table: Table, threads: int | None = None) -> np.ndarray:
        """(n, n_outputs): probabilities, or values in the units of the target."""
        table = self.schema.check(table)
        most = max(1, CELLS_AT_ONCE // (self.task.n_outputs * max(len(self), 1)))
        pieces = [
            self._predict(table.take(np.arange(start, min(start + most, len(table)))), threads)
            for start in range(0, max(len(table), 1), most)
        ]
        return np.concatenate(pieces)

    def predict_folds(self, table: Table, threads: int | None = None) -> np.ndarray:
        """(n_folds, n, n_outputs): what the networks of each fold say, averaged over parts; not tempered.

        The prediction is the mean over folds, tempered.
        """
        table = self.schema.check(table)
        most = max(1, CELLS_AT_ONCE // (self.task.n_outputs * max(len(self), 1)))
        pieces = [
            self._predict_folds(table.take(np.arange(start, min(start + most, len(table)))), threads)
            for start in range(0, max(len(table), 1), most)
        ]
        return np.concatenate(pieces, axis=1)

    def _predict_folds(self, table: Table, threads: int | None) -> np.ndarray:
        found = np.zeros((len(self.folds), len(table), self.task.n_outputs))
        for k, fold in enumerate(self.folds):
            inputs = fold.encoder.transform(table, list(self.networks))
            for encoding, population in self.networks.items():
                weights = [part.weight for part in self.parts if part.encoding == encoding]
                members = np.arange(len(weights)) * len(self.folds) + k
                raw = population.predict(widen(inputs[encoding], population.n_features), members, threads=threads)
                found[k] += np.tensordot(np.array(weights), fold.target.back(self.task, raw), axes=1)
        if self.task.kind == CLASSIFICATION:
            found /= found.sum(axis=-1, keepdims=True)
        return found

    def _predict(self, table: Table, threads: int | None) -> np.ndarray:
        total = np.zeros((len(table), self.task.n_outputs))
        for k, fold in enumerate(self.folds):
            inputs = fold.encoder.transform(table, list(self.networks))
            for encoding, population in self.networks.items():
                weights = [part.weight for part in self.parts if part.encoding == encoding]
                members = np.arange(len(weights)) * len(self.folds) + k
                raw = population.predict(widen(inputs[encoding], population.n_features), members, threads=threads)
                prediction = fold.target.back(self.task, raw)
                total += np.tensordot(np.array(weights), prediction, axes=1)
        total /= len(self.folds)
        if self.task.kind == CLASSIFICATION:  # float32 probabilities sum to one only nearly
            total /= total.sum(axis=-1, keepdims=True)
        return self.task.temper(total, self.temperature)


def widen(matrix: np.ndarray, width: int) -> np.ndarray:
    """Zeros for categories that only other folds have seen."""
    if matrix.shape[1] == width:
        return matrix
    wide = np.zeros((len(matrix), width), dtype=np.float32)
    wide[:, : matrix.shape[1]] = matrix
    return wide


def bare(member: Member) -> Member:
    """A member as far as prediction needs it: no optimiser state to carry along."""
    return Member(hidden=member.hidden, activation=member.activation, features=member.features, optimizer="sgd")


def empty_networks(task: Task, width: int, members: Sequence[Member], folds: int) -> Population:
    return Population([member for member in members for _ in range(folds)], width, task.n_outputs, task.loss)
