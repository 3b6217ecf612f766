"""Networks under way: a unit is one recipe with one seed on every fold; a brood is the population of many units."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from shoal.members import Member
from shoal.metrics.metric import Metric
from shoal.metrics.tasks import weighted_mean
from shoal.population import Population
from shoal.search.problem import Problem
from shoal.search.space import Recipe


@dataclass(eq=False)
class Unit:
    """One recipe with one seed on every fold, and how it did on the rows that it did not train on."""

    number: int
    recipe: Recipe
    key: Recipe = field(init=False)  # equal for units that differ in their seed only
    fold_epochs: np.ndarray = field(default_factory=lambda: np.zeros(1, np.int64))  # done when last assessed
    finished: bool = False  # trained to the end of its recipe
    loss: float = np.inf  # over all out-of-fold rows
    score: float = -np.inf  # mean over folds
    fold_scores: np.ndarray = field(default_factory=lambda: np.empty(0))
    fold_losses: np.ndarray = field(default_factory=lambda: np.empty(0))
    prediction: np.ndarray | None = None  # (n, n_outputs) out-of-fold; dropped for all but the best
    sample: np.ndarray | None = None  # the same on the rows kept for honest estimates, for every unit
    train_curve: np.ndarray = field(default_factory=lambda: np.empty(0))  # (epochs,) mean over folds
    valid_curve: np.ndarray = field(default_factory=lambda: np.empty(0))
    seconds: float = 0.0
    brood: Brood | None = None  # who holds its weights; None: they are gone

    def __post_init__(self) -> None:
        self.key = self.recipe.key

    @property
    def epochs(self) -> int:
        """Epochs done by all its folds."""
        return int(self.fold_epochs.min())

    @property
    def target(self) -> int:
        """Epochs at the end of its recipe."""
        assert self.recipe.member.epochs is not None
        return self.recipe.member.epochs


def epoch_cost(member: Member, n_rows: int, n_features: int, n_outputs: int) -> float:
    """Work of an epoch on one fold, in arbitrary units: products, updates, and what every row and batch cost anyway."""
    widths = [n_features if member.features is None else len(member.features), *member.hidden, n_outputs]
    parameters = sum((a + 1) * b for a, b in pairwise(widths))
    batches = -(-n_rows // member.batch_size)
    return n_rows * (6.0 * parameters + 60.0 * sum(widths[1:])) + batches * (20.0 * parameters + 20_000.0)


def unit_cost(problem: Problem, recipe: Recipe) -> float:
    """Work of one epoch of a recipe on all folds."""
    width, outputs = problem.views[recipe.view].shape[1], problem.task.n_outputs
    return sum(epoch_cost(recipe.member, len(split.train), width, outputs) for split in problem.splits)


class Brood:
    """Units with one view of the data, as one population: member u * n_folds + k is unit u on fold k."""

    def __init__(self, problem: Problem, view: str, units: Sequence[Unit]) -> None:
        self.problem, self.view, self.units = problem, view, list(units)
        members = [unit.recipe.member for unit in self.units for _ in problem.folds]
        self.population = Population(members, self.inputs.shape[1], problem.task.n_outputs, problem.task.loss)
        self._places = {unit.number: place for place, unit in enumerate(self.units)}
        for unit in self.units:
            unit.brood = self

    @property
    def inputs(self) -> np.ndarray:
        return self.problem.views[self.view]

    def train(
        self, until: dict[int, list[int]], threads: int | None, seed: int, stop_when: Callable[[], bool]
    ) -> list[Unit]:
        """Train units (by number) until their folds have done so many epochs; those that got there come back."""
        nothing = [0] * len(self.problem.folds)
        targets = np.array([until.get(unit.number, nothing) for unit in self.units])
        self.population.fit(
            self.inputs, self.problem.targets, until=np.maximum(targets.ravel(), self.population.epochs),
            rows=self.problem.rows(len(self.units)), threads=threads, seed=seed, stop_when=stop_when,
        )  # fmt: skip
        status = np.array(self.population.status).reshape(targets.shape)
        ended = ((self.epochs() >= targets) | (status == "diverged")).all(axis=1)
        return [unit for unit, end in zip(self.units, ended, strict=True) if end and unit.number in until]

    def epochs(self) -> np.ndarray:
        """(n_units, n_folds) epochs that each network has done."""
        folds = len(self.problem.folds)
        return self.population.epochs[: len(self.units) * folds].reshape(-1, folds)

    def epochs_of(self, unit: Unit) -> np.ndarray:
        return np.asarray(self.epochs()[self._place(unit)])

    def moved_on(self) -> list[Unit]:
        """Units whose networks were trained after they were last assessed: their scores are of older weights."""
        return [unit for unit, done in zip(self.units, self.epochs(), strict=True) if (done > unit.fold_epochs).any()]

    def assess(self, units: Sequence[Unit], metric: Metric, threads: int | None) -> None:
        """Predict the rows that each fold left out, and note scores: the same bits in whatever company."""
        problem, task = self.problem, self.problem.task
        places = np.array([self._place(unit) for unit in units]) * len(problem.folds)
        weight = problem.valid_weight
        total = np.zeros((len(units), problem.n, task.n_outputs), dtype=np.float32)
        scores = np.empty((len(units), len(problem.folds)))
        losses = np.empty_like(scores)
        for k, fold in enumerate(problem.folds):
            rows, inputs = problem.valid_inputs(self.view, k)
            raw = self.population.predict(inputs, places + k, threads=threads)
            prediction = fold.target.back(task, raw)
            y, mass, judged = problem.y[rows], fold.valid[rows], fold.judged[rows]
            scores[:, k] = metric.score(task, prediction, y, mass)
            losses[:, k] = weighted_mean(task.losses(prediction, y, problem.loss_scale), judged)
            total[:, rows] += (prediction * (mass / weight[rows])[:, None]).astype(np.float32)
        for u, unit in enumerate(units):
            self._note(unit, total[u], scores[u], losses[u])

    def predict(self, unit: Unit, fold: int, inputs: np.ndarray, threads: int | None) -> np.ndarray:
        """(n, n_outputs) what a unit's network of one fold says of any rows, encoded by that fold."""
        raw = self.population.predict(inputs, [self._place(unit) * len(self.problem.folds) + fold], threads=threads)
        return self.problem.folds[fold].target.back(self.problem.task, raw)[0]

    def _note(self, unit: Unit, prediction: np.ndarray, scores: np.ndarray, losses: np.ndarray) -> None:
        problem = self.problem
        weight = problem.judged_weight
        folds = len(problem.folds)
        place = self._place(unit) * folds
        history = self.population.history
        unit.fold_epochs = self.epochs()[place // folds]
        unit.finished = unit.epochs >= unit.target
        if not np.isfinite(prediction).all() or not np.isfinite(losses).all():
            unit.loss, unit.score, unit.finished = np.inf, -np.inf, False
            unit.fold_scores, unit.fold_losses = np.full(folds, -np.inf), np.full(folds, np.inf)
            unit.prediction = unit.sample = None
            return
        scored = weight > 0  # zeros would change nothing but the order of the sum, and so its last bits
        row_losses = problem.task.losses(prediction[scored], problem.y[scored], problem.loss_scale)
        unit.loss = float(weighted_mean(row_losses, weight[scored]))
        unit.score = float(scores.mean())
        unit.fold_scores, unit.fold_losses, unit.prediction = scores, losses, prediction
        unit.train_curve = history.loss[place : place + folds, : unit.epochs].mean(axis=0)
        unit.valid_curve = history.valid_loss[place : place + folds, : unit.epochs].mean(axis=0)

    def keep(self, units: Sequence[Unit]) -> None:
        """Forget the weights of all other units, and the memory they took."""
        wanted = {unit.number for unit in units}
        kept = [unit for unit in self.units if unit.number in wanted]
        if len(kept) == len(self.units):
            return
        for unit in self.units:
            unit.brood = self if unit.number in wanted else None
        folds = len(self.problem.folds)
        places = np.array([self._place(unit) for unit in kept], dtype=np.int64)
        if len(kept):
            self.population = self.population.select((places[:, None] * folds + np.arange(folds)).ravel())
        self.units = kept
        self._places = {unit.number: place for place, unit in enumerate(kept)}

    def weights(self, unit: Unit, fold: int) -> list[tuple[np.ndarray, np.ndarray]]:
        return self.population.weights(self._place(unit) * len(self.problem.folds) + fold)

    def _place(self, unit: Unit) -> int:
        return self._places[unit.number]
