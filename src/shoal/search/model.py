"""The model that a search gives back: networks, each with the encoder of the fold that it was trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal.members import Member
from shoal.population import Population
from shoal.search.encode import Encoder
from shoal.search.problem import Problem, Target
from shoal.search.schema import Schema
from shoal.search.table import Table
from shoal.search.tasks import CLASSIFICATION, Task
from shoal.search.units import Unit

CELLS_AT_ONCE = 1 << 24  # predictions held in memory at a time


@dataclass(frozen=True)
class Part:
    """One recipe's place in the ensemble. Its networks, one per bag, are averaged with equal weight."""

    recipe: int  # row of the leaderboard
    label: str
    view: str
    member: Member  # as far as prediction needs it
    weight: float


@dataclass(frozen=True, eq=False)
class Bag:
    """What was fitted on the training rows of one fold: how to encode inputs, how to scale outputs back."""

    encoder: Encoder
    target: Target


@dataclass(frozen=True, eq=False)
class Model:
    """Parts times bags networks. Member p * n_bags + k of a view's population is that view's part p on bag k."""

    task: Task
    schema: Schema
    bags: tuple[Bag, ...]
    parts: tuple[Part, ...]
    networks: dict[str, Population]
    temperature: float = 1.0

    def __len__(self) -> int:
        return len(self.parts) * len(self.bags)

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

    def _predict(self, table: Table, threads: int | None) -> np.ndarray:
        total = np.zeros((len(table), self.task.n_outputs))
        for k, bag in enumerate(self.bags):
            inputs = bag.encoder.transform(table, list(self.networks))
            for view, population in self.networks.items():
                weights = [part.weight for part in self.parts if part.view == view]
                members = np.arange(len(weights)) * len(self.bags) + k
                raw = population.predict(widen(inputs[view], population.n_features), members, threads=threads)
                prediction = bag.target.back(self.task, raw)
                total += np.tensordot(np.array(weights), prediction, axes=1)
        total /= len(self.bags)
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


def make_model(
    problem: Problem, units: Sequence[Unit], weights: Sequence[float], recipe_of: dict[int, int], temperature: float
) -> Model:
    """Collect the weights of the chosen units from their broods."""
    parts = tuple(
        Part(recipe_of[u.number], str(u.recipe), u.recipe.view, bare(u.recipe.member), float(w))
        for u, w in zip(units, weights, strict=True)
    )
    bags = tuple(Bag(fold.encoder, fold.target) for fold in problem.folds)
    networks = {}
    for view in problem.views:
        mine = [unit for unit in units if unit.recipe.view == view]
        if mine:
            networks[view] = empty_networks(
                problem.task, problem.views[view].shape[1], [bare(u.recipe.member) for u in mine], len(bags)
            )
            _copy_weights(networks[view], mine, len(bags))
    return Model(problem.task, problem.schema, bags, parts, networks, temperature)


def empty_networks(task: Task, width: int, members: Sequence[Member], bags: int) -> Population:
    return Population([member for member in members for _ in range(bags)], width, task.n_outputs, task.loss)


def _copy_weights(population: Population, units: Sequence[Unit], bags: int) -> None:
    for place, unit in enumerate(units):
        assert unit.brood is not None
        for k in range(bags):
            index = place * bags + k
            views = population.layout.views(index, population.state.parameters)
            member_weights = unit.brood.weights(unit, k)
            columns: Any = unit.recipe.member.features
            for layer, (view, (matrix, bias)) in enumerate(zip(views, member_weights, strict=True)):
                view[:-1] = matrix if layer or columns is None else matrix[list(columns)]
                view[-1] = bias
