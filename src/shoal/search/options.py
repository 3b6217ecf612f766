"""The options of a search, each in one place (see `shoal.options`).

A new one is a field here, a parameter of the same name and default in the constructors of `ShoalClassifier` and
`ShoalRegressor` (scikit-learn reads these), and its use. The command line and settings.json have it then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shoal.errors import UserError
from shoal.executors.find import KINDS, find_workers
from shoal.explain.options import explain_seconds_option
from shoal.options import Options, option
from shoal.search.strategies import strategies_of_default_space
from shoal.tables.target import TASKS

DRAWING = strategies_of_default_space()  # the command line has no space and no objects
LARGEST_SEED = (1 << 32) - 1
SCORING = (
    "Score to rank by. For classes accuracy (default), balanced_accuracy, roc_auc, f1, f1_macro, neg_log_loss or "
    "neg_brier_score; for numbers r2 (default), neg_mean_squared_error or neg_mean_absolute_error; or another name "
    "that scikit-learn has (sklearn.metrics.get_scorer_names)."
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
    recipes: int | None = option(100, "Try so many recipes, however long it takes.", least=1)
    strategy: Any = option("halving", f"One of {', '.join(DRAWING)}.", typed=str, one_of=DRAWING)
    folds: Any = option(None, "Folds that rows are held out in. (default: 8, 5 or 3)", typed=int, least=2)
    scoring: Any = option(None, SCORING, typed=str)
    seeds: int = option(3, "Train the best recipes with so many seeds each.", least=1)
    epochs: int | None = option(None, "Passes over the rows, at most. (default: by rows)", least=1)
    ensemble: bool = option(True, "The best single recipe is the model.", flags="--no-ensemble")
    compact: bool = option(
        False, "The fewest networks whose loss is within one standard error of all.", flags="--compact", new=True
    )
    group_repeats: bool = option(
        True, "Repeated rows are independent: they may be in different folds.", flags="--no-group-repeats", new=True
    )
    seed: int = option(0, "Seed of all that is drawn at random.", least=0, most=LARGEST_SEED)
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
