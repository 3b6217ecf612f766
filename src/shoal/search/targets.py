"""What users give as y, as a task and the targets of networks."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets, type_of_target

from shoal.errors import UserError
from shoal.metrics.tasks import CLASSIFICATION, MULTILABEL, REGRESSION, Task
from shoal.tables.labels import refuse_extreme


def classes_of(y: Any) -> tuple[Task, np.ndarray, np.ndarray]:
    """The task, class numbers (n,) or labels (n, n_labels), and the classes, of `target_array`'s result.

    >>> task, target, classes = classes_of(np.array(["no", "yes", "no"]))
    >>> task.n_outputs, target.tolist(), classes.tolist()
    (2, [0, 1, 0], ['no', 'yes'])
    """
    check_classification_targets(y)
    if type_of_target(y) == "multilabel-indicator":
        return Task(MULTILABEL, y.shape[1]), np.asarray(y, dtype=np.float32), np.arange(y.shape[1])
    if y.ndim != 1:
        raise UserError(f"y has the shape {y.shape}: give one class per row, or a 0/1 column for each label")
    classes, target = np.unique(y, return_inverse=True)
    return Task(CLASSIFICATION, len(classes)), target.astype(np.int64), classes


def numbers_of(y: Any, name: str) -> tuple[Task, np.ndarray]:
    """The task, and numbers (n, n_outputs) float64; `name` is that of the target in errors."""
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
