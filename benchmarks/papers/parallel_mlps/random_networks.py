"""The best of a million random networks: scored as they are drawn, or with only their last layer solved."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from benchmarks.papers.parallel_mlps.dealing import deal
from shoal.console.progress import Bar
from shoal.errors import UserError
from shoal.metrics.tasks import CLASSIFICATION, MULTILABEL, REGRESSION
from shoal.population.members import Member, with_seed
from shoal.population.memory import refuse_too_many
from shoal.population.population import Population
from shoal.population.rows import Split
from shoal.search.options import seed_of, threads_of
from shoal.tools.prepared import ToolData, check_task, epochs_of, prepare
from shoal.validate import instance, whole, yes_or_no

DEFAULT = Member(hidden=(16,), activation="tanh", learning_rate=0.01)
MOST_NETWORKS = 1 << 40
NETWORKS_AT_ONCE = 20_000
CELLS_AT_ONCE = 1 << 24  # of hidden layers that are held while last layers are solved
SOLVED_AT_ONCE = 32  # networks for one thread
BYTES_EACH = 24  # of a network that is not kept: its score, and its place among the others
RIDGE = 1e-3  # of the mean square of the hidden layer
Z = 1.959964  # of a 95% interval


@dataclass(frozen=True, eq=False)
class Lottery:
    """How good random networks are. Scores are accuracy, or R2; `new` rows are those that nobody was chosen on.

    Intervals say what other networks of the recipe would do on the same rows; other rows may differ by more.
    """

    solved: bool  # whether last layers were solved
    metric: str  # accuracy or r2
    scores: np.ndarray  # (count,) float32, of every network on the rows that it is chosen on
    first_seed: int  # network k is the recipe with the seed first_seed + k
    winners: tuple[int, ...]  # numbers of the best, the best first
    sample: tuple[int, ...]  # numbers of some drawn at random
    networks: Population  # the winners, as they were scored
    new_scores: np.ndarray  # (winners + sample,) of the networks as they were scored, on new rows
    trained_scores: np.ndarray  # (winners + sample,) on new rows after training from the weights drawn; may be empty
    correlation: float  # Spearman's, over the sample: score in the lottery, score on new rows after training
    low: float  # its 95% interval
    high: float

    @property
    def best(self) -> float:
        return float(self.scores[self.winners[0]])

    @property
    def median(self) -> float:
        return float(np.median(self.scores))

    @property
    def best_on_new_rows(self) -> float:
        return float(self.new_scores[0])

    @property
    def lead(self) -> tuple[float, float, float]:
        """By how much the mean winner is ahead of the mean of the sample after training, with a 95% interval."""
        count = len(self.winners)
        return difference(self.trained_scores[:count], self.trained_scores[count:])

    def __str__(self) -> str:
        how = "last layer solved" if self.solved else "untrained"
        lines = [
            f"{len(self.scores):,} random networks, {how}: best {self.best:.3f}, median {self.median:.3f} "
            f"({self.metric}); the best on new rows {self.best_on_new_rows:.3f}"
        ]
        if len(self.trained_scores):
            lead, low, high = self.lead
            lines.append(
                f"after training: rank correlation {self.correlation:.2f} ({self.low:.2f} to {self.high:.2f}); the "
                f"best {len(self.winners)} are ahead by {lead:+.4f} ({low:+.4f} to {high:+.4f})"
            )
        return "\n".join(lines)


@dataclass(frozen=True)
class LotteryOptions:
    """Keyword arguments of `lottery`. Those without a comment are as in `shoal.FeatureSelector`."""

    count: int = 1_000_000  # networks
    member: Member | None = None  # the recipe of all of them
    solve: bool = False  # solve the last layer of each in closed form (ridge regression on its last hidden layer)
    trained: int = 1000  # networks drawn at random that are trained, to see whether the winners stay ahead; 0: none
    keep: int = 100  # winners that are kept; neither of the two is more than `count`
    max_rows: int | None = 1000  # rows of each kind (to solve, to choose) that are used at most; None: all
    task: str | None = None
    epochs: int | None = None  # of training; None: by the number of rows
    n_jobs: int | None = None
    random_state: Any = 0
    kinds: Any = None
    verbose: bool = False


def lottery(X: Any, y: Any, **options: Any) -> Lottery:
    """Draw networks of one recipe that differ in their seed, and score all of them without training.

    `options`: see `LotteryOptions`. Networks are drawn and scored in parts, so a million of them take little memory,
    and what a part is changes no bit.

    >>> X = np.random.default_rng(0).normal(size=(200, 4))
    >>> found = lottery(X, X[:, 0] > X[:, 1], count=2000, trained=0)
    >>> found.best > found.median
    True
    """
    given = LotteryOptions(**options)
    count = whole("count", given.count, 1, MOST_NETWORKS)
    refuse_too_many("count", count, BYTES_EACH)
    keep = min(whole("keep", given.keep, 1, MOST_NETWORKS), count)
    sampled = min(whole("trained", given.trained, 0, MOST_NETWORKS), count)
    recipe = DEFAULT if given.member is None else instance("member", given.member, Member)
    if yes_or_no("solve", given.solve) and not recipe.hidden:
        raise UserError("solve=True needs a hidden layer, which the solved layer sees; hidden=() has none")
    data = prepare(_Holder(), X, y, kind=check_task(given.task), kinds=given.kinds)
    seed, threads = seed_of(given.random_state), threads_of(given.n_jobs)
    draw = _Draw.of(data, recipe, given.solve, seed, given.max_rows, threads)
    scores = draw.all_scores(count, given.verbose)
    winners = np.argsort(-scores, kind="stable")[:keep]
    chosen = np.random.default_rng([seed, 1]).choice(count, sampled, replace=False) if sampled else np.empty(0, int)
    both = np.concatenate([winners, chosen])
    after = draw.trained(both, epochs_of(given.epochs, len(draw.train))) if sampled else np.empty(0)
    ranked = correlation(scores[chosen], after[keep:]) if sampled else (math.nan,) * 3
    metric = "r2" if data.task.kind == REGRESSION else "accuracy"
    return Lottery(
        given.solve, metric, scores, draw.first, tuple(winners.tolist()), tuple(chosen.tolist()),
        draw.networks(winners), draw.scores_on(draw.new, both), after, *ranked,
    )  # fmt: skip


class _Holder(BaseEstimator):
    """Takes the place of an estimator where there is none."""


_Holder.__name__ = "lottery"  # in errors


@dataclass(frozen=True, eq=False)
class _Draw:
    """Random networks of one recipe, and the rows that they are solved, chosen and judged on."""

    data: ToolData
    inputs: np.ndarray
    recipe: Member
    solve: bool
    first: int
    threads: int
    train: np.ndarray  # rows
    choose: np.ndarray
    new: np.ndarray

    @staticmethod
    def of(data: ToolData, recipe: Member, solve: bool, seed: int, max_rows: int | None, threads: int) -> _Draw:
        most = data.n if max_rows is None else whole("max_rows", max_rows, 10)
        random = np.random.default_rng([seed, 0])
        train, choose, new = deal(data, seed)
        if not solve:  # nothing is fitted to any row, so all of these are to choose on
            choose = np.concatenate([train, choose])
        inputs = np.ascontiguousarray(data.inputs[:, : max(data.blank, 1)])
        train, choose = (np.sort(random.permutation(rows)[:most]) for rows in (train, choose))
        first = int(random.integers(1 << 62))
        return _Draw(data, inputs, recipe, solve, first, threads, train, choose, new)

    def population(self, which: np.ndarray | range, outputs: int | None = None, **changes: Any) -> Population:
        recipe = self.recipe.replace(**changes) if changes else self.recipe
        members = [with_seed(recipe, self.first + int(k)) for k in which]
        task = self.data.task
        if outputs is not None:
            return Population(members, self.inputs.shape[1], outputs, "mse")
        return Population(members, self.inputs.shape[1], task.n_outputs, task.loss)

    def all_scores(self, count: int, verbose: bool) -> np.ndarray:
        """On the rows to choose on."""
        scores = np.empty(count, dtype=np.float32)
        bar = Bar(count, title="networks", amount="count", clock="left", show=verbose)
        bar.start()
        try:
            for start in range(0, count, self._step):
                which = range(start, min(start + self._step, count))
                scores[start : which.stop] = self._scores(self.choose, which)
                bar.update(which.stop)
        finally:
            bar.stop()
        return scores

    def scores_on(self, rows: np.ndarray, which: np.ndarray) -> np.ndarray:
        parts = [which[start : start + self._step] for start in range(0, len(which), self._step)]
        return np.concatenate([self._scores(rows, part) for part in parts])

    @property
    def _step(self) -> int:
        """Networks of one part."""
        if not self.solve:
            return NETWORKS_AT_ONCE
        rows = len(self.train) + max(len(self.choose), len(self.new))
        return min(NETWORKS_AT_ONCE, max(1, CELLS_AT_ONCE // (rows * self.recipe.hidden[-1])))

    def _scores(self, rows: np.ndarray, which: np.ndarray | range) -> np.ndarray:
        if not self.solve:
            population = self.population(which, optimizer="sgd", momentum=0.0, patience=0)
            found = population.evaluate(self.inputs[rows], self.data.target[rows], threads=self.threads).score
            return np.nan_to_num(found, nan=-np.inf)
        target = self.data.target[rows]

        def use(hidden: np.ndarray, last: np.ndarray) -> np.ndarray:
            return self._quality(np.matmul(hidden, last[:, :-1]) + last[:, -1:], target)

        return np.concatenate(self._solved(which, rows, use))

    def _quality(self, raw: np.ndarray, target: np.ndarray) -> np.ndarray:
        """(m,) accuracy or R2 of solved outputs (m, n, k)."""
        kind = self.data.task.kind
        if kind == CLASSIFICATION:
            return np.asarray((raw.argmax(axis=-1) == target).mean(axis=-1))
        if kind == MULTILABEL:
            return np.asarray(((raw > 0) == (target > 0.5)).mean(axis=(-1, -2)))
        spread = ((target - target.mean(axis=0)) ** 2).mean()  # of all values at once, as in `Population.evaluate`
        errors = ((raw - target) ** 2).mean(axis=(-1, -2))
        return np.asarray(1 - errors / np.maximum(spread, 1e-30))

    def _solved(
        self, which: np.ndarray | range, rows: np.ndarray, use: Callable[[np.ndarray, np.ndarray], np.ndarray]
    ) -> list[np.ndarray]:
        """What `use` makes of hidden layers (m, n, h) of `rows` and of last layers (m, h + 1, k), of a few networks.

        Threads take whole networks, and the library for matrices has one thread in each: its sums never differ.
        """
        from threadpoolctl import threadpool_limits

        body = self.bodies(which)
        fitted = body.predict(self.inputs[self.train], threads=self.threads)
        there = body.predict(self.inputs[rows], threads=self.threads)
        truth = self._truth(self.train)
        parts = [slice(k, min(k + SOLVED_AT_ONCE, len(which))) for k in range(0, len(which), SOLVED_AT_ONCE)]
        with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(self.threads) as pool:
            return list(pool.map(lambda part: use(there[part], ridge(fitted[part], truth)), parts))

    def bodies(self, which: np.ndarray | range) -> Population:
        """The networks without their last layer: outputs are the last hidden layer."""
        width = self.recipe.hidden[-1]
        body = self.population(which, width, optimizer="sgd", momentum=0.0, patience=0, label_smoothing=0.0)
        size = int(body.layout.sizes[0])
        last = (width + 1) * width
        count = int(body.layout.counts[0])
        identity = np.concatenate([np.eye(width), np.zeros((1, width))]).ravel()
        body.state.parameters.reshape(len(body), size)[:, count - last : count] = identity
        return body

    def _truth(self, rows: np.ndarray) -> np.ndarray:
        """(n, k) what last layers are solved for: a one for the class, a sign for each label, or the values."""
        if self.data.task.kind == CLASSIFICATION:
            return np.eye(self.data.task.n_outputs, dtype=np.float32)[self.data.target[rows]]
        if self.data.task.kind == MULTILABEL:  # above zero is yes, as for outputs that were trained
            return np.asarray(2 * self.data.target[rows] - 1)
        return np.asarray(self.data.target[rows])

    def networks(self, which: np.ndarray) -> Population:
        """These, as they were scored."""
        population = self.population(which, patience=0)
        if self.solve:
            layers = np.concatenate(self._solved(which, self.new[:1], lambda hidden, last: last))
            for k, solved in enumerate(layers):
                population.set_weights(k, [*population.weights(k)[:-1], (solved[:-1], solved[-1])])
        return population

    def trained(self, which: np.ndarray, epochs: int) -> np.ndarray:
        """Scores on new rows after training from the weights that were drawn."""
        population = self.population(which, patience=0)
        rows = Split(self.train, self.new)
        history = population.fit(self.inputs, self.data.target, epochs, rows=rows, threads=self.threads)
        return np.nan_to_num(history.last("valid_score"), nan=-np.inf)


def ridge(hidden: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """(m, h + 1, k) last layers, the last row the bias, that fit hidden layers (m, n, h) to truth (n, k) best."""
    hidden = hidden.astype(np.float64)
    centre, middle = hidden.mean(axis=1, keepdims=True), truth.mean(axis=0)
    hidden -= centre
    square = np.matmul(hidden.transpose(0, 2, 1), hidden)
    penalty = RIDGE * np.trace(square, axis1=1, axis2=2) / square.shape[1] + 1e-12
    square += penalty[:, None, None] * np.eye(square.shape[1])
    weight = np.linalg.solve(square, np.matmul(hidden.transpose(0, 2, 1), truth - middle))
    return np.concatenate([weight, middle - np.matmul(centre, weight)], axis=1)


def correlation(one: np.ndarray, other: np.ndarray) -> tuple[float, float, float]:
    """Spearman's rank correlation with a 95% interval (Fisher's transform; Bonett and Wright's variance).

    >>> value, low, high = correlation(np.arange(100.0), np.arange(100.0) ** 3)
    >>> round(value, 6), round(low, 2)
    (1.0, 1.0)
    """
    from scipy.stats import spearmanr

    if len(one) < 4 or (one == one[0]).all() or (other == other[0]).all():
        return math.nan, math.nan, math.nan
    found = float(spearmanr(one, other).statistic)
    middle = math.atanh(min(max(found, -1 + 1e-12), 1 - 1e-12))
    width = Z * math.sqrt((1 + found**2 / 2) / (len(one) - 3))
    return found, math.tanh(middle - width), math.tanh(middle + width)


def difference(one: np.ndarray, other: np.ndarray) -> tuple[float, float, float]:
    """The difference of two means with a 95% interval; NaN where some network diverged.

    >>> [round(value, 3) for value in difference(np.array([1.0, 3.0]), np.array([0.0, 0.0]))]
    [2.0, 0.04, 3.96]
    """
    if len(one) < 2 or len(other) < 2 or not (np.isfinite(one).all() and np.isfinite(other).all()):
        return math.nan, math.nan, math.nan
    middle = float(np.mean(one) - np.mean(other))
    width = Z * math.sqrt(np.var(one, ddof=1) / len(one) + np.var(other, ddof=1) / len(other))
    return middle, middle - width, middle + width
