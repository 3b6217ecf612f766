"""Predictions of one fold's networks for rows with shuffled, fixed or exchanged columns.

Every input of a network belongs to one column of the table, and an encoder looks at one cell at a time. So a row with
one column from another row is made of encoded rows, and nothing is encoded anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shoal.encoders.encoder import Encoder
from shoal.metrics.tasks import CLASSIFICATION
from shoal.models.model import Model
from shoal.tables.table import Table

CELLS_AT_ONCE = 1 << 21  # inputs of one call
Inputs = Mapping[str, np.ndarray]  # encoding -> (n, width) float32


def owners(encoder: Encoder, encoding: str, width: int) -> np.ndarray:
    """(width,) the place of the column, among those that the model uses, that each input belongs to; -1: to none.

    >>> table = Table.of({"size": [1.0, 2.0, None, 4.0], "colour": ["red", "blue", "red", "green"]})
    >>> from shoal.tables.schema import Schema
    >>> owners(Encoder.fit(Schema.of(table), table, np.ones(4)), "plain", 6).tolist()
    [0, 0, 1, 1, 1, -1]
    """
    place = {column.name: j for j, column in enumerate(encoder.schema.used)}
    numbers = [place[name] for name, part in encoder.columns.items() for _ in part.number_names(name)]
    numbers = [numbers[column] for column in encoder.scaling.columns(encoding)]
    inputs = [place[name] for name, part in encoder.columns.items() for _ in range(part.width)]
    found = np.full(width, -1, dtype=np.int64)
    found[: len(numbers) + len(inputs)] = [*numbers, *inputs]
    return found


@dataclass(frozen=True, eq=False)
class FoldNetworks:
    """The networks of a model that were trained on one fold."""

    model: Model
    fold: int
    threads: int | None = None

    def owners(self) -> dict[str, np.ndarray]:
        """For each encoding, whose column each input is."""
        encoder = self.model.folds[self.fold].encoder
        return {name: owners(encoder, name, networks.n_features) for name, networks in self.model.networks.items()}

    def encode(self, table: Table) -> dict[str, np.ndarray]:
        made = {
            name: np.zeros((len(table), networks.n_features), dtype=np.float32)
            for name, networks in self.model.networks.items()
        }
        self.model.folds[self.fold].encoder.write(table, made)
        return made

    def each(self, inputs: Inputs) -> tuple[np.ndarray, np.ndarray]:
        """Weights (parts,) and predictions (parts, n, n_outputs) of single networks."""
        model, count = self.model, len(self.model.folds)
        weights, found = [], []
        for encoding, population in model.networks.items():
            mine = [part.weight for part in model.parts if part.encoding == encoding]
            raw = population.predict(inputs[encoding], np.arange(len(mine)) * count + self.fold, threads=self.threads)
            found.append(model.folds[self.fold].target.back(model.task, raw))
            weights += mine
        return np.array(weights), np.concatenate(found)

    def predict(self, inputs: Inputs) -> np.ndarray:
        """(n, n_outputs) their weighted mean, without the temperature."""
        weights, found = self.each(inputs)
        return np.einsum("p,pno->no", weights, found)


def finished(model: Model, total: np.ndarray) -> np.ndarray:
    """Means of networks as the model gives them: probabilities that sum to one, with its temperature."""
    if model.task.kind == CLASSIFICATION:
        total = total / total.sum(axis=-1, keepdims=True)
    return model.task.temper(total, model.temperature)


def with_none(from_other: np.ndarray) -> np.ndarray:
    """One more column, at the end, where inputs that belong to no column look."""
    return np.concatenate([from_other, np.zeros((len(from_other), 1), dtype=bool)], axis=1)


def chunks(count: int, cells_each: int, most: int = CELLS_AT_ONCE) -> Sequence[slice]:
    """Slices of `count` things, each of at most so many cells in all."""
    size = max(1, most // max(cells_each, 1))
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]
