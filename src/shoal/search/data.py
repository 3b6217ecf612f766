"""What a search is given to learn from."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.metrics.tasks import Task
from shoal.search.dealing import blocks_in_time
from shoal.search.dependence import Note, notes_on_columns, repeated_rows
from shoal.tables.schema import Schema
from shoal.tables.table import Table

if TYPE_CHECKING:
    from shoal.search.options import SearchOptions

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
        from sklearn.utils.class_weight import compute_sample_weight

        if self.class_weight is None or self.classes is None:
            return np.ones(len(self.target))
        labels = self.classes[self.target] if self.target.ndim == 1 else self.target
        return np.asarray(compute_sample_weight(self.class_weight, labels))


def with_dependence(data: TrainingData, group_repeats: bool) -> TrainingData:
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
