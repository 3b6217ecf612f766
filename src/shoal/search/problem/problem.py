"""Data, folds and encoders as the matrices that a population trains on.

Each fold has encoders of its own, fitted on its training rows alone, so each fold has a matrix of its own.

Equal rows are one row with the sum of their weights. So a weight of two is the same as the row twice, to the bit, and
the result does not depend on the order of the rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from shoal.encoders.encoder import ENCODINGS, MOST_NUMBERS, Encoder
from shoal.encoders.target import TargetScaling
from shoal.errors import UserError
from shoal.metrics.metric import Metric
from shoal.metrics.tasks import CLASSIFICATION, REGRESSION, Task
from shoal.population.rows import Rows, Split
from shoal.search.problem.data import TrainingData
from shoal.search.problem.dealing import FORWARD_FOLDS, Pair, deal_forward, deal_groups
from shoal.tables.schema import Schema
from shoal.tables.table import Table


@dataclass(frozen=True, eq=False)
class Fold:
    """Weights of the distinct rows in training and in validation, and the scaling fitted on the training rows."""

    train: np.ndarray  # (n,)
    valid: np.ndarray  # (n,) in scores
    loss_weight: np.ndarray  # (n,) in losses, where classes may be weighted
    target: TargetScaling


@dataclass(frozen=True, eq=False)
class Matrices:
    """All that training and scoring need to know of the data. It can be sent to a worker (see `payloads`)."""

    task: Task
    y: np.ndarray  # (n,) class numbers or (n, n_outputs), of the distinct rows
    folds: tuple[Fold, ...]
    inputs: dict[str, np.ndarray]  # encoding -> (n_folds * n, width) float32
    targets: np.ndarray  # as y, for each row of the inputs
    splits: tuple[Split, ...]

    @property
    def n(self) -> int:
        return len(self.y)

    @property
    def n_rows(self) -> int:
        """Training rows of the largest fold."""
        return max(len(split.train) for split in self.splits)

    @cached_property
    def valid_weight(self) -> np.ndarray:
        """(n,) how often each distinct row is scored, over all folds."""
        return np.asarray(sum(fold.valid for fold in self.folds))

    @cached_property
    def loss_weight(self) -> np.ndarray:
        """(n,) how much each distinct row counts in losses, over all folds."""
        return np.asarray(sum(fold.loss_weight for fold in self.folds))

    @cached_property
    def loss_scale(self) -> np.ndarray | float:
        """What errors are divided by in losses: the spread of the target, so that outputs count alike."""
        if self.task.kind != REGRESSION:
            return 1.0
        return TargetScaling.fit(self.task, self.y, self.valid_weight + 1e-300).scale

    def rows(self, n_candidates: int) -> Rows:
        """Rows of a population with every candidate on every fold; folds vary fastest."""
        return Rows(self.splits, np.tile(np.arange(len(self.splits)), n_candidates))

    def valid_inputs(self, encoding: str, fold: int) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of the rows that a fold is scored on, and their inputs."""
        rows = self.splits[fold].valid
        return rows - fold * self.n, self.inputs[encoding][rows]


LARGEST_INPUTS = 2 << 30  # bytes; an encoding beyond it is left out
STEPS_OF_DEFAULT = 2_000  # steps of batches of 32 that the longest default recipe is trained for


@dataclass(frozen=True, eq=False)
class Problem(Matrices):
    """All that a search needs to know of the data: the matrices, and how they were made."""

    schema: Schema
    encoders: tuple[Encoder, ...]  # of each fold, fitted on its training rows
    row_of: np.ndarray  # (rows as given,) -> distinct row

    @cached_property
    def first_of(self) -> np.ndarray:
        """(n,) the first of the rows as given that are this distinct row."""
        return np.unique(self.row_of, return_index=True)[1]


def make_problem(
    data: TrainingData, pairs: Sequence[Pair], encodings: Sequence[str] = ENCODINGS, needed: Container[str] = ()
) -> Problem:
    """The data in these folds. `encodings` of numbers that are made, where they are not too large; all `needed` ones.

    Weights of rows count everywhere; those of classes in training and in losses, but not in scores.
    """
    first, row_of = distinct_rows(data.table, data.target)
    table, targets = data.table.take(first), data.target[first]
    n, weight = len(first), data.weight
    both = weight * data.class_weights()
    weights = [
        (
            np.bincount(row_of[train], both[train], n),
            np.bincount(row_of[valid], weight[valid], n),
            np.bincount(row_of[valid], both[valid], n),
        )
        for train, valid in pairs
    ]
    _check_folds(weights)
    scored = np.unique(np.concatenate([valid for _, valid in pairs]))
    task = replace(data.task, label_noise=1 / (_rows_worth(np.bincount(row_of[scored], weight[scored], n)) + 2))
    trains = [train for train, _, _ in weights]
    goals = _tree_targets(task, targets, trains) if "steps" in encodings else None
    encoders = Encoder.fit_many(data.schema, table, trains, goals)
    folds = tuple(
        Fold(train, valid, loss_weight, TargetScaling.fit(task, targets, train))
        for train, valid, loss_weight in weights
    )
    splits = tuple(_split(fold, k * n) for k, fold in enumerate(folds))
    stacked = np.concatenate([fold.target.forward(task, targets) for fold in folds])
    inputs = _stack(table, encoders, encodings, needed)
    return Problem(task, targets, folds, inputs, stacked, splits, data.schema, tuple(encoders), row_of)


def _tree_targets(task: Task, y: np.ndarray, weights: Sequence[np.ndarray]) -> list[np.ndarray]:
    """(n, outputs) for each fold: 0 and 1, or numbers, which have one unit if they are several."""
    if task.kind == CLASSIFICATION:
        y = y[:, None] == np.arange(task.n_outputs)
    target = np.asarray(y, dtype=np.float64)
    if task.kind != REGRESSION or task.n_outputs == 1:
        return [target] * len(weights)
    return [target / TargetScaling.fit(task, target, weight).scale for weight in weights]


def distinct_rows(table: Table, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First occurrences of the distinct rows, in an order that depends on the rows alone; and the row of each.

    >>> first, row_of = distinct_rows(Table.of([[1.0], [2.0], [1.0]]), np.array([0, 0, 0]))
    >>> len(first), bool(row_of[0] == row_of[2])
    (2, True)
    """
    key = _mix(_cells(table, y), len(y))
    order = np.argsort(key, kind="stable")
    ranked = key[order]
    new = np.ones(len(order), dtype=bool)
    new[1:] = ranked[1:] != ranked[:-1]
    alike = np.flatnonzero(~new)  # as the row before, by the hash: mostly, but not surely, the same row
    if len(alike):
        for column in _cells(table, y):
            new[alike] |= column[order[alike]] != column[order[alike - 1]]
    row_of = np.empty(len(order), dtype=np.int64)
    row_of[order] = np.cumsum(new) - 1
    return order[new], row_of


def _cells(table: Table, y: np.ndarray) -> Iterator[np.ndarray]:
    """Every column and the target as numbers that are equal where cells are; one at a time, since tables are long."""
    targets = y.reshape(len(y), -1).T
    for j in range(len(table.names) + len(targets)):
        found = table.code(j) if j < len(table.names) else targets[j - len(table.names)]
        yield np.asarray(found, dtype=np.float64) + 0.0  # -0.0 becomes 0.0; no number is NaN


def _mix(columns: Iterable[np.ndarray], rows: int) -> np.ndarray:
    """A hash of each row."""
    key = np.full(rows, 0x9E3779B97F4A7C15, dtype=np.uint64)
    for column in columns:
        key = (key ^ column.view(np.uint64)) * np.uint64(0xBF58476D1CE4E5B9)
        key ^= key >> np.uint64(29)
    return key


def _check_folds(weights: list[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> None:
    for k, (train, valid, _) in enumerate(weights):
        for name, weight in (("train", train), ("score", valid)):
            if not (weight > 0).any():
                raise UserError(
                    f"fold {k} has no rows to {name} on (weight zero does not count); use fewer folds or more rows"
                )


def _rows_worth(weight: np.ndarray) -> float:
    """How many rows these weights of distinct rows stand for; weights in a small unit count as one row each."""
    return max(float(weight.sum()), float(np.count_nonzero(weight)))


def _split(fold: Fold, offset: int) -> Split:
    train = np.flatnonzero(fold.train > 0)
    weight = fold.train[train]
    weight = weight / weight.mean()
    return Split(train + offset, np.flatnonzero(fold.valid > 0) + offset, np.maximum(weight, 1e-20))


def _stack(
    table: Table, encoders: Sequence[Encoder], encodings: Sequence[str], needed: Container[str]
) -> dict[str, np.ndarray]:
    """One tall matrix per encoding; folds may differ in width (in categories seen), so narrower ones get zeros."""
    wide = len(encoders[0].number_names) > MOST_NUMBERS  # too few bins each to be worth their time
    wanted = ENCODINGS[:1] if wide else encodings
    inputs: dict[str, np.ndarray] = {}
    for name in wanted:
        width = max(encoder.width(name) for encoder in encoders)
        too_large = name != "plain" and 4 * width * len(table) * len(encoders) > LARGEST_INPUTS
        if name not in needed and (too_large or not any(encoder.has(name) for encoder in encoders)):
            continue
        inputs[name] = np.zeros((len(encoders) * len(table), max(width, 1)), dtype=np.float32)
    for k, encoder in enumerate(encoders):
        rows = slice(k * len(table), (k + 1) * len(table))
        encoder.write(table, {name: tall[rows, : encoder.width(name)] for name, tall in inputs.items()})
    return inputs


def make_folds(
    cv: Any,
    task: Task,
    X: Any,
    y: np.ndarray,
    groups: Any,
    seed: int | None,
    usual: tuple[int | None, int] = (None, 1),
    time: np.ndarray | None = None,
) -> tuple[list[Pair], str]:
    """Pairs of training and validation rows from a splitter, a number, pairs, or None; and a name for them.

    `usual`: the number of folds, and how often rows are dealt into them, where that is ours to choose (cv=None).
    With `time` of each row, folds are scored on rows later than those that they train on.
    """
    from sklearn.model_selection import RepeatedKFold, RepeatedStratifiedKFold

    if isinstance(cv, (str, bytes, float, bool)):
        raise UserError(
            f"cv must be a number of folds, a splitter of scikit-learn, or pairs of row numbers; got {cv!r}"
        )

    n, (folds, repeats) = len(y), usual
    if isinstance(X, (dict, Table)):  # splitters look at nothing but the number of rows
        X = np.empty((n, 0))
    if cv is None or (isinstance(cv, (int, np.integer)) and not isinstance(cv, bool)):
        k = int(cv) if cv is not None else folds or default_folds(n)
        common: dict[str, Any] = {"n_repeats": repeats if cv is None else 1, "random_state": seed}
        words = f", {repeats} times" if common["n_repeats"] > 1 else ""
        if k < 2:
            raise UserError(f"cv must be at least 2 folds; got {cv!r}")
        if time is not None:
            pairs = deal_forward(k if cv is not None else min(k, FORWARD_FOLDS), time)
            return pairs, f"{len(pairs)}-fold forward in time"
        if cv is not None:
            _refuse_too_many(k, task, y, groups)
        if groups is not None:
            pairs, name = _by_group(k, task, y, groups, seed, common["n_repeats"])
            return pairs, name + words
        if task.kind == CLASSIFICATION:
            k = min(k, int(np.bincount(y).max()))
            if k >= 2:
                splitter = RepeatedStratifiedKFold(n_splits=k, **common)
                with warnings.catch_warnings():  # of a class rarer than the folds: it is missing from some of them
                    warnings.simplefilter("ignore", UserWarning)
                    return _pairs(splitter, X, y, groups), f"stratified {k}-fold{words}"
        k = max(2, min(k, n))
        return _pairs(RepeatedKFold(n_splits=k, **common), X, y, groups), f"{k}-fold{words}"
    name = type(cv).__name__ if hasattr(cv, "split") else "given folds"
    return _pairs(cv, X, y, groups), name


def _refuse_too_many(k: int, task: Task, y: np.ndarray, groups: Any) -> None:
    """Folds that were asked for: none may be empty, and none may lack every class."""
    if groups is not None:
        most, what = len(np.unique(np.asarray(groups))), "groups"
    elif task.kind == CLASSIFICATION and int(np.bincount(y).max()) > 1:
        most, what = int(np.bincount(y).max()), "rows in the largest class"
    else:
        most, what = len(y), "rows"
    if k > most >= 2:
        raise UserError(f"{k} folds are too many: there are {most} {what}; give at most {most} folds")


def _by_group(k: int, task: Task, y: np.ndarray, groups: Any, seed: int | None, repeats: int) -> tuple[list[Pair], str]:
    """Folds that leave no group on both sides."""
    different, codes = np.unique(np.asarray(groups), return_inverse=True)
    k = min(k, len(different))
    if k < 2:
        raise UserError("groups must name at least 2 different groups, or nothing could be held out; got 1")
    classes = task.kind == CLASSIFICATION
    name = f"{'stratified ' * classes}{k}-fold by groups"
    return deal_groups(k, codes, y if classes else None, seed, repeats), name


def evenly(rows: np.ndarray, most: int | None) -> np.ndarray:
    """At most so many of the rows, evenly taken; None: all. Their order is that of a hash, so they are as drawn."""
    return rows if most is None or len(rows) <= most else rows[np.linspace(0, len(rows) - 1, most).astype(np.int64)]


def default_repeats(n: int, budget: float | None, schema: Schema) -> int:
    """With time to spend on few cells: scores that hang less on how the rows were dealt out, and larger averages."""
    costly = len(schema.used) > 64 or has_texts(schema)
    return 3 if budget is not None and n <= min(1_000, 100 * budget) and not costly else 1


def folds_with_every_class(folds: int, task: Task, y: np.ndarray, metric: Metric) -> int:
    """Fewer folds where a score needs rows of each class in every fold, and a class has too few."""
    if task.kind != CLASSIFICATION or not metric.need:
        return folds
    return min(folds, max(2, int(np.bincount(y, minlength=task.n_outputs).min())))


def default_folds(n: int, schema: Schema | None = None) -> int:
    """More folds for fewer rows: what a fold leaves out hurts small tables most. Texts take long to encode."""
    few = schema is not None and has_texts(schema)
    return 8 if n <= 5_000 and not few else 5 if n <= 30_000 else 3


def default_epochs(n_rows: int) -> int:
    """Enough steps for the longest recipes, few enough for long tables."""
    return int(np.clip(STEPS_OF_DEFAULT * 32 / n_rows, 12, 100))


def has_texts(schema: Schema) -> bool:
    return any(column.kind == "text" for column in schema.used)


def _pairs(cv: Any, X: Any, y: np.ndarray, groups: Any) -> list[Pair]:
    pairs = cv.split(X, y, groups) if hasattr(cv, "split") else cv
    found = [(np.asarray(train), np.asarray(valid)) for train, valid in pairs]
    if not found:
        raise UserError("cv gave no folds; give a splitter, a number of folds, or pairs of row numbers")
    return [tuple(np.flatnonzero(part) if part.dtype == bool else part for part in pair) for pair in found]  # type: ignore[misc]


def group_of_rows(groups: Any, problem: Problem) -> np.ndarray | None:
    """(n,) a number for each distinct row's group, or None."""
    if groups is None:
        return None
    _, codes = np.unique(np.asarray(groups), return_inverse=True)
    of_row = np.zeros(problem.n, dtype=np.int64)
    of_row[problem.row_of] = codes
    return of_row
