"""Metrics by name: Shoal's own, and any of scikit-learn's."""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.errors import UserError
from shoal.metrics.metric import ALIASES, METRICS, Metric
from shoal.metrics.tasks import REGRESSION, Task
from shoal.validate import nearest


def find_metric(name: Any, task: Task, classes: np.ndarray | None = None) -> Metric:
    """The metric of that name; by default accuracy or R2, like `score` of scikit-learn's estimators.

    `name` may also be any of scikit-learn's names, a scorer, or a function of (estimator, X, y). Scorers and functions
    get the original `classes`, not class numbers.
    """
    if name is None:
        return METRICS["r2" if task.kind == REGRESSION else "accuracy"]
    fitting = [metric.name for metric in METRICS.values() if task.kind in metric.kinds]
    known = fitting + [alias for alias, meant in ALIASES.items() if meant in fitting]
    if not isinstance(name, str) or name not in known:
        from shoal.metrics.scorers import find_scorer, scorer_names

        found = find_scorer(name, task, classes)
        if found is not None:
            return found
        raise UserError(
            f"scoring must be one of {', '.join(fitting)} for {task.kind}, or another name of scikit-learn's "
            f"scorers for it; got {name!r}{nearest(name, [*known, *scorer_names(task)])}"
        )
    return METRICS[ALIASES.get(name, name)]
