"""What a search is given to learn from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shoal.metrics.tasks import Task
from shoal.tables.schema import Schema
from shoal.tables.table import Table


@dataclass(frozen=True, eq=False)
class TrainingData:
    """A table with its target, weights and groups, checked."""

    task: Task
    schema: Schema
    table: Table  # with the columns of the schema
    target: np.ndarray  # class numbers (n,), or values (n, n_outputs)
    weight: np.ndarray  # (n,) of the rows
    groups: Any = None  # of the rows, for splitters
    classes: np.ndarray | None = None  # names of the classes
    class_weight: Any = None  # None, "balanced", or a dict by class
    X: Any = None  # as it was given, for splitters
    given: Table | None = None  # as a table, before the schema took out columns
    target_name: str = "y"

    def take(self, rows: np.ndarray) -> TrainingData:
        """Some of the rows. Splitters see them as a table then."""
        table = self.table.take(rows)
        return replace(self, table=table, target=self.target[rows], weight=self.weight[rows], X=table)

    def class_weights(self) -> np.ndarray:
        """(n,) the weight that the class of each row has in training and in losses."""
        from sklearn.utils.class_weight import compute_sample_weight

        if self.class_weight is None or self.classes is None:
            return np.ones(len(self.target))
        labels = self.classes[self.target] if self.target.ndim == 1 else self.target
        return np.asarray(compute_sample_weight(self.class_weight, labels))
