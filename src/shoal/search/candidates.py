"""Candidates: one recipe with one seed, trained on every fold. A pool trains many of them as one population."""

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
class Candidate:
    """One recipe with one seed on every fold, and how it did on the rows that it did not train on."""

    number: int
    recipe: Recipe
    key: Recipe = field(init=False)  # equal for candidates that differ in their seed only
    fold_epochs: np.ndarray = field(default_factory=lambda: np.zeros(1, np.int64))  # done when last assessed
    finished: bool = False  # trained to the end of its recipe
    loss: float = np.inf  # over all out-of-fold rows
    score: float = -np.inf  # mean over folds
    fold_scores: np.ndarray = field(default_factory=lambda: np.empty(0))
    fold_losses: np.ndarray = field(default_factory=lambda: np.empty(0))
    prediction: np.ndarray | None = None  # (n, n_outputs) out-of-fold; dropped for all but the best
    sample: np.ndarray | None = None  # the same on the rows kept for honest estimates, for every candidate
    train_curve: np.ndarray = field(default_factory=lambda: np.empty(0))  # (epochs,) mean over folds
    valid_curve: np.ndarray = field(default_factory=lambda: np.empty(0))
    seconds: float = 0.0
    pool: Pool | None = None  # who holds its weights; None: they are gone

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


def candidate_cost(problem: Problem, recipe: Recipe) -> float:
    """Work of one epoch of a recipe on all folds."""
    width, outputs = problem.inputs[recipe.encoding].shape[1], problem.task.n_outputs
    return sum(epoch_cost(recipe.member, len(split.train), width, outputs) for split in problem.splits)


class Pool:
    """Candidates with one encoding of the data, as one population: member u * n_folds + k is candidate u on fold k."""

    def __init__(self, problem: Problem, encoding: str, candidates: Sequence[Candidate]) -> None:
        self.problem, self.encoding, self.candidates = problem, encoding, list(candidates)
        members = [candidate.recipe.member for candidate in self.candidates for _ in problem.folds]
        self.population = Population(members, self.inputs.shape[1], problem.task.n_outputs, problem.task.loss)
        self._places = {candidate.number: place for place, candidate in enumerate(self.candidates)}
        for candidate in self.candidates:
            candidate.pool = self

    @property
    def inputs(self) -> np.ndarray:
        return self.problem.inputs[self.encoding]

    def train(
        self, until: dict[int, list[int]], threads: int | None, seed: int, stop_when: Callable[[], bool]
    ) -> list[Candidate]:
        """Train candidates (by number) until their folds have done so many epochs; those that got there come back."""
        nothing = [0] * len(self.problem.folds)
        targets = np.array([until.get(candidate.number, nothing) for candidate in self.candidates])
        self.population.fit(
            self.inputs, self.problem.targets, until=np.maximum(targets.ravel(), self.population.epochs),
            rows=self.problem.rows(len(self.candidates)), threads=threads, seed=seed, stop_when=stop_when,
        )  # fmt: skip
        status = np.array(self.population.status).reshape(targets.shape)
        ended = ((self.epochs() >= targets) | (status == "diverged")).all(axis=1)
        return [
            candidate
            for candidate, end in zip(self.candidates, ended, strict=True)
            if end and candidate.number in until
        ]

    def epochs(self) -> np.ndarray:
        """(n_candidates, n_folds) epochs that each network has done."""
        folds = len(self.problem.folds)
        return self.population.epochs[: len(self.candidates) * folds].reshape(-1, folds)

    def epochs_of(self, candidate: Candidate) -> np.ndarray:
        return np.asarray(self.epochs()[self._place(candidate)])

    def moved_on(self) -> list[Candidate]:
        """Candidates whose networks were trained after they were last assessed: their scores are of older weights."""
        return [
            candidate
            for candidate, done in zip(self.candidates, self.epochs(), strict=True)
            if (done > candidate.fold_epochs).any()
        ]

    def assess(self, candidates: Sequence[Candidate], metric: Metric, threads: int | None) -> None:
        """Predict the rows that each fold left out, and note scores: the same bits in whatever company."""
        problem, task = self.problem, self.problem.task
        places = np.array([self._place(candidate) for candidate in candidates]) * len(problem.folds)
        weight = problem.valid_weight
        total = np.zeros((len(candidates), problem.n, task.n_outputs), dtype=np.float32)
        scores = np.empty((len(candidates), len(problem.folds)))
        losses = np.empty_like(scores)
        for k, fold in enumerate(problem.folds):
            rows, inputs = problem.valid_inputs(self.encoding, k)
            raw = self.population.predict(inputs, places + k, threads=threads)
            prediction = fold.target.back(task, raw)
            y, mass, loss_weight = problem.y[rows], fold.valid[rows], fold.loss_weight[rows]
            scores[:, k] = metric.score(task, prediction, y, mass)
            losses[:, k] = weighted_mean(task.losses(prediction, y, problem.loss_scale), loss_weight)
            total[:, rows] += (prediction * (mass / weight[rows])[:, None]).astype(np.float32)
        for u, candidate in enumerate(candidates):
            self._note(candidate, total[u], scores[u], losses[u])

    def predict(self, candidate: Candidate, fold: int, inputs: np.ndarray, threads: int | None) -> np.ndarray:
        """(n, n_outputs) what a candidate's network of one fold says of any rows, encoded by that fold."""
        raw = self.population.predict(
            inputs, [self._place(candidate) * len(self.problem.folds) + fold], threads=threads
        )
        return self.problem.folds[fold].target.back(self.problem.task, raw)[0]

    def _note(self, candidate: Candidate, prediction: np.ndarray, scores: np.ndarray, losses: np.ndarray) -> None:
        problem = self.problem
        weight = problem.loss_weight
        folds = len(problem.folds)
        place = self._place(candidate) * folds
        history = self.population.history
        candidate.fold_epochs = self.epochs()[place // folds]
        candidate.finished = candidate.epochs >= candidate.target
        if not np.isfinite(prediction).all() or not np.isfinite(losses).all():
            candidate.loss, candidate.score, candidate.finished = np.inf, -np.inf, False
            candidate.fold_scores, candidate.fold_losses = np.full(folds, -np.inf), np.full(folds, np.inf)
            candidate.prediction = candidate.sample = None
            return
        scored = weight > 0  # zeros would change nothing but the order of the sum, and so its last bits
        row_losses = problem.task.losses(prediction[scored], problem.y[scored], problem.loss_scale)
        candidate.loss = float(weighted_mean(row_losses, weight[scored]))
        candidate.score = float(scores.mean())
        candidate.fold_scores, candidate.fold_losses, candidate.prediction = scores, losses, prediction
        candidate.train_curve = history.loss[place : place + folds, : candidate.epochs].mean(axis=0)
        candidate.valid_curve = history.valid_loss[place : place + folds, : candidate.epochs].mean(axis=0)

    def keep(self, candidates: Sequence[Candidate]) -> None:
        """Forget the weights of all other candidates, and the memory they took."""
        wanted = {candidate.number for candidate in candidates}
        kept = [candidate for candidate in self.candidates if candidate.number in wanted]
        if len(kept) == len(self.candidates):
            return
        for candidate in self.candidates:
            candidate.pool = self if candidate.number in wanted else None
        folds = len(self.problem.folds)
        places = np.array([self._place(candidate) for candidate in kept], dtype=np.int64)
        if len(kept):
            self.population = self.population.select((places[:, None] * folds + np.arange(folds)).ravel())
        self.candidates = kept
        self._places = {candidate.number: place for place, candidate in enumerate(kept)}

    def weights(self, candidate: Candidate, fold: int) -> list[tuple[np.ndarray, np.ndarray]]:
        return self.population.weights(self._place(candidate) * len(self.problem.folds) + fold)

    def _place(self, candidate: Candidate) -> int:
        return self._places[candidate.number]
