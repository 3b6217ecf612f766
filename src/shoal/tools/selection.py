"""Selects columns: thousands of networks with random masks on the columns are scored on rows that they have not seen.
A column is important if the score is better with it than without it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import t as student
from sklearn.feature_selection import SelectorMixin
from sklearn.utils._indexing import _safe_indexing
from sklearn.utils.validation import check_is_fitted, validate_data

from shoal.errors import UserError
from shoal.machine import available_memory, size_text
from shoal.metrics.tasks import CLASSIFICATION, weighted_mean
from shoal.population.members import Member
from shoal.population.population import Population
from shoal.population.rows import Split, cross
from shoal.search.options import seed_of, threads_of
from shoal.search.table_estimators import CardOfFitted
from shoal.tables.inputs import has_names, named_columns
from shoal.tools.prepared import ToolData, check_scheduled_recipes, check_task, epochs_of, folds_of, prepare
from shoal.validate import number, whole

DEFAULT = (Member(hidden=(16,), learning_rate=0.02, schedule="cosine", weight_decay=1e-4),)
MOST_MASKS = 10_000_000
DEFAULT_MASKS = 2048
FIRST_BLOCKS = 4  # of masks; doubled until the intervals are as narrow as they get
NETWORKS_AT_ONCE = 4096  # that are trained as one population; more take more memory
GROUPS = 8  # of blocks, from whose differences the masks' part of an error is estimated
ENOUGH = 1 / 3  # of the rows' part of the error; more masks could then narrow an interval by 5% at most


class FeatureSelector(SelectorMixin, CardOfFitted):
    """Select the columns without which networks predict rows that they have not seen worse.

    Each network sees a random half of the columns, and a shuffled copy in the place of each of the others. The
    importance of a column is how much lower the loss of held-out rows is if one averages the networks that see it, and
    not those that do not; its interval says how far that could be an accident of these rows. A column is selected
    where the whole interval is above zero.

    Parameters
    ----------
    level : float, default 0.05
        How often a column of noise may be selected; intervals are of 1 - level.
    max_masks : int, optional
        Different masks, each on every fold; None: by the number of columns. Fewer are drawn where more would not
        narrow the intervals.
    member : Member or list of Member, optional
        The recipe of each network, a `shoal.Member`, or a list of them that masks take in turn.
    cv : int, splitter or iterable of pairs, optional
        Folds: a number, any scikit-learn splitter, or pairs of row numbers; None: 5, fewer if the largest class has
        fewer rows. A number must not be larger than that; rows that repeat count once.
    task : str, optional
        "classification" or "regression"; None: as y looks.
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
    importances_ : array of shape (n_columns,)
        Differences of log-loss, or of squared error as a share of the target's variance.
    intervals_ : array of shape (n_columns, 2)
        Their intervals.
    support_ : array of bool
        Which columns are selected.
    masks_error_ : array
        The part of each standard error that more masks would lower.
    n_masks_, n_networks_ : int
        How many there were.
    stopped_ : str
        Why no more masks were drawn.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(300, 5))
    >>> selector = FeatureSelector().fit(X, X[:, 1] - X[:, 3])
    >>> selector.get_support().tolist()
    [False, True, False, True, False]
    """

    def __init__(
        self,
        *,
        level: float = 0.05,
        max_masks: int | None = None,
        member: Any = None,
        cv: Any = None,
        task: str | None = None,
        epochs: int | None = None,
        n_jobs: int | None = None,
        random_state: Any = 0,
        kinds: Any = None,
    ) -> None:
        self.level = level
        self.max_masks = max_masks
        self.member = member
        self.cv = cv
        self.task = task
        self.epochs = epochs
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.kinds = kinds

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> FeatureSelector:
        """Find out which columns matter.

        Parameters
        ----------
        X : array, frame, dict of columns, or list of rows
            The inputs, (n_rows, n_columns).
        y : array of shape (n_rows,)
            Classes or numbers.
        sample_weight : array of shape (n_rows,), optional
            How much rows count.

        Returns
        -------
        self
        """
        level = number("level", self.level, above=0, below=1)
        data = prepare(self, X, y, sample_weight, kind=check_task(self.task), kinds=self.kinds)
        study = _Study.of(self, data)
        most = self._most_blocks(study.block)
        study.refuse_large()
        effects = _Effects.empty(data, np.unique(np.concatenate([split.valid for split in study.splits])))
        self.stopped_ = f"{most * study.block} masks were tried, as many as max_masks allows"
        blocks = 0
        while blocks < most:
            more = range(blocks, min(most, max(FIRST_BLOCKS, 2 * blocks)))
            for group, masks, predictions in study.losses(more):
                effects.add(group, masks, predictions)
                del predictions  # before the next ones are made
            blocks = more.stop
            if effects.precise():
                self.stopped_ = "more masks would narrow no interval by more than 5%"
                break
        self._publish(data, effects, level)
        self.n_masks_, self.n_networks_ = blocks * study.block, blocks * study.block * len(study.splits)
        return self

    def _most_blocks(self, block: int) -> int:
        """How many blocks of masks there may be."""
        needed = FIRST_BLOCKS * block
        if self.max_masks is None:
            return max(DEFAULT_MASKS, needed) // block
        most = whole("max_masks", self.max_masks, 1, MOST_MASKS)
        if most < needed:
            raise UserError(f"max_masks must be at least {needed} for so many columns; got {most}")
        return most // block

    def _publish(self, data: ToolData, effects: _Effects, level: float) -> None:
        width = student.ppf(1 - level / 2, len(effects.scored) - 1)
        mean, rows, masks = effects.estimate()
        error = np.sqrt(rows**2 + masks**2)
        self.importances_, self.masks_error_ = np.zeros(len(data.columns)), np.zeros(len(data.columns))
        self.intervals_ = np.zeros((len(data.columns), 2))
        self.importances_[data.usable], self.masks_error_[data.usable] = mean, masks
        self.intervals_[data.usable] = np.column_stack([mean - width * error, mean + width * error])
        self.support_ = self.intervals_[:, 0] > 0

    def _get_support_mask(self) -> np.ndarray:
        check_is_fitted(self)
        return self.support_

    def transform(self, X: Any) -> Any:
        """The selected columns.

        Parameters
        ----------
        X : array or frame of shape (n_rows, n_columns)
            New rows.

        Returns
        -------
        array or frame of shape (n_rows, n_selected)
            Of a frame a frame, of all else an array.
        """
        X = named_columns(X)
        if has_names(X) and hasattr(X, "columns"):
            check_is_fitted(self)
            validate_data(self, X, reset=False, skip_check_array=True)
            return _safe_indexing(X, self.support_, axis=1)
        return super().transform(X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = False
        tags.target_tags.required = True
        return tags


@dataclass(frozen=True, eq=False)
class _Study:
    """Masks, and the networks that see through them.

    Masks come in blocks in which every column is there in half of the masks, and in half of those with any other
    column, and without it (rows of a Hadamard matrix and their opposites): no column takes credit for another.

    What a mask hides is not left out but shuffled, so all networks are of one size. Larger ones are more certain, and
    where a table is easy that alone lowers the loss: columns of noise would seem to be worth having.
    """

    data: ToolData
    inputs: np.ndarray  # the columns, then all of them shuffled
    recipes: list[Member]
    splits: list[Split]
    block: int  # masks
    seed: int
    threads: int

    @staticmethod
    def of(selector: FeatureSelector, data: ToolData) -> _Study:
        seed = seed_of(selector.random_state)
        recipes = check_scheduled_recipes(selector.member, DEFAULT, epochs_of(selector.epochs, data.n))
        block = max(16, 2 << len(data.usable).bit_length())
        inputs = with_shuffled(data, seed)
        folds = folds_of(data, selector.cv, seed)
        return _Study(data, inputs, recipes, folds, block, seed, threads_of(selector.n_jobs))

    def refuse_large(self) -> None:
        """Before hours of training: do the sums and the predictions of a block of masks fit into memory?"""
        data, free = self.data, available_memory()
        columns, kept = len(data.usable), data.n * _kept(data)
        sums = kept * (2 * GROUPS * (columns + 1) + 3 * columns)  # twice: to look at them takes a copy
        held_out = max(len(split.valid) for split in self.splits) * data.task.n_outputs
        needed = 8 * (sums + self.block * kept) + 20 * self.block * held_out  # predictions: 4 bytes, then 8, twice
        if needed > free:
            raise UserError(
                f"{columns:,} columns of {data.n:,} rows would take about {size_text(needed)}, and {size_text(free)} "
                f"of memory are free; about {free * data.n // needed:,} rows, drawn at random, would fit"
            )

    def masks(self, number: int) -> np.ndarray:
        """(masks, columns) of a block: whether a column is there. Which rows of the matrix columns take is random."""
        random, half = np.random.default_rng([self.seed, number]), self.block // 2
        signs = hadamard(half)[:, random.permutation(np.arange(1, half))[: len(self.data.usable)]]
        return np.concatenate([signs, ~signs])[random.permutation(self.block)]

    def losses(self, blocks: range) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Train blocks of masks on all folds; of each: its number, masks, and out-of-fold predictions (m, n, k).

        As far as the loss of an average needs these: of classes, the probability of the true one.
        """
        step = max(1, NETWORKS_AT_ONCE // (self.block * len(self.splits)))
        for start in range(blocks.start, blocks.stop, step):
            some = range(start, min(start + step, blocks.stop))
            masks = [self.masks(block) for block in some]
            population = self._trained(start * self.block, np.concatenate(masks))
            for place, block in enumerate(some):
                first = place * self.block * len(self.splits)
                yield block, masks[place], self._out_of_fold(population, first)

    def _trained(self, first: int, masks: np.ndarray) -> Population:
        """One network for each mask and fold; `first` is the number of the first mask."""
        members = [self._member(first + k, mask) for k, mask in enumerate(masks)]
        crossed, rows = cross(members, self.splits)
        epochs = max(recipe.epochs or 1 for recipe in self.recipes)
        return self.data.trained(crossed, self.inputs, epochs, rows=rows, threads=self.threads, seed=self.seed)

    def _member(self, k: int, mask: np.ndarray) -> Member:
        copy = self.data.blank  # where the inputs of the shuffled columns begin
        places = zip(self.data.usable, mask, strict=True)
        features = [k if kept else copy + k for column, kept in places for k in self.data.columns[column]]
        return self.recipes[k % len(self.recipes)].replace(seed=k, features=tuple(features) or (0,))

    def _out_of_fold(self, population: Population, first: int) -> np.ndarray:
        """Of one block, whose networks begin at `first`."""
        data, folds = self.data, len(self.splits)
        found = np.zeros((self.block, data.n, _kept(data)))
        times = np.zeros((data.n, 1))
        for j, split in enumerate(self.splits):
            mine = np.arange(first + j, first + self.block * folds, folds)
            raw = population.predict(self.inputs[split.valid], mine, threads=self.threads)
            prediction = data.scaling.back(data.task, raw)
            found[:, split.valid] += data.task.loss_inputs(prediction, data.y[split.valid])
            times[split.valid] += 1
        return found / np.maximum(times, 1)


def _kept(data: ToolData) -> int:
    """Numbers of a prediction that the loss of an average needs: of classes, the probability of the true one."""
    return 1 if data.task.kind == CLASSIFICATION else data.task.n_outputs


def with_shuffled(data: ToolData, seed: int) -> np.ndarray:
    """(n, inputs) the columns, then a copy of each in which its rows are shuffled.

    One copy: a column of noise and its copy are then exchangeable, whatever the networks do with them.
    """
    own, random = data.inputs[:, : data.blank], np.random.default_rng([seed, 3])
    both = np.tile(own, 2) if data.blank else np.zeros((data.n, 1), np.float32)
    for column in data.usable:
        inputs = np.array(data.columns[column])
        both[:, data.blank + inputs] = own[random.permutation(data.n)][:, inputs]
    return both


def hadamard(order: int) -> np.ndarray:
    """(order, order) truth values; any two rows agree in half of their places, and so do any two columns.

    >>> hadamard(4).astype(int).tolist()
    [[1, 1, 1, 1], [1, 0, 1, 0], [1, 1, 0, 0], [1, 0, 0, 1]]
    """
    signs = np.ones((1, 1), dtype=bool)
    while len(signs) < order:
        signs = np.block([[signs, signs], [signs, ~signs]])
    return signs


@dataclass(eq=False)
class _Effects:
    """Mean predictions for each row with and without each column: sums that do not grow with the number of masks."""

    data: ToolData
    scored: np.ndarray  # rows that some fold held out
    with_column: np.ndarray  # (groups, columns, n, k) sums of predictions whose mask has the column
    total: np.ndarray  # (groups, n, k) sums of all predictions
    count: np.ndarray  # (groups,) masks

    @staticmethod
    def empty(data: ToolData, scored: np.ndarray) -> _Effects:
        shape = (data.n, _kept(data))
        sums = np.zeros((GROUPS, len(data.usable), *shape))
        return _Effects(data, scored, sums, np.zeros((GROUPS, *shape)), np.zeros(GROUPS))

    def add(self, block: int, masks: np.ndarray, predictions: np.ndarray) -> None:
        if not np.isfinite(predictions).all():
            raise UserError("some networks diverged; give a member with a smaller learning rate, or clip=1")
        group = block % GROUPS
        self.total[group] += predictions.sum(axis=0)
        self.count[group] += len(masks)
        for j in range(masks.shape[1]):
            self.with_column[group, j] += predictions[masks[:, j]].sum(axis=0)

    def _saved(self, groups: np.ndarray) -> np.ndarray:
        """(columns, rows) loss that each column saves."""
        data, half = self.data, self.count[groups].sum() / 2
        inside, everything = self.with_column[groups].sum(axis=0), self.total[groups].sum(axis=0)
        y, scale = data.y[self.scored], data.scaling.scale
        losses = [
            data.task.losses_of_inputs(sums[:, self.scored] / half, y, scale) for sums in (everything - inside, inside)
        ]
        return losses[0] - losses[1]

    def estimate(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of each column: the loss that it saves, the standard error of it by rows, and that by masks."""
        used = np.flatnonzero(self.count)
        weight = self.data.weight[self.scored]
        saved = self._saved(used)
        mean = weighted_mean(saved, weight)
        share = weight / weight.sum()
        free = max(len(weight) - 1, 1) / len(weight)
        rows = np.sqrt((share**2 * (saved - mean[:, None]) ** 2).sum(axis=1) / free)
        without = np.array([weighted_mean(self._saved(used[used != group]), weight) for group in used])  # jackknife
        masks = np.sqrt((len(used) - 1) / len(used) * ((without - without.mean(axis=0)) ** 2).sum(axis=0))
        return mean, rows, masks

    def precise(self) -> bool:
        """Whether the masks' part of every error is small beside the rows' part."""
        _, rows, masks = self.estimate()
        return bool((masks <= ENOUGH * rows).all())
