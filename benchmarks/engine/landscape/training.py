"""Every combination of width, activation and learning rate with many seeds, trained in parts that fit into memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from benchmarks.engine.landscape.question import Question
from benchmarks.harness.measure import Tick
from shoal.machine import thread_count
from shoal.population.layout import Layout
from shoal.population.members import Member, with_seed
from shoal.population.population import Population
from shoal.population.rows import Split

BATCH = 32
COPIES = 3  # of the parameters: themselves and Adam's two moments


@dataclass(frozen=True)
class Grid:
    """The recipes, in the order of a product: the learning rate varies fastest. Each is trained with every seed."""

    widths: tuple[int, ...]
    activations: tuple[str, ...]
    rates: tuple[float, ...]
    seeds: int

    @staticmethod
    def of(members: int, widths: tuple[int, ...], activations: tuple[str, ...], rates: tuple[float, ...]) -> Grid:
        """As many seeds as it takes to have at least so many networks."""
        return Grid(widths, activations, rates, math.ceil(members / (len(widths) * len(activations) * len(rates))))

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return len(self.widths), len(self.activations), len(self.rates), self.seeds

    def recipes(self) -> list[Member]:
        return [
            Member(hidden=(width,), activation=activation, learning_rate=rate, batch_size=BATCH)
            for width, activation, rate in product(self.widths, self.activations, self.rates)
        ]

    def __len__(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True, eq=False)
class Scores:
    """Rows that each network gets right, in the shape of the grid."""

    picking: np.ndarray  # (widths, activations, rates, seeds, epochs) uint32: of the rows to pick by
    fresh: np.ndarray  # (widths, activations, rates, seeds) uint32: of the fresh rows, at the end
    diverged: int
    parts: int
    largest_part: int  # networks


def train(question: Question, grid: Grid, epochs: int, memory: int, tick: Tick) -> Scores:
    """All networks, in parts that take at most `memory` bytes each (one network at least)."""
    picking, fresh = np.zeros((len(grid), epochs), np.uint32), np.zeros(len(grid), np.uint32)
    split = Split(np.arange(question.n_train), np.arange(question.n_train, len(question.y)))
    diverged, sizes = 0, []
    for start, members in parts(grid, question, epochs, memory):
        tick(f"networks {start + 1:,} to {start + len(members):,}")
        population = Population(members, question.X.shape[1], question.classes)
        history = population.fit(question.X, question.y, epochs, rows=split, engine="native", threads=thread_count())
        here = slice(start, start + len(members))
        trained = history.valid_score.shape[1]  # fewer epochs if all of a part diverged
        picking[here, :trained] = _hits(history.valid_score, question.n_pick)
        found = population.evaluate(question.X_fresh, question.y_fresh)
        fresh[here] = _hits(np.where(np.isnan(found.loss), np.nan, found.score), len(question.y_fresh))
        diverged += population.status.count("diverged")
        sizes.append(len(members))
    return Scores(picking.reshape(*grid.shape, epochs), fresh.reshape(grid.shape), diverged, len(sizes), max(sizes))


def parts(grid: Grid, question: Question, epochs: int, memory: int) -> Iterator[tuple[int, list[Member]]]:
    """Consecutive networks, recipe after recipe, and the number of the first of each part."""
    recipes = grid.recipes()
    layout = Layout(recipes, question.X.shape[1], question.classes)
    each = 4 * COPIES * layout.sizes + 24 * epochs  # the history has three numbers for each epoch
    start, taken = 0, 0
    members: list[Member] = []
    for recipe, size in zip(recipes, each.tolist(), strict=True):
        for seed in range(grid.seeds):
            if members and taken + size > memory:
                yield start, members
                start, taken, members = start + len(members), 0, []
            members.append(with_seed(recipe, seed))
            taken += size
    yield start, members


def count_parts(grid: Grid, question: Question, epochs: int, memory: int) -> int:
    return sum(1 for _ in parts(grid, question, epochs, memory))


def _hits(scores: np.ndarray, rows: int) -> np.ndarray:
    """Scores as numbers of rows; a network that has diverged has none."""
    return np.rint(np.where(np.isfinite(scores), scores, 0.0) * rows).astype(np.uint32)
