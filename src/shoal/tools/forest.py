"""A random forest of networks: each sees a bootstrap sample of the rows and a random part of the columns."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal.errors import UserError
from shoal.metrics.metric import METRICS
from shoal.metrics.tasks import CLASSIFICATION, REGRESSION
from shoal.models import checks
from shoal.models.model import CELLS_AT_ONCE, FoldTransforms, Model, Part, bare
from shoal.population.members import Member
from shoal.population.memory import refuse_too_many
from shoal.population.population import Population
from shoal.population.rows import Split
from shoal.search.options import seed_of, threads_of
from shoal.tools.estimators import ToolClassifier, ToolEstimator, ToolRegressor
from shoal.tools.prepared import ToolData, check_scheduled_recipes, epochs_of, prepare
from shoal.validate import number, one_of, whole, yes_or_no

MOST_ESTIMATORS = 10_000_000
ROWS_AT_ONCE = 1 << 24  # rows of all bags that are held at a time; networks are trained in parts below it
BYTES_EACH = 3000  # of a network: its recipe, and what the model knows of it. Weights may lie in a temporary file
SHARES = ("sqrt", "log2")
DEFAULT = (Member(hidden=(32, 16), learning_rate=0.02, schedule="cosine", weight_decay=1e-4),)


class _ShoalForest(ToolEstimator):
    """What both forests share. Constructors only store; `fit` checks.

    Parameters
    ----------
    n_estimators : int, default 1000
        Networks.
    member : Member or list of Member, optional
        The recipe of each network, a `shoal.Member`, or a list of them that networks take in turn; None: a good
        default. Its seed and columns are drawn here.
    max_features : int, float or str, default 0.8
        Columns of the table that a network sees: a number, a share (0.7), "sqrt", "log2", or None for all.
    max_samples : int or float, optional
        Rows drawn for each bootstrap sample: a number, a share, or None for as many as there are; equal rows count as
        one here.
    bootstrap : bool, default True
        Rows are drawn with replacement; False: each network sees all.
    oob_score : bool, optional
        Score each row by the networks that did not see it; None: wherever there are bootstrap samples.
    epochs : int, optional
        Of each network whose recipe does not say it; None: by the number of rows.
    n_jobs : int, optional
        Threads; None: all cores. The bits do not depend on it.
    random_state : int or RandomState, default 0
        The same number gives the same bits.
    kinds : dict of str, optional
        What columns are, where that should not be guessed: {"zip": "category"}.

    Attributes
    ----------
    oob_score_ : float
        Accuracy or R2 on rows outside the bootstrap samples.
    estimators_features_ : list of arrays
        Columns of the table that each network sees.
    n_networks_, schema_, model_ : int, Schema, Model
        Number of networks; what each column is; the model.

    Notes
    -----
    Equal rows are one row with the sum of their weights, so a row is never out of a bag that has its twin.
    """

    model_kind = "forest"  # see `shoal.models.saving`
    oob_name: str  # of the out-of-bag predictions

    def __init__(
        self,
        n_estimators: int = 1000,
        *,
        member: Any = None,
        max_features: Any = 0.8,
        max_samples: Any = None,
        bootstrap: bool = True,
        oob_score: bool | None = None,
        epochs: int | None = None,
        n_jobs: int | None = None,
        random_state: Any = 0,
        kinds: Any = None,
    ) -> None:
        self.n_estimators = n_estimators
        self.member = member
        self.max_features = max_features
        self.max_samples = max_samples
        self.bootstrap = bootstrap
        self.oob_score = oob_score
        self.epochs = epochs
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.kinds = kinds

    def _fit(self, X: Any, y: Any, sample_weight: Any, kind: str) -> Any:
        count = whole("n_estimators", self.n_estimators, 1, MOST_ESTIMATORS)
        refuse_too_many("n_estimators", count, BYTES_EACH)
        scored = self._scored()
        data = prepare(self, X, y, sample_weight, kind=kind, kinds=self.kinds)
        drawing = _Bags.of(self, data)
        oob = _OutOfBag(data)
        networks = Population.blank(
            [bare(member) for member in drawing.members(range(count))], data.inputs.shape[1], data.task.n_outputs,
            data.task.loss,
        )  # fmt: skip
        finite = np.ones(count, dtype=bool)
        for numbers in drawing.parts(count):
            start, bags = numbers.start, [drawing.rows(k) for k in numbers]
            trained = self._train(data, drawing.members(numbers), bags, drawing.seed)
            finite[start : numbers.stop] = [status != "diverged" for status in trained.status]
            first = int(networks.layout.offsets[start])
            networks.state.parameters[first : first + len(trained.state.parameters)] = trained.state.parameters
            if scored:
                oob.add(trained, bags, finite[start:], threads_of(self.n_jobs))
        self._publish(data, networks, finite, drawing)
        if scored:
            self._publish_score(data, oob)
        return self

    def _scored(self) -> bool:
        bootstrap = yes_or_no("bootstrap", self.bootstrap)
        scored = bootstrap if self.oob_score is None else yes_or_no("oob_score", self.oob_score)
        if scored and not bootstrap:
            raise UserError("oob_score=True needs bootstrap=True: without samples every network has seen every row")
        return scored

    def _train(self, data: ToolData, members: list[Member], bags: Sequence[Split], seed: int) -> Population:
        epochs = max(member.epochs or 1 for member in members)
        rows = [Split(bag.train, weight=bag.weight) for bag in bags]  # nobody looks at scores of epochs
        return data.trained(members, data.inputs, epochs, rows=rows, threads=threads_of(self.n_jobs), seed=seed)

    def _publish(self, data: ToolData, networks: Population, finite: np.ndarray, drawing: _Bags) -> None:
        if not finite.any():
            raise UserError("every network diverged; give a member with a smaller learning rate, or clip=1")
        kept = np.flatnonzero(finite)
        networks = networks if finite.all() else networks.select(kept)
        parts = tuple(
            Part(int(k), str(member), "plain", member, 1 / len(kept))
            for k, member in zip(kept, networks.members, strict=True)
        )
        transforms = FoldTransforms(data.encoder, data.scaling)
        self._publish_model(data, Model(data.task, data.schema, (transforms,), parts, {"plain": networks}))
        self.n_networks_ = len(kept)
        self.estimators_features_ = [drawing.columns(int(k)) for k in kept]

    def _publish_score(self, data: ToolData, oob: _OutOfBag) -> None:
        prediction, known = oob.prediction()
        if not known.all():
            warnings.warn(
                f"{int((~known).sum())} of {len(known)} rows are in every bag and have no out-of-bag prediction (NaN); "
                "a larger n_estimators, or a smaller max_samples, gives them one",
                UserWarning,
                stacklevel=4,
            )
        metric = METRICS["r2" if data.task.kind == REGRESSION else "accuracy"]
        score = np.nan
        if known.any():
            score = float(metric.score(data.task, prediction[known], data.y[known], data.weight[known]))
        self.oob_score_ = score
        there = data.row_of >= 0
        found = np.where(there[:, None], prediction[data.row_of], np.nan)
        setattr(self, self.oob_name, found[:, 0] if getattr(self, "one_column_", False) else found)

    @staticmethod
    def restored(name: str, value: Any) -> Any:
        """A fitted attribute as a file has it."""
        if name == "estimators_features_":
            return [np.array(columns, dtype=np.int64) for columns in value]
        return checks.WORDS.get(value, value) if isinstance(value, str) else value


@dataclass(frozen=True, eq=False)
class _Bags:
    """The bags of a forest. That of network k depends on the seed and k, not on how many there are."""

    data: ToolData
    recipes: list[Member]
    seed: int
    width: int  # columns of each network
    draws: int  # rows of each bootstrap sample; 0: all rows, as they are

    @staticmethod
    def of(forest: _ShoalForest, data: ToolData) -> _Bags:
        recipes = check_scheduled_recipes(forest.member, DEFAULT, epochs_of(forest.epochs, data.n))
        width = _share("max_features", forest.max_features, len(data.usable), SHARES)
        draws = _share("max_samples", forest.max_samples, data.n)
        return _Bags(data, recipes, seed_of(forest.random_state), width, draws if forest.bootstrap else 0)

    def columns(self, k: int) -> np.ndarray:
        """Columns of the table that network k sees."""
        usable = self.data.usable
        if self.width >= len(usable):
            return usable
        return np.sort(np.random.default_rng([self.seed, k, 1]).choice(usable, self.width, replace=False))

    def members(self, which: Sequence[int] | range) -> list[Member]:
        seeds = [int(np.random.default_rng([self.seed, k]).integers(1 << 31)) for k in which]
        recipes = [self.recipes[k % len(self.recipes)] for k in which]
        return [
            recipe.replace(seed=seed, features=self.data.features(self.columns(k)))
            for k, seed, recipe in zip(which, seeds, recipes, strict=True)
        ]

    def rows(self, k: int) -> Split:
        """The training rows of network k with their weights; to be scored on: the others."""
        n, weight = self.data.n, self.data.weight
        if not self.draws:
            return self.data.all_rows
        generator = np.random.default_rng([self.seed, k, 2])
        if np.ptp(weight) == 0:
            times = np.bincount(generator.integers(n, size=self.draws), minlength=n)
        else:
            times = generator.multinomial(self.draws, weight / weight.sum())
        return Split(np.flatnonzero(times), np.flatnonzero(times == 0), times[times > 0])

    def parts(self, count: int) -> Iterator[range]:
        """The numbers of networks whose bags fit into memory together."""
        step = max(1, ROWS_AT_ONCE // self.data.n)
        for start in range(0, count, step):
            yield range(start, min(start + step, count))


class _OutOfBag:
    """The mean prediction for each row of the networks that have not seen it."""

    def __init__(self, data: ToolData) -> None:
        self.data = data
        self.total = np.zeros((data.n, data.task.n_outputs))
        self.count = np.zeros(data.n, dtype=np.int64)

    def add(self, networks: Population, bags: Sequence[Split], finite: np.ndarray, threads: int) -> None:
        task, step = self.data.task, max(1, CELLS_AT_ONCE // self.total.size)
        for start in range(0, len(bags), step):
            which = np.arange(start, min(start + step, len(bags)))
            found = self.data.scaling.back(task, networks.predict(self.data.inputs, which, threads=threads))
            for k, prediction in zip(which.tolist(), found, strict=True):  # one by one: no sum depends on the parts
                if finite[k]:
                    rows = bags[k].valid
                    self.total[rows] += prediction[rows]
                    self.count[rows] += 1

    def prediction(self) -> tuple[np.ndarray, np.ndarray]:
        """(n, n_outputs), NaN where every network has seen a row; and which rows have one."""
        known = self.count > 0
        mean = np.full_like(self.total, np.nan)
        mean[known] = self.total[known] / self.count[known, None]
        if self.data.task.kind == CLASSIFICATION:
            mean[known] /= mean[known].sum(axis=1, keepdims=True)
        return mean, known


def _share(name: str, value: Any, total: int, words: Sequence[str] = ()) -> int:
    """How many of `total` a number, a share or a word stands for; None: all.

    >>> _share("max_features", 0.5, 9), _share("max_features", "sqrt", 9, SHARES), _share("max_samples", None, 9)
    (5, 3, 9)
    """
    if value is None or total == 0:
        return total
    if isinstance(value, str) and words:
        word = one_of(name, value, words)
        return max(1, int({"sqrt": math.sqrt, "log2": math.log2}[word](total)))
    if isinstance(value, (float, np.floating)):
        return max(1, math.ceil(number(name, value, above=0, most=1, what="a share") * total - 1e-9))
    return whole(name, value, 1, total, otherwise=", or a share above 0 and at most 1.0")


class ShoalForestClassifier(ToolClassifier, _ShoalForest):
    """A random forest of networks for classification: the mean of their probabilities.

    `oob_decision_function_` has the out-of-bag probabilities of the training rows.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> forest = ShoalForestClassifier(50).fit(*load_iris(return_X_y=True))
    >>> forest.oob_score_ > 0.9
    True
    """

    __doc__ += "\n" + _ShoalForest.__doc__.partition("\n")[2]  # type: ignore[union-attr]
    oob_name = "oob_decision_function_"


class ShoalForestRegressor(ToolRegressor, _ShoalForest):
    """A random forest of networks that predicts numbers, one or several at once: the mean of theirs.

    `oob_prediction_` has the out-of-bag predictions of the training rows.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(100, 3))
    >>> forest = ShoalForestRegressor(50).fit(X, X.sum(axis=1))
    >>> forest.predict(X).shape, forest.oob_prediction_.shape
    ((100,), (100,))
    """

    __doc__ += "\n" + _ShoalForest.__doc__.partition("\n")[2]  # type: ignore[union-attr]
    oob_name = "oob_prediction_"
