"""The options of a search are the parameters of the estimators and the fields of settings.json."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from shoal.executors.find import find_workers
from shoal.search.estimators import ShoalClassifier, ShoalRegressor
from shoal.search.options import SearchOptions, as_parameters, options_of_estimator, parameter_names, threads_of
from shoal.search.results.saving import PARAMETERS
from shoal.tables.options import RowOptions

BESIDE = {"verbose", "kinds", "callbacks", "journal"}  # parameters that are not about how to search


@pytest.mark.parametrize(("kind", "more"), [(ShoalClassifier, {"class_weight"}), (ShoalRegressor, set())])
def test_estimators_have_the_options_as_parameters_with_the_same_defaults(kind, more):
    found = {name: p.default for name, p in inspect.signature(kind).parameters.items()}
    assert found.keys() == {*parameter_names().values(), *BESIDE, *more}
    assert as_parameters(SearchOptions()) == {name: found[name] for name in parameter_names().values()}


def test_what_an_estimator_is_given_arrives_as_options():
    given = {"strategy": "random", "recipes": 7, "budget": None, "cv": 4, "scoring": "f1", "seeds": 2, "epochs": 9,
             "model": "best", "refit": True, "group_repeats": False, "n_jobs": 1, "random_state": 5,
             "space": {"hidden": [3]}, "executor": find_workers("serial"), "explain_seconds": 2.5}  # fmt: skip
    assert given.keys() == set(parameter_names().values()), "give the new one a value that is not its default"
    options = options_of_estimator(ShoalRegressor(**given))
    assert as_parameters(options) == given


def test_files_have_the_names_that_runs_on_disk_have():
    assert RowOptions.names_in_files() == ("sep", "header", "missing", "drop", "kinds", "target", "groups", "time",
                                           "weight")  # fmt: skip
    assert SearchOptions.names_in_files() == (
        "task", "budget", "recipes", "strategy", "folds", "scoring", "seeds", "epochs", "model", "group_repeats",
        "seed", "explain_seconds",
    )  # fmt: skip
    assert set(PARAMETERS) == {"strategy", "recipes", "budget", "scoring", "seeds", "epochs", "model",
                               "refit", "group_repeats", "random_state", "class_weight"}  # fmt: skip


# ---- threads and seeds, as scikit-learn gives them ----


@pytest.mark.parametrize("jobs", [0, 5000, True, "2", 1.5])
def test_wrong_numbers_of_jobs_are_named_as_the_user_gave_them(jobs):
    X = np.random.default_rng(0).normal(size=(40, 2))
    with pytest.raises(ValueError, match=rf"^n_jobs must be a number of threads from 1 to 4096, .* got {jobs!r}$"):
        ShoalClassifier(n_jobs=jobs).fit(X, X[:, 0] > 0)


def test_minus_one_is_all_cores(monkeypatch):
    monkeypatch.setenv("SHOAL_THREADS", "4")
    assert [threads_of(jobs) for jobs in (None, 3, -1, -2, -9)] == [4, 3, 4, 3, 1]
