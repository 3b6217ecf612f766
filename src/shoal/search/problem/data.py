"""The data that a search is given."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import _check_sample_weight

from shoal.errors import UserError
from shoal.metrics.tasks import CLASSIFICATION, MULTILABEL, REGRESSION, Task
from shoal.search.problem.column_notes import notes_on_columns
from shoal.search.problem.dealing import blocks_in_time
from shoal.search.problem.dependence import Note, repeated_rows
from shoal.search.problem.roles import Roles
from shoal.tables.schema import Schema
from shoal.tables.table import Table
from shoal.tables.target import plain_name, refuse_extreme, target_array, target_name

if TYPE_CHECKING:
    from shoal.search.options import SearchOptions

FEWEST_WEIGHTED_ROWS = 2
ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")  # in the words for an object: another one in each process


@dataclass(frozen=True, eq=False)
class TrainingData:
    """A table with its target, weights and groups, checked."""

    task: Task
    schema: Schema
    table: Table  # with the columns of the schema
    target: np.ndarray  # class numbers (n,), or values (n, n_outputs)
    weight: np.ndarray  # (n,) of the rows
    groups: np.ndarray | None = None  # (n,) of the rows: those of one group stay in one fold
    classes: np.ndarray | None = None  # names of the classes
    class_weight: Any = None  # None, "balanced", or a dict by class
    X: Any = None  # as it was given, for splitters
    given: Table | None = None  # as a table, before the schema took out columns
    target_name: str = "y"
    one_column: bool = True  # whether y had one dimension
    time: np.ndarray | None = None  # (n,) ranks of the rows: folds are scored on later rows than they train on
    notes: tuple[Note, ...] = ()  # on rows that depend on each other

    @property
    def units(self) -> np.ndarray | None:
        """(n,) what belongs together where scores are resampled: groups, or stretches of time. None: each row alone."""
        return self.groups if self.time is None else blocks_in_time(self.time)

    def take(self, rows: np.ndarray) -> TrainingData:
        """Some of the rows. Splitters see them as a table then."""
        table = self.table.take(rows)
        groups, time = (None if values is None else values[rows] for values in (self.groups, self.time))
        return replace(
            self, table=table, target=self.target[rows], weight=self.weight[rows], X=table, groups=groups, time=time
        )

    def class_weights(self) -> np.ndarray:
        """(n,) the weight that the class of each row has in training and in losses."""
        if self.class_weight is None or self.classes is None:
            return np.ones(len(self.target))
        labels = self.classes[self.target] if self.target.ndim == 1 else self.target
        return np.asarray(compute_sample_weight(self.class_weight, labels))


def training_data(
    table: Table,
    y: Any,
    kind: str,
    *,
    roles: Roles,
    schema: Schema,
    name: str | None = None,
    group_repeats: bool = True,
    class_weight: Any = None,
) -> TrainingData:
    """A table and its target, checked.

    kind           classification (or multilabel, if y has 0/1 columns) or regression
    roles          how rows count, and which belong together
    name           of the target, where y has none
    group_repeats  rows that are copies of each other stay in one fold
    """
    called, plain = target_name(y, name), plain_name(y, name)
    y = target_array(y, len(table), called)
    if kind == CLASSIFICATION:
        task, target, classes = classes_of(y)
    else:
        (task, target), classes = numbers_of(y, called), None
    weight = _check_sample_weight(roles.weight, np.empty((len(table), 0)), ensure_non_negative=True)
    used = int((weight > 0).sum())
    if used < FEWEST_WEIGHTED_ROWS:
        raise UserError(
            f"a search needs at least {FEWEST_WEIGHTED_ROWS} rows with a weight above zero; got n_samples={used}"
        )
    if classes is not None:
        refuse_one_class(task, target, weight, classes)
    data = TrainingData(
        task, schema, schema.check(table), target, weight, roles.groups, classes, class_weight, table, table,
        plain or "y", y.ndim == 1, roles.time,
    )  # fmt: skip
    return _with_dependence(data, group_repeats) if roles.ours else data


def _with_dependence(data: TrainingData, group_repeats: bool) -> TrainingData:
    """The same with notes on rows that depend on each other; repeated rows are groups then, unless told otherwise."""
    found = repeated_rows(data.table, data.task, data.target) if group_repeats else None
    given = data.table if data.given is None else data.given
    notes = notes_on_columns(data.table, data.schema, data.task, data.target, given)
    if found is None:
        return replace(data, notes=tuple(notes))
    groups, note = found
    return replace(data, groups=groups, notes=(note, *notes))


def search_digest(data: TrainingData, options: SearchOptions) -> str:
    """A hash of what a search is given: the time that it took and what its clock decided is not another's."""
    digest = hashlib.sha256()
    for piece in _pieces(data, options):
        digest.update(hashlib.sha256(piece).digest())
    return digest.hexdigest()[:16]


def _pieces(data: TrainingData, options: SearchOptions) -> Iterator[bytes]:
    described = [options.fingerprint(), data.task, data.table.names, data.classes, data.class_weight]
    yield ADDRESS.sub("", repr(described)).encode()
    for array in (*data.table.columns, data.target, data.weight, data.groups, data.time):
        column = np.asarray(array)
        yield repr(column.tolist()).encode() if column.dtype == object else np.ascontiguousarray(column).tobytes()


# ---- targets ----


def classes_of(y: Any) -> tuple[Task, np.ndarray, np.ndarray]:
    """The task, class numbers (n,) or labels (n, n_labels), and the classes, of `target_array`'s result.

    >>> task, target, classes = classes_of(np.array(["no", "yes", "no"]))
    >>> task.n_outputs, target.tolist(), classes.tolist()
    (2, [0, 1, 0], ['no', 'yes'])
    """
    if y.dtype == object and len({isinstance(cell, str) for cell in y.ravel()}) > 1:
        other = next(cell for cell in y.ravel() if not isinstance(cell, str))
        raise UserError(f"classes must be all strings or none; y has strings, and {other!r}: give [str(c) for c in y]")
    check_classification_targets(y)
    if type_of_target(y) == "multilabel-indicator":
        return Task(MULTILABEL, y.shape[1]), np.asarray(y, dtype=np.float32), np.arange(y.shape[1])
    if y.ndim != 1:
        raise UserError(f"y has the shape {y.shape}: give one class per row, or a 0/1 column for each label")
    classes, target = np.unique(y, return_inverse=True)
    return Task(CLASSIFICATION, len(classes)), target.astype(np.int64), classes


def numbers_of(y: Any, name: str) -> tuple[Task, np.ndarray]:
    """The task, and numbers (n, n_outputs) float64; `name` is that of the target in errors."""
    if np.asarray(y).dtype.kind in "mM":
        raise UserError(f"numbers are needed to predict numbers; the {name} holds dates or times: give days or seconds")
    try:
        values = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
    except (TypeError, ValueError):
        raise UserError(f"numbers are needed to predict numbers; the {name} holds others: use a classifier") from None
    refuse_extreme(values, name)
    return Task(REGRESSION, values.shape[1]), values


def refuse_one_class(task: Task, target: np.ndarray, weight: np.ndarray, classes: np.ndarray) -> None:
    """Raise where all rows with a weight are of one class."""
    if task.kind == CLASSIFICATION and len(np.unique(target[weight > 0])) < 2:
        raise UserError(f"a classifier needs at least 2 classes; the target has 1 class: {classes[target[0]]!s}")
