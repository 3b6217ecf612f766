"""Candidates: one recipe with one seed, trained on every fold; who trains them, and the log of what was trained.

A pool holds the networks of many candidates as one population. A trainer trains candidates as far as ordered: in this
process, or (see `remote`) on workers and from the journal. All give the same bits.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from shoal.executors.interface import Status
from shoal.metrics.metric import Metric
from shoal.population.members import Member
from shoal.population.population import Population
from shoal.search.problem.problem import Matrices
from shoal.search.remote.workplace import Workplace
from shoal.search.rounds.training import Assessment, Control, Workload, assess, epochs_done, new_networks, train
from shoal.search.scoring.evidence import Samples
from shoal.search.space import Recipe


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
    skip_reason: str = ""  # why nobody could train it

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


@dataclass(frozen=True, eq=False)
class Order:
    """A candidate, and the epochs that its network of each fold is to have done."""

    candidate: Candidate
    until: tuple[int, ...]
    cost: float  # of the epochs that are to be trained
    last: bool = False  # the search will order no more of it, whether its recipe ends there or not

    @staticmethod
    def of(matrices: Matrices, candidate: Candidate, until: Sequence[int], last: bool = False) -> Order:
        """A candidate that nobody holds is trained from the beginning."""
        done = np.zeros(len(until)) if candidate.pool is None else candidate.pool.epochs_of(candidate)
        epochs = float(np.maximum(np.array(until) - done, 0).mean())
        cost = candidate_cost(matrices, candidate.recipe) * epochs
        return Order(candidate, tuple(int(e) for e in until), cost, last)

    @property
    def final(self) -> bool:
        """Whether nothing is left to train after it."""
        return min(self.until) >= self.candidate.target or self.candidate.finished

    @property
    def whole(self) -> bool:
        """Whether the model may have it as it is then: all its predictions are wanted, and its networks."""
        return self.last or self.final


# ---- who trains them ----

SHARD_SECONDS = 2.0  # of training between two entries in the journal


@dataclass(frozen=True, eq=False)
class Batch:
    """Candidates with one encoding that were trained together."""

    orders: Sequence[Order]
    networks: Population | None  # None: not here; who needs them trains them again
    assessments: dict[int, Assessment]  # by place among the orders; those trained as far as asked
    seconds: float  # of training
    found: bool = False  # in the journal: nothing was trained
    skip_reason: str = ""  # why nobody could train them

    @property
    def encoding(self) -> str:
        return self.orders[0].candidate.recipe.encoding

    @property
    def candidates(self) -> list[Candidate]:
        return [order.candidate for order in self.orders]

    def hand_over(self, matrices: Matrices, samples: Samples) -> list[Candidate]:
        """Give the candidates what was found out about them; those that were assessed."""
        if self.networks is not None:
            Pool(matrices, self.encoding, self.candidates, self.networks)
        elif not self.skip_reason:
            for candidate in self.candidates:  # whatever weights it had are older than its assessment now
                candidate.pool = None
        for candidate in self.candidates:
            candidate.skip_reason = self.skip_reason
        for place, found in self.assessments.items():
            self.orders[place].candidate.note(found, samples)
        return [self.orders[place].candidate for place in self.assessments]


@dataclass
class Measured:
    """What training costs, as seen so far: seconds in one process for each unit of cost."""

    seconds: float = 0.0
    cost: float = 0.0
    recent: list[tuple[float, float]] = field(default_factory=list)

    def saw(self, cost: float, seconds: float) -> None:
        self.recent = [*self.recent[-19:], (cost, seconds)]
        self.cost, self.seconds = (sum(values) for values in zip(*self.recent, strict=True))

    @property
    def rate(self) -> float:
        """0: not known."""
        return self.seconds / self.cost if self.cost > 0 else 0.0


class Trainer(ABC):
    """Trains candidates as far as ordered."""

    status: Status | None = None  # of workers elsewhere
    workplace: Workplace | None = None  # where they are

    @abstractmethod
    def train(self, orders: Sequence[Order], control: Control, anew: bool = False) -> Generator[Batch, None, None]:
        """Batches as they are done. Whoever has heard enough closes the generator.

        `anew`: the networks are wanted; what an earlier attempt has found out without them is not enough.
        """

    def slots(self) -> int:
        """Shards that are trained at the same time."""
        return 1

    def describe(self) -> dict[str, Any]:
        """Who has trained, and what was measured on the way; nothing where it was this process."""
        return {}

    def keep(self, candidates: Sequence[Candidate]) -> None:  # noqa: B027, most keep nothing
        """The weights of all other candidates are not needed any more."""

    def close(self) -> None:  # noqa: B027, most have started nothing
        """End what was started."""


class LocalTrainer(Trainer):
    """Trains here, all candidates of an encoding as one population; in pieces of `shard_seconds`, if given."""

    def __init__(
        self,
        matrices: Matrices,
        metric: Metric | None,
        seed: int,
        threads: int | None,
        shard_seconds: float | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.matrices, self.metric, self.seed, self.threads = matrices, metric, seed, threads
        self.shard_seconds, self.measured, self.now = shard_seconds, Measured(), now

    def train(self, orders: Sequence[Order], control: Control, anew: bool = False) -> Generator[Batch, None, None]:
        for encoding in self.matrices.inputs:
            left = [order for order in orders if order.candidate.recipe.encoding == encoding]
            while left:
                mine = self._next(left)
                del left[: len(mine)]
                candidates = [order.candidate for order in mine]
                begun = self.now()
                work = Workload(
                    encoding, tuple(candidate.recipe.member for candidate in candidates),
                    np.array([order.until for order in mine]), self.seed,
                    networks_of(self.matrices, encoding, candidates),
                )  # fmt: skip
                trained = train(self.matrices, self.metric, work, self.threads, control)
                seconds = self.now() - begun
                if len(trained.assessments) == len(mine):
                    self.measured.saw(sum(order.cost for order in mine), seconds)
                yield Batch(mine, trained.networks, trained.assessments, seconds)

    def _next(self, left: Sequence[Order]) -> list[Order]:
        """All, or as many as take about so long; a few, while it is not known."""
        if self.shard_seconds is None:
            return list(left)
        goal = self.shard_seconds / self.measured.rate if self.measured.rate else FIRST_COST
        taken, cost = 0, 0.0
        for order in left:
            if taken and cost + order.cost > goal:
                break
            taken, cost = taken + 1, cost + order.cost
        return list(left[:taken])


FIRST_COST = 3e10  # of the first shard, before anything was measured: about a second of one core


# ---- the log of a round ----


class LogEntry:
    """The log of one round. `content` is what goes into the file."""

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        self.candidates = list(candidates)
        self.content: dict[str, Any] = {
            "recipes": [[candidate.recipe.encoding, candidate.recipe.member.as_dict()] for candidate in candidates],
            "rungs": [],
        }
        self._written: dict[int, list[int]] = {}  # epochs of each candidate, by its number, as last written down

    def write(self, trained: Sequence[Candidate], kept: Sequence[Candidate]) -> None:
        """A rung: who was trained and assessed, and who continues."""
        first = self.candidates[0].number
        epochs = [candidate.fold_epochs.tolist() for candidate in trained]
        self._written |= dict(zip([candidate.number for candidate in trained], epochs, strict=True))
        self.content["rungs"].append({
            "trained": [candidate.number - first for candidate in trained],
            "epochs": epochs,
            "kept": [candidate.number - first for candidate in kept],
        })  # fmt: skip

    def write_end(self, alive: Sequence[Candidate]) -> None:
        """The rung in which the round was ended early.

        Some candidates may have been trained, others be as the rung before has left them, and others be lost. All
        that matters later is who was assessed since the last rung, and whose weights are still there.
        """
        nothing: list[int] = []
        trained = [
            candidate for candidate in self.candidates
            if candidate.epochs and candidate.fold_epochs.tolist() != self._written.get(candidate.number, nothing)
        ]  # fmt: skip
        kept = [candidate for candidate in alive if candidate.epochs]
        self.write(trained, sorted(kept, key=lambda candidate: candidate.number))


def read_recipes(entry: dict[str, Any]) -> list[Recipe]:
    """The recipes of an entry."""
    return [Recipe(Member.from_dict(member), encoding) for encoding, member in entry["recipes"]]
