"""Candidates: one recipe with one seed, trained on every fold. A pool trains many of them as one population."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from shoal.members import Member
from shoal.metrics.metric import Metric
from shoal.population import Population
from shoal.search.matrices import Matrices
from shoal.search.samples import Samples
from shoal.search.space import Recipe
from shoal.search.training import Assessment, assess, epochs_done, new_networks


@dataclass(eq=False, slots=True)
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
    sampled: bool = False  # whether `Samples` has it on the rows kept for honest estimates; not, where it diverged
    train_curve: np.ndarray = field(default_factory=lambda: np.empty(0))  # (epochs,) mean over folds
    valid_curve: np.ndarray = field(default_factory=lambda: np.empty(0))
    seconds: float = 0.0
    pool: Pool | None = None  # who holds its weights; None: nobody
    dropped: bool = False  # its weights are gone for good: it was not among the best
    set_aside: str = ""  # why nobody could train it

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

    def epochs_at(self, share: float) -> int:
        """Epochs at a rung, rounded up; at least one."""
        return max(1, math.ceil(share * self.target - 1e-9))

    @property
    def predictions_missing(self) -> bool:
        """Trained, but its predictions are not here."""
        return self.prediction is None and math.isfinite(self.loss) and self.pool is not None

    def forget(self) -> None:
        """It is not among the best: its weights and its predictions are not needed any more."""
        self.pool, self.prediction, self.dropped = None, None, True

    def note(self, found: Assessment, samples: Samples) -> None:
        """Take over an assessment; of predictions, those of some rows stay in `samples` when all are dropped."""
        self.fold_epochs, self.fold_scores = _own(found.fold_epochs), _own(found.fold_scores)
        self.fold_losses = _own(found.fold_losses)
        self.loss, self.score = found.loss, found.score
        self.prediction = None if found.prediction is None else _own(found.prediction)
        self.finished = found.ended and not found.diverged
        sample = found.sample if found.prediction is None else found.prediction[samples.rows]
        self.sampled = sample is not None
        if sample is not None:
            samples.put(self.number, sample)
        if not found.diverged:
            self.train_curve, self.valid_curve = _own(found.train_curve), _own(found.valid_curve)


def _own(array: np.ndarray) -> np.ndarray:
    """An array that is no part of a larger one: that would stay in memory as long as any candidate of its round."""
    return array if array.base is None else array.copy()


def epoch_cost(member: Member, n_rows: int, n_features: int, n_outputs: int) -> float:
    """Work of an epoch on one fold, in arbitrary units: products, updates, and what every row and batch cost anyway."""
    widths = [n_features if member.features is None else len(member.features), *member.hidden, n_outputs]
    parameters = sum((a + 1) * b for a, b in pairwise(widths))
    batches = -(-n_rows // member.batch_size)
    return n_rows * (6.0 * parameters + 60.0 * sum(widths[1:])) + batches * (20.0 * parameters + 20_000.0)


def candidate_cost(problem: Matrices, recipe: Recipe) -> float:
    """Work of one epoch of a recipe on all folds."""
    width, outputs = problem.inputs[recipe.encoding].shape[1], problem.task.n_outputs
    return sum(epoch_cost(recipe.member, len(split.train), width, outputs) for split in problem.splits)


class Pool:
    """Candidates with one encoding of the data, as one population: member c * n_folds + k is candidate c on fold k."""

    def __init__(self, problem: Matrices, encoding: str, candidates: Sequence[Candidate], networks: Population) -> None:
        self.problem, self.encoding, self.candidates = problem, encoding, list(candidates)
        self.networks = networks
        self._places = {candidate.number: place for place, candidate in enumerate(self.candidates)}
        for candidate in self.candidates:
            candidate.pool = self

    def assess(self, candidates: Sequence[Candidate], metric: Metric, samples: Samples, threads: int | None) -> None:
        """Assess candidates as they stand."""
        places = [self._place(candidate) for candidate in candidates]
        found = assess(self.problem, metric, self.encoding, self.networks, places, threads)
        for candidate, one in zip(candidates, found, strict=True):
            candidate.note(one, samples)

    def epochs(self) -> np.ndarray:
        """(n_candidates, n_folds) epochs that each network has done."""
        return epochs_done(self.networks, len(self.problem.folds))[: len(self.candidates)]

    def epochs_of(self, candidate: Candidate) -> np.ndarray:
        folds, place = len(self.problem.folds), self._place(candidate)
        return self.networks.state.epochs[place * folds : (place + 1) * folds].copy()

    def moved_on(self) -> list[Candidate]:
        """Candidates whose networks are not those that were last assessed: their scores are of other weights.

        Most were trained on since. Those that had lost their weights, and are trained again, may not be as far yet.
        """
        return [
            candidate
            for candidate, done in zip(self.candidates, self.epochs(), strict=True)
            if (done != candidate.fold_epochs).any()
        ]

    def predict(self, candidate: Candidate, fold: int, inputs: np.ndarray, threads: int | None) -> np.ndarray:
        """(n, n_outputs) predictions of one fold's network for any rows, encoded by that fold."""
        member = self._place(candidate) * len(self.problem.folds) + fold
        raw = self.networks.predict(inputs, [member], threads=threads)
        return self.problem.folds[fold].target.back(self.problem.task, raw)[0]

    def keep(self, candidates: Sequence[Candidate]) -> None:
        """Forget the weights of all other candidates, and the memory they took."""
        wanted = {candidate.number for candidate in candidates}
        kept = [candidate for candidate in self.candidates if candidate.number in wanted]
        if len(kept) == len(self.candidates):
            return
        for candidate in self.candidates:
            if candidate.number not in wanted:
                candidate.forget()
        folds = len(self.problem.folds)
        places = np.array([self._place(candidate) for candidate in kept], dtype=np.int64)
        if len(kept):
            self.networks = self.networks.select((places[:, None] * folds + np.arange(folds)).ravel())
        self.candidates = kept
        self._places = {candidate.number: place for place, candidate in enumerate(kept)}

    def weights(self, candidate: Candidate, fold: int) -> list[tuple[np.ndarray, np.ndarray]]:
        return self.networks.weights(self._place(candidate) * len(self.problem.folds) + fold)

    def members_of(self, candidate: Candidate) -> list[tuple[Population, int]]:
        """Where its networks are, fold by fold."""
        first = self._place(candidate) * len(self.problem.folds)
        return [(self.networks, first + k) for k in range(len(self.problem.folds))]

    def _place(self, candidate: Candidate) -> int:
        return self._places[candidate.number]


def networks_of(problem: Matrices, encoding: str, candidates: Sequence[Candidate]) -> Population | None:
    """The networks of candidates as one population, new ones for those that have none; None: none of them has any."""
    pools = {id(candidate.pool): candidate.pool for candidate in candidates if candidate.pool is not None}
    if not pools:
        return None
    if len(pools) == 1:
        (pool,) = pools.values()
        if pool.candidates == list(candidates):
            return pool.networks
    found: list[tuple[Population, int]] = []
    for candidate in candidates:
        if candidate.pool is not None:
            found += candidate.pool.members_of(candidate)
        else:
            fresh = new_networks(problem, encoding, [candidate.recipe.member])
            found += [(fresh, k) for k in range(len(problem.folds))]
    return Population.gather(found)


def pools_of(candidates: Sequence[Candidate]) -> list[Pool]:
    """Who holds the weights of these candidates."""
    return list({id(one.pool): one.pool for one in candidates if one.pool is not None}.values())


def with_new_seed(recipe: Recipe, seeds: Sequence[Candidate]) -> Recipe:
    """The same recipe with a seed that none of these candidates of it has."""
    seed = max(candidate.recipe.member.seed for candidate in seeds) + 1
    return Recipe(recipe.member.replace(seed=seed if seed < 1 << 62 else 0), recipe.encoding)
