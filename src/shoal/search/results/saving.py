"""Saves and loads what the estimators of a search know apart from their model (see `shoal.models.saving`)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from shoal.files.json_values import plain
from shoal.metrics.tasks import REGRESSION
from shoal.models import checks
from shoal.models.saving import EXPLANATION, Described, restore_predictor
from shoal.population.members import Member
from shoal.search.estimators import ShoalClassifier, ShoalRegressor
from shoal.search.options import parameter_names
from shoal.search.results import row_explanations
from shoal.search.results.leaderboard import Leaderboard, cv_results
from shoal.search.scoring.honest import HonestScore

# Not saved: objects, and what does not change the model. A loaded estimator has the defaults.
NOT_SAVED = ("space", "cv", "executor", "explain_seconds", "n_jobs")
PARAMETERS = ("class_weight", *(name for name in parameter_names().values() if name not in NOT_SAVED))
SECONDS = "seconds"  # a column of the leaderboard that is not saved: equal models are equal files
NUMBERS = ("score", "loss", "fold_spread", "seed_spread")  # of the leaderboard; infinite where networks diverged
RESULTS = ("best_score_", "best_index_", "luck_", "n_networks_", "ensemble_gain_")


def describe(estimator: Any) -> Described:
    results = estimator.cv_results_
    body = {
        "parameters": plain_parameters(estimator, PARAMETERS),
        "leaderboard": estimator.board_.columns | {SECONDS: None},
        "fold_scores": [column for name, column in results.items() if name.startswith("split")],
        "params": results["params"],
        "best_member": estimator.best_member_.as_dict(),
        "honest_score": estimator.honest_score_.as_dict(),
        "results": {name: getattr(estimator, name) for name in RESULTS},
    }
    explanation = plain(row_explanations.described(estimator))
    return Described(body, files={EXPLANATION: explanation} if explanation else {})


def plain_parameters(estimator: Any, names: Iterable[str]) -> dict[str, Any]:
    """Those that fit into JSON. A space, a splitter or a generator does not: a loaded estimator has the defaults."""
    found = {name: value for name, value in estimator.get_params(deep=False).items() if name in names}
    single = (str, int, float, bool, np.generic, type(None))
    return {name: value for name, value in found.items() if isinstance(value, single)}


def restore(body: dict[str, Any], arrays: dict[str, np.ndarray], folder: Path, network: Any = None) -> Any:
    estimator = (ShoalRegressor if body["task"]["kind"] == REGRESSION else ShoalClassifier)(**body["parameters"])
    restore_predictor(estimator, body, arrays)
    board = {name: [_number(cell) if name in NUMBERS else cell for cell in column or ()]
             for name, column in body["leaderboard"].items()}  # fmt: skip
    estimator.board_ = Leaderboard(board | {SECONDS: [np.nan] * len(body["params"])})
    fold_scores = np.array([[_number(score) for score in column] for column in body["fold_scores"]], dtype=float).T
    params = [  # JSON has lists where members have tuples
        {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
        for fields in body["params"]
    ]
    estimator.cv_results_ = cv_results(estimator.board_, fold_scores, params)
    estimator.best_member_ = Member.from_dict(body["best_member"])
    estimator.honest_score_ = HonestScore(**{name: _number(value) for name, value in body["honest_score"].items()})
    for name in RESULTS:
        setattr(estimator, name, _number(body["results"][name]))
    row_explanations.restore(estimator, folder)
    return estimator


def _number(value: Any) -> Any:
    return checks.WORDS.get(value, value) if isinstance(value, str) else value
