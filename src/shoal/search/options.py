"""The options of a search, each in one place (see `shoal.options`).

A new one is a field here, a field of the same name and default in `shoal.search.estimators` (scikit-learn reads its
constructors), and its use. The command line and settings.json have it then. Where scikit-learn has its own name,
estimators and their errors use that one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np

from shoal.errors import UserError
from shoal.executors.find import KINDS, find_workers
from shoal.explain.results import explain_seconds_option
from shoal.machine import MOST_THREADS, thread_count
from shoal.options import Options, option, options_of
from shoal.search.strategies import strategies_of_default_space
from shoal.tables.target import TASKS

DRAWING = strategies_of_default_space()  # the command line has no space and no objects
LARGEST_SEED = (1 << 32) - 1
DEFAULT_RECIPES = 100
ENSEMBLE, COMPACT, BEST = MODELS = ("ensemble", "compact", "best")
SCIKIT_LEARN_NAMES = {"folds": "cv", "threads": "n_jobs", "seed": "random_state"}
SCORING = (
    "Score to rank by. For classes accuracy (default), balanced_accuracy, roc_auc, f1, f1_macro, neg_log_loss or "
    "neg_brier_score; for numbers r2 (default), neg_mean_squared_error or neg_mean_absolute_error; or another name "
    "that scikit-learn has (sklearn.metrics.get_scorer_names)."
)
MODEL = (
    "What to deliver: ensemble, the weighted average of the best recipes; compact, the fewest networks whose loss is "
    "within one standard error of that; best, the best recipe alone."
)


def _when_to_refit(name: str, value: Any) -> bool | str:
    if value == "auto" or value in (True, False):
        return value if value == "auto" else bool(value)
    raise UserError(f"{name} must be True, False or 'auto'; got {value!r}")


@dataclass(frozen=True)
class SearchOptions(Options):
    """Options of a search, in the order of the help of `shoal search`. `ShoalClassifier` says more about each one."""

    task: str | None = option(None, "classification or regression. (default: guessed)", one_of=TASKS)
    budget: float | None = option(
        None, "Seconds to use. (default: 60)", above=0, what="a number of seconds", metavar="SECONDS"
    )
    recipes: int | None = option(None, "Number of recipes to try, however long it takes.", least=1)
    strategy: Any = option("halving", f"One of {', '.join(DRAWING)}.", typed=str, one_of=DRAWING)
    folds: Any = option(None, "Number of cross-validation folds. (default: 8, 5 or 3)", typed=int, least=2)
    scoring: Any = option(None, SCORING, typed=str)
    seeds: int = option(3, "Train the best recipes with so many seeds each.", least=1)
    epochs: int | None = option(None, "Passes over the rows, at most. (default: by rows)", least=1)
    model: str = option(ENSEMBLE, MODEL, one_of=MODELS)
    group_repeats: bool = option(
        True, "Repeated rows are independent: they may be in different folds.", flags="--no-group-repeats"
    )
    seed: int = option(0, "Random seed.", least=0, most=LARGEST_SEED)
    explain_seconds: float | None = explain_seconds_option("what is left of the budget; 0: not at all")
    threads: int | None = option(None, "Threads. (default: all cores)", least=1, changes_result=False, in_files=False)
    executor: Any = option(
        None, "Train on other processes or machines: " + ", ".join(KINDS) + ". (default: in this process)",
        typed=str, check=lambda _, value: find_workers(value), flags="--cluster", metavar="WHERE",
        changes_result=False, in_files=False,
    )  # fmt: skip
    space: Any = option(None, "Where recipes are drawn from.", on_command_line=False, in_files=False)
    refit: bool | str = option(
        "auto", "Train what was chosen on all rows again.", check=_when_to_refit, on_command_line=False, in_files=False
    )

    def check_together(self, called: Callable[[str], str]) -> None:
        if self.budget is not None and self.recipes is not None:
            raise UserError(f"give {called('budget')} (time) or {called('recipes')} (a fixed amount of work), not both")


# ---- as parameters of estimators ----


def parameter_names() -> dict[str, str]:
    """The parameter of an estimator for each option that has one; its class says the task."""
    return {name: SCIKIT_LEARN_NAMES.get(name, name) for name in options_of(SearchOptions) if name != "task"}


def as_parameters(options: SearchOptions) -> dict[str, Any]:
    """Options as an estimator takes them."""
    return {parameter: getattr(options, name) for name, parameter in parameter_names().items()}


def options_of_estimator(estimator: Any) -> SearchOptions:
    """The parameters of an estimator, checked."""
    names = parameter_names()
    given = {name: getattr(estimator, parameter) for name, parameter in names.items()}
    known = {"threads": threads_of(estimator.n_jobs), "seed": seed_of(estimator.random_state)}
    return SearchOptions.with_names(given | known, names)


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
