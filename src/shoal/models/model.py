"""The model that a run delivers: networks, each with the encoder of the fold that it was trained on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from shoal.encoders.encoder import Encoder
from shoal.encoders.target import TargetScaling
from shoal.machine import thread_count
from shoal.metrics.tasks import CLASSIFICATION, Task
from shoal.models.certainty import Certainty
from shoal.models.compact import Compact
from shoal.models.networks import TorchNetwork
from shoal.population.engines.native import predict_own_rows
from shoal.population.engines.program import Resources, Selection
from shoal.population.members import Member
from shoal.population.population import Population
from shoal.tables.schema import Schema
from shoal.tables.table import Table

CELLS_AT_ONCE = 1 << 23  # inputs and raw outputs held in memory at a time
MOST_ROWS = 1 << 13  # that are predicted at a time


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
    networks: Mapping[str, Population | TorchNetwork]
    temperature: float = 1.0
    certainty: Certainty | None = None  # of single rows; only a search knows it
    compact: Compact | None = None  # how to make it smaller; None: not known

    def __len__(self) -> int:
        return len(self.parts) * len(self.folds)

    @property
    def parameters(self) -> int:
        return sum(
            int(networks.layout.counts.sum()) if isinstance(networks, Population) else networks.parameters
            for networks in self.networks.values()
        )

    def predict(self, table: Table, threads: int | None = None) -> np.ndarray:
        """(n, n_outputs): probabilities, or values in the units of the target."""
        total = np.zeros((len(table), self.task.n_outputs))
        for _, rows, part in self.folding.walk(table, threads):
            total[rows] += part
        total /= len(self.folds)
        if self.task.kind == CLASSIFICATION:  # float32 probabilities sum to one only nearly
            total /= total.sum(axis=-1, keepdims=True)
        return self.task.temper(total, self.temperature)

    def predict_folds(self, table: Table, threads: int | None = None) -> np.ndarray:
        """(n_folds, n, n_outputs): what the networks of each fold say, averaged by the weights of the parts.

        Not tempered: `predict` tempers the mean over folds.
        """
        total = np.zeros((len(self.folds), len(table), self.task.n_outputs))
        for k, rows, part in self.folding.walk(table, threads):
            total[k, rows] += part
        return total

    @cached_property
    def folding(self) -> Folding:
        return Folding(self)

    def __getstate__(self) -> dict[str, Any]:
        """Pickles do not hold what is made of the rest when it is first needed."""
        return {name: value for name, value in self.__dict__.items() if name != "folding"}


class Folding:
    """Prediction by the networks of all folds: cells are read once, and each encoding is one call of the kernel."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.weights = {
            encoding: np.array([part.weight for part in model.parts if part.encoding == encoding])
            for encoding in model.networks
        }
        widths = sum(population.n_features for population in model.networks.values())
        per_row = len(model.folds) * widths + len(model) * model.task.n_outputs
        self.most_rows = max(1, min(MOST_ROWS, CELLS_AT_ONCE // per_row))

    def walk(self, table: Table, threads: int | None) -> Iterator[tuple[int, slice, np.ndarray]]:
        """Fold, rows, and what one encoding of it adds there, some rows at a time."""
        table, threads = self.model.schema.check(table), thread_count(threads)
        for start in range(0, len(table), self.most_rows):
            rows = slice(start, min(start + self.most_rows, len(table)))
            raw = self._raw(table if len(table) <= self.most_rows else table.take(rows), threads)
            for k, fold in enumerate(self.model.folds):
                for encoding, weights in self.weights.items():
                    prediction = fold.target.back(self.model.task, raw[encoding][k])
                    yield k, rows, np.tensordot(weights, prediction, axes=1)

    def _raw(self, table: Table, threads: int) -> dict[str, list[np.ndarray]]:
        """Raw outputs (parts, n, n_outputs) of each fold, by encoding."""
        networks, folds = self.model.networks, np.arange(len(self.model.folds))
        count = np.full(len(folds), len(table), dtype=np.int64)
        first = folds * len(table)
        inputs = {
            encoding: np.zeros((int(count.sum()), population.n_features), dtype=np.float32)
            for encoding, population in networks.items()
        }
        for start, fold in zip(first.tolist(), self.model.folds, strict=True):
            mine = {name: matrix[start : start + len(table)] for name, matrix in inputs.items()}
            fold.encoder.write(table, mine)
        made = {}
        for encoding, population in networks.items():
            if not isinstance(population, Population):
                made[encoding] = [population.predict(inputs[encoding], threads=threads)]
                continue
            parts = len(self.weights[encoding])
            which = (folds[:, None] + np.arange(parts) * len(folds)).ravel()  # fold by fold: they share inputs
            selection = Selection(population.program, population.state, which, Resources(threads))
            raw = predict_own_rows(selection, inputs[encoding], np.repeat(first, parts), np.repeat(count, parts))
            pieces = np.split(raw, np.cumsum(parts * count)[:-1])
            made[encoding] = [piece.reshape(parts, -1, self.model.task.n_outputs) for piece in pieces]
        return made


def bare(member: Member) -> Member:
    """A member as far as prediction needs it: no optimiser state to carry along."""
    return Member(hidden=member.hidden, activation=member.activation, features=member.features, optimizer="sgd")


def empty_networks(task: Task, width: int, members: Sequence[Member], folds: int) -> Population:
    every = [member for member in members for _ in range(folds)]
    return Population.blank(every, width, task.n_outputs, task.loss)


def single_model(
    task: Task, schema: Schema, transforms: FoldTransforms, network: Population | TorchNetwork, label: str
) -> Model:
    """A model of one network."""
    member = bare(network.members[0]) if isinstance(network, Population) else Member(hidden=())
    return Model(task, schema, (transforms,), (Part(0, label, "plain", member, 1.0),), {"plain": network})
