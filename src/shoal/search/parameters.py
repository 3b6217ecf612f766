"""The options of a search as parameters of scikit-learn estimators: their names, threads and seeds."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np

from shoal.errors import UserError
from shoal.machine import MOST_THREADS, thread_count
from shoal.options import options_of
from shoal.search.options import SearchOptions

SCIKIT_LEARN_NAMES = {"folds": "cv", "threads": "n_jobs", "seed": "random_state"}  # where they are not ours
NO_PARAMETERS = ("task",)  # the class of the estimator says it


def parameter_names() -> dict[str, str]:
    """The parameter of an estimator for each option that has one."""
    return {name: SCIKIT_LEARN_NAMES.get(name, name) for name in options_of(SearchOptions) if name not in NO_PARAMETERS}


def as_parameters(options: SearchOptions) -> dict[str, Any]:
    """Options as an estimator takes them."""
    return {parameter: getattr(options, name) for name, parameter in parameter_names().items()}


def options_of_estimator(estimator: Any) -> SearchOptions:
    """The parameters of an estimator, checked."""
    given = {name: getattr(estimator, parameter) for name, parameter in parameter_names().items()}
    known = {"threads": threads_of(estimator.n_jobs), "seed": seed_of(estimator.random_state)}
    return SearchOptions(**given | known)


def threads_of(n_jobs: int | None) -> int:
    """None: what SHOAL_THREADS says, or all cores; -1: all cores, -2: all but one, and so on."""
    if n_jobs is None:
        return thread_count()
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, Integral) or n_jobs == 0 or n_jobs > MOST_THREADS:
        raise UserError(
            f"n_jobs must be a number of threads from 1 to {MOST_THREADS}, -1 (all cores) or below, or None; got "
            f"{n_jobs!r}"
        )
    return int(n_jobs) if n_jobs > 0 else max(1, thread_count() + 1 + int(n_jobs))


def seed_of(random_state: Any) -> int:
    from sklearn.utils import check_random_state

    if isinstance(random_state, Integral) and not isinstance(random_state, bool) and 0 <= int(random_state) < 1 << 32:
        return int(random_state)
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))
