"""A fitted estimator as the files of a model (see `shoal.models.saving`), and back."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from shoal.encoders.encoder import arrays_under
from shoal.errors import UserError, WrongType
from shoal.json_values import plain
from shoal.members import Member
from shoal.models import checks
from shoal.models.saving import (
    DESCRIPTION,
    EXPLANATION,
    TIMINGS,
    check_place,
    describe_model,
    model_folder,
    naming,
    read_folder,
    read_json,
    restore_predictor,
    write_folder,
)
from shoal.search import explained
from shoal.search.cv_results import param_columns
from shoal.search.estimators import ShoalClassifier, ShoalRegressor
from shoal.search.honest import HonestScore
from shoal.search.leaderboard import Leaderboard
from shoal.search.parameters import parameter_names
from shoal.tables.reading import Reading
from shoal.validate import whole

KINDS = {"classifier": ShoalClassifier, "regressor": ShoalRegressor}
OBJECTS = ("space", "cv", "executor")  # not saved: a loaded estimator has the defaults
BESIDE = ("explain_seconds",)  # nor are those that do not change the model
PARAMETERS = ("class_weight", *(name for name in parameter_names().values() if name not in OBJECTS + BESIDE))
NUMBERS = ("score", "loss", "fold_spread", "seed_spread")  # of the leaderboard; infinite where networks diverged
RESULTS = ("best_score_", "best_index_", "luck_", "n_networks_", "ensemble_gain_", "n_features_in_")


def save(estimator: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator into the folder `path`, under another name first: it is there whole, or not at all."""
    from sklearn.utils.validation import check_is_fitted

    if not isinstance(estimator, (ShoalClassifier, ShoalRegressor)):
        raise WrongType(f"save takes a ShoalClassifier or a ShoalRegressor; got {type(estimator).__name__}")
    check_is_fitted(estimator)
    target = Path(path)
    check_place(target)
    explanation = plain(explained.described(estimator))
    write_folder(target, *_describe(estimator), {EXPLANATION: explanation} if explanation else None)


def load(path: str | os.PathLike[str]) -> Any:
    """A fitted estimator from `save`, or of a run of `shoal search`: the folder of the model, or that of the run.

    Runs no code from the files; needs neither PyTorch nor the training data.
    """
    folder = model_folder(path)
    body, arrays = read_folder(folder, PARAMETERS)
    timings = _read_timings(folder / TIMINGS)
    with naming(folder / DESCRIPTION):
        estimator = _restore(body, arrays)
    _restore_timings(estimator, timings, folder / TIMINGS)
    explained.restore(estimator, folder)
    return estimator


# ---- what is written ----


def _describe(estimator: Any) -> tuple[dict[str, Any], dict[str, np.ndarray], dict[str, Any]]:
    """For model.json, for the weights and for the timings."""
    described, arrays = describe_model(estimator.model_)
    reading: Reading | None = getattr(estimator, "reading_", None)
    results = {name: value for name, value in estimator.cv_results_.items() if not name.startswith("param_")}
    body = {
        "kind": "classifier" if isinstance(estimator, ShoalClassifier) else "regressor",
        "parameters": _plain_parameters(estimator),
        **described,
        "classes": _plain_classes(getattr(estimator, "classes_", None)),
        "one_column": getattr(estimator, "one_column_", None),
        "feature_names": _names(estimator),
        "target_name": getattr(estimator, "target_name_", None),
        "reading": None if reading is None else reading.as_dict(),
        "leaderboard": estimator.board_.columns | {"seconds": None},
        "cv_results": results | {"mean_fit_time": None},
        "best_member": estimator.best_member_.as_dict(),
        "honest_score": estimator.honest_score_.as_dict(),
        "results": {name: getattr(estimator, name) for name in RESULTS},
    }
    timings = {
        "n_jobs": body["parameters"].pop("n_jobs", None),
        "seconds": estimator.board_.columns["seconds"],
        "mean_fit_time": results["mean_fit_time"],
    }
    # JSON has no infinities: those of networks that diverged become words.
    return plain(body, other=repr), arrays, plain(timings, other=repr)


def _plain_parameters(estimator: Any) -> dict[str, Any]:
    """Those that fit into JSON. A space, a splitter or a generator does not: a loaded estimator has the defaults."""
    found = {name: value for name, value in estimator.get_params(deep=False).items() if name in PARAMETERS}
    single = (str, int, float, bool, np.generic, type(None))
    return {name: value for name, value in found.items() if isinstance(value, single)}


def _plain_classes(classes: np.ndarray | None) -> dict[str, Any] | None:
    if classes is None:
        return None
    return {"dtype": "object" if classes.dtype == object else classes.dtype.str, "values": classes.tolist()}


def _names(estimator: Any) -> list[str] | None:
    names = getattr(estimator, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


# ---- what is read ----


def _restore(body: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
    estimator = KINDS[body["kind"]](**body["parameters"])
    restore_predictor(estimator, body, arrays)
    board = {name: [_number(cell) if name in NUMBERS else cell for cell in column or ()]
             for name, column in body["leaderboard"].items()}  # fmt: skip
    estimator.board_ = Leaderboard(board)
    estimator.cv_results_ = _restore_results(body["cv_results"]) | arrays_under("results.", arrays)
    estimator.best_member_ = Member.from_dict(body["best_member"])
    estimator.honest_score_ = HonestScore(**{name: _number(value) for name, value in body["honest_score"].items()})
    for name in RESULTS:
        setattr(estimator, name, _number(body["results"][name]))
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


def _read_timings(file: Path) -> dict[str, Any] | None:
    if not file.is_file():
        return None
    try:
        found = read_json(file)
        if not isinstance(found, dict):
            raise UserError(f"{file} must hold an object; got {type(found).__name__}")
    except ValueError as error:
        raise UserError(f"{error}; the model does not need it: delete it") from None
    return found


def _restore_timings(estimator: Any, timings: dict[str, Any] | None, file: Path) -> None:
    """Seconds that a model of version 2 was made in; unknown where the file is not there."""
    board, results = estimator.board_.columns, estimator.cv_results_
    rows = len(board["rank"])
    try:
        jobs = None if timings is None else timings.get("n_jobs")
        if jobs is not None:
            estimator.n_jobs = whole("n_jobs", jobs, -checks.LARGEST, checks.LARGEST)
        for target, name in ((board, "seconds"), (results, "mean_fit_time")):
            if isinstance(target[name], np.ndarray) or target[name]:
                continue  # it was in model.json
            values = np.full(rows, np.nan) if timings is None else checks.numbers(name, timings.get(name))
            if len(values) != rows:
                raise UserError(f"{name} must have {rows} rows, as the leaderboard; got {len(values)}")
            target[name] = values.tolist() if target is board else values
    except ValueError as error:
        raise UserError(f"{file} was altered: {error}; the model does not need it: delete it") from None
