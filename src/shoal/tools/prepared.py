"""A table and its target as the matrices that a tool's networks are trained on."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import _check_sample_weight

from shoal.encoders.encoder import Encoder
from shoal.encoders.target import TargetScaling
from shoal.errors import UserError
from shoal.metrics.tasks import CLASSIFICATION, REGRESSION, Task
from shoal.population.members import Member
from shoal.population.population import Population
from shoal.population.rows import Split
from shoal.search.problem.data import classes_of, numbers_of, refuse_one_class
from shoal.search.problem.dependence import repeated_rows
from shoal.search.problem.problem import default_epochs, distinct_rows, make_folds
from shoal.search.results.explaining import background_rows
from shoal.tables.inputs import training_table
from shoal.tables.schema import Schema
from shoal.tables.table import Table
from shoal.tables.target import ALWAYS_FEW, FEW_SHARE, FEW_VALUES, target_array, target_name
from shoal.validate import instance, one_of, whole

TASKS = (CLASSIFICATION, REGRESSION)


@dataclass(frozen=True, eq=False)
class ToolData:
    """The distinct rows of a table: equal ones are one row with the sum of their weights.

    The encoding of columns and the scale of the target come from all rows given, since thousands of networks,
    each with its own rows, cannot each have its own encoder.
    """

    task: Task
    classes: np.ndarray | None
    schema: Schema
    encoder: Encoder
    scaling: TargetScaling
    inputs: np.ndarray  # (n, width) float32
    blank: int  # the number of an input that is always zero, for networks that are to see no column
    y: np.ndarray  # (n,) class numbers, or (n, n_outputs) values
    target: np.ndarray  # the same, as networks are trained on it
    weight: np.ndarray  # (n,) above zero
    row_of: np.ndarray  # (rows as given,) -> distinct row; -1 where the weight is zero
    given_y: np.ndarray  # of the rows as given
    given_weight: np.ndarray
    one_column: bool  # whether y was one column, so that predictions are
    columns: tuple[tuple[int, ...], ...]  # inputs of each column of the table; none where it is not used
    background: Table  # some of the rows, to explain others with

    @property
    def n(self) -> int:
        return len(self.inputs)

    @property
    def usable(self) -> np.ndarray:
        """Columns of the table that networks can see."""
        return np.array([j for j, inputs in enumerate(self.columns) if inputs], dtype=np.int64)

    @property
    def all_rows(self) -> Split:
        return Split(np.arange(self.n), weight=relative(self.weight))

    def trained(self, members: Sequence[Member], inputs: np.ndarray, epochs: int, **options: Any) -> Population:
        """A population of these members, trained on the target; `options` of `Population.fit`."""
        population = Population(members, inputs.shape[1], self.task.n_outputs, self.task.loss)
        population.fit(inputs, self.target, epochs, **options)
        return population

    def features(self, columns: Sequence[int] | np.ndarray) -> tuple[int, ...]:
        """Inputs of some columns of the table; the blank one where there are none."""
        return tuple(sorted(k for j in columns for k in self.columns[j])) or (self.blank,)


def prepare(
    estimator: Any, X: Any, y: Any, sample_weight: Any = None, *, kind: str | None = None, kinds: Any = None
) -> ToolData:
    """What was given, checked. `kind`: classification or regression; None: as y looks.

    `estimator` gets what scikit-learn's estimators know of their columns (`n_features_in_`, `feature_names_in_`).
    """
    if y is None:
        raise UserError(f"{type(estimator).__name__} requires y to be passed, but the target y is None")
    table, plain = training_table(estimator, X)
    values, name = target_array(y, len(table), target_name(y, None)), target_name(y, None)
    classes = None
    if (kind or kind_of(values)) == REGRESSION:
        task, target = numbers_of(values, name)
    else:
        task, target, classes = classes_of(values)
    weight = _check_sample_weight(sample_weight, np.empty((len(table), 0)), ensure_non_negative=True)
    used = np.flatnonzero(weight > 0)
    if len(used) < 2:
        raise UserError(f"at least 2 rows with a weight above zero are needed; got n_samples={len(used)}")
    if classes is not None:
        refuse_one_class(task, target, weight, classes)
    schema = Schema.of(table, plain=plain, kinds=kinds)
    table = schema.check(table)
    first, row_of = distinct_rows(table, target)
    total = np.bincount(row_of, weight, len(first))
    kept = total > 0
    number = np.where(kept, np.cumsum(kept) - 1, -1)
    table, given, target, total = table.take(first[kept]), target, target[first[kept]], total[kept]
    if (copies := repeated_rows(table, task, target)) is not None:
        warnings.warn(
            f"{copies[1].found}; scores on held-out rows are too high, since copies of them are trained on: remove "
            "the copies first",
            UserWarning,
            stacklevel=3,
        )
    encoder = Encoder.fit(schema, table, total)
    scaling = TargetScaling.fit(task, target, total)
    inputs = np.zeros((len(total), encoder.width("plain") + 1), dtype=np.float32)
    encoder.write(table, {"plain": inputs[:, :-1]})
    return ToolData(
        task, classes, schema, encoder, scaling, inputs, inputs.shape[1] - 1, target, scaling.forward(task, target),
        total, number[row_of], given, weight, values.ndim == 1, input_columns(encoder),
        background_rows(table, total, 0),
    )  # fmt: skip


FOLDS = 5  # where the user does not say how many


def folds_of(data: ToolData, cv: Any, seed: int) -> list[Split]:
    """Folds of the distinct rows: a number of them, or those of a splitter or of pairs, for the rows as given."""
    weight = relative(data.weight)
    if cv is None or isinstance(cv, Integral):
        pairs, _ = make_folds(cv, data.task, data.inputs, data.y, None, seed, (FOLDS, 1))
        return [Split(train, valid, weight[train]) for train, valid in pairs]
    pairs, _ = make_folds(cv, data.task, np.empty((len(data.given_y), 0)), data.given_y, None, seed)
    splits = []
    for train, valid in pairs:
        for rows in (train, valid):
            if len(rows) and not (rows.min() >= 0 and rows.max() < len(data.row_of)):
                raise UserError(
                    f"folds must name rows from 0 to {len(data.row_of) - 1}; got {rows.min()} to {rows.max()}"
                )
        both = np.intersect1d(train, valid)
        if len(both):
            raise UserError(f"a fold must not be scored on rows that it is trained on; row {both[0]} is in both parts")
        mine = train[data.given_weight[train] > 0]
        weight = np.bincount(data.row_of[mine], data.given_weight[mine], data.n)
        scored = np.unique(data.row_of[valid][data.given_weight[valid] > 0])
        if not len(mine) or not len(scored):
            raise UserError("each fold needs rows to train on and rows to score, with a weight above zero")
        rows = np.flatnonzero(weight)
        splits.append(Split(rows, scored, relative(weight[rows])))
    return splits


def input_columns(encoder: Encoder) -> tuple[tuple[int, ...], ...]:
    """Which inputs of "plain" come from each column of the schema.

    >>> from shoal.tables.table import Table
    >>> table = Table.of({"size": [1.0, 2.0, None, 4.0], "colour": ["red", "blue", "red", "green"]})
    >>> input_columns(Encoder.fit(Schema.of(table), table, np.ones(4)))
    ((0, 1), (2, 3, 4))
    """
    at, found = 0, dict[str, list[int]]()
    for of in ("number_names", "input_names"):
        for name, part in encoder.columns.items():
            count = len(getattr(part, of)(name))
            found.setdefault(name, []).extend(range(at, at + count))
            at += count
    return tuple(tuple(found.get(column.name, ())) for column in encoder.schema.columns)


def kind_of(y: np.ndarray) -> str:
    """Classification for words, truth values and a few whole numbers, regression for all other numbers.

    >>> kind_of(np.array([0.5, 1.5])), kind_of(np.array(["a", "b"])), kind_of(np.arange(99)), kind_of(np.arange(99) % 3)
    ('regression', 'classification', 'regression', 'classification')
    """
    if y.dtype.kind not in "iuf":
        return CLASSIFICATION
    if y.ndim > 1:
        return CLASSIFICATION if type_of_target(y) == "multilabel-indicator" else REGRESSION
    different = len(np.unique(y))
    few = different <= FEW_VALUES and different <= max(FEW_SHARE * len(y), ALWAYS_FEW)
    return CLASSIFICATION if few and (y == np.floor(y)).all() else REGRESSION


def check_task(task: Any) -> str | None:
    return None if task is None else one_of("task", task, TASKS)


def relative(weight: np.ndarray) -> np.ndarray:
    """Weights with a mean of one, none of which is zero."""
    return np.maximum(weight / weight.mean(), 1e-20)


def epochs_of(epochs: int | None, n_rows: int) -> int:
    return default_epochs(n_rows) if epochs is None else whole("epochs", epochs, 1, 1 << 30)


def check_scheduled_recipes(member: Any, default: Sequence[Member], epochs: int) -> list[Member]:
    """`check_recipes` for networks that are all trained to their last epoch."""
    recipes = check_recipes(member, default)
    if any(recipe.patience for recipe in recipes):  # its best epoch would be chosen on the rows that score it
        raise UserError("no rows are held out to choose an epoch, so a member here has no patience; set epochs")
    return [recipe.replace(epochs=recipe.epochs or epochs) for recipe in recipes]


def check_recipes(member: Any, default: Sequence[Member]) -> list[Member]:
    """A member, or a list of them that networks take in turn; None: the default."""
    if member is None:
        return list(default)
    found = [member] if isinstance(member, Member) else list(instance("member", member, (list, tuple)))
    if not found:
        raise UserError("member must be a shoal.Member or a list of them; got an empty list")
    for recipe in found:
        instance("member", recipe, Member)
        if recipe.features is not None:
            raise UserError("a member's features are chosen here, at random; remove them from its recipe")
    return found
