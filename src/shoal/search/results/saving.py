"""What the estimators of a search know beside their model: for its files, and back (see `shoal.models.saving`)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from shoal.errors import CompleteError, UserError
from shoal.files.json_values import plain
from shoal.metrics.tasks import REGRESSION
from shoal.models import checks
from shoal.models.saving import EXPLANATION, TIMINGS, Described, read_json, restore_predictor
from shoal.population.members import Member
from shoal.search.estimators import ShoalClassifier, ShoalRegressor
from shoal.search.options import parameter_names
from shoal.search.results import row_explanations
from shoal.search.results.leaderboard import Leaderboard, fit_times, param_columns
from shoal.search.scoring.honest import HonestScore
from shoal.validate import whole

OBJECTS = ("space", "cv", "executor")  # not saved: a loaded estimator has the defaults
BESIDE = ("explain_seconds",)  # nor are those that do not change the model
PARAMETERS = ("class_weight", *(name for name in parameter_names().values() if name not in OBJECTS + BESIDE))
NUMBERS = ("score", "loss", "fold_spread", "seed_spread")  # of the leaderboard; infinite where networks diverged
RESULTS = ("best_score_", "best_index_", "luck_", "n_networks_", "ensemble_gain_")


def describe(estimator: Any) -> Described:
    results = {name: value for name, value in estimator.cv_results_.items() if not name.startswith("param_")}
    parameters = plain_parameters(estimator, PARAMETERS)
    timings = {"n_jobs": parameters.pop("n_jobs", None), "seconds": estimator.board_.columns["seconds"]}
    body = {
        "parameters": parameters,
        "leaderboard": estimator.board_.columns | {"seconds": None},
        "cv_results": results | {"mean_fit_time": None},
        "best_member": estimator.best_member_.as_dict(),
        "honest_score": estimator.honest_score_.as_dict(),
        "results": {name: getattr(estimator, name) for name in RESULTS},
    }
    files = {TIMINGS: plain(timings, other=repr)}
    explanation = plain(row_explanations.described(estimator))
    return Described(body, files=files | ({EXPLANATION: explanation} if explanation else {}))


def plain_parameters(estimator: Any, names: Iterable[str]) -> dict[str, Any]:
    """Those that fit into JSON. A space, a splitter or a generator does not: a loaded estimator has the defaults."""
    found = {name: value for name, value in estimator.get_params(deep=False).items() if name in names}
    single = (str, int, float, bool, np.generic, type(None))
    return {name: value for name, value in found.items() if isinstance(value, single)}


def restore(body: dict[str, Any], arrays: dict[str, np.ndarray], folder: Path, network: Any = None) -> Any:
    parameters = checks.check_parameters(body.get("parameters"), PARAMETERS)
    checks.check_search(body)
    estimator = (ShoalRegressor if body["task"]["kind"] == REGRESSION else ShoalClassifier)(**parameters)
    restore_predictor(estimator, body, arrays)
    board = {name: [_number(cell) if name in NUMBERS else cell for cell in column or ()]
             for name, column in body["leaderboard"].items()}  # fmt: skip
    estimator.board_ = Leaderboard(board)
    estimator.cv_results_ = _restore_results(body["cv_results"])
    estimator.best_member_ = Member.from_dict(body["best_member"])
    estimator.honest_score_ = HonestScore(**{name: _number(value) for name, value in body["honest_score"].items()})
    for name in RESULTS:
        setattr(estimator, name, _number(body["results"][name]))
    _restore_timings(estimator, folder / TIMINGS)
    row_explanations.restore(estimator, folder)
    return estimator


def _number(value: Any) -> Any:
    return checks.WORDS.get(value, value) if isinstance(value, str) else value


def _restore_results(columns: dict[str, Any]) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for name, column in columns.items():
        if name == "params" or column is None:
            results[name] = column
        else:
            values = checks.numbers(f"cv_results.{name}", column)
            results[name] = values.astype(np.int32) if name.startswith("rank") else values
    results["params"] = [  # JSON has lists where members have tuples
        {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
        for fields in results["params"]
    ]
    return results | param_columns(results["params"])


def _read_timings(file: Path) -> dict[str, Any]:
    try:
        found = read_json(file)
        if not isinstance(found, dict):
            raise UserError(f"{file} must hold an object; got {type(found).__name__}")
    except ValueError as error:
        raise CompleteError(f"{error}; the model does not need it: delete it") from None
    return found


def _restore_timings(estimator: Any, file: Path) -> None:
    """Seconds that the model was made in; unknown where the file is not there."""
    board, rows = estimator.board_, len(estimator.board_.columns["rank"])
    timings = _read_timings(file) if file.is_file() else {"seconds": [np.nan] * rows}
    try:
        if timings.get("n_jobs") is not None:
            estimator.n_jobs = whole("n_jobs", timings["n_jobs"], -checks.LARGEST, checks.LARGEST)
        seconds = checks.numbers("seconds", timings.get("seconds"))
        if len(seconds) != rows:
            raise UserError(f"seconds must have {rows} rows, as the leaderboard; got {len(seconds)}")
    except ValueError as error:
        raise CompleteError(f"{file} was altered: {error}; the model does not need it: delete it") from None
    board.columns["seconds"] = seconds.tolist()
    estimator.cv_results_["mean_fit_time"] = fit_times(board, estimator.cv_results_)
