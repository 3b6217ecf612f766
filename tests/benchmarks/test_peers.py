"""The tables of the benchmark of searches, and its peers: they are strong, and they end on time."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from support.waiting import wait_until
from threadpoolctl import threadpool_limits

from benchmarks.peers.tabular import data as tabular_data
from benchmarks.peers.tabular import fit as tabular_fit
from benchmarks.peers.tabular import peers as tabular_peers
from benchmarks.peers.tabular.search import FOLDS, TimedSearch, log_loss, outputs, r_squared

pandas = pytest.importorskip("pandas")
SEARCHES = ("mlp", "forest", "boosting", "linear")


def load(name: str) -> tabular_data.Dataset:
    try:
        return tabular_data.load(name)
    except FileNotFoundError:
        pytest.skip(f"the file of {name} is not on this machine")


# ---- the tables ----


@pytest.mark.parametrize("name", tabular_data.SOURCES)
def test_tables_are_numbers_and_categories(name: str) -> None:
    data = load(name)
    kinds = {str(kind) for kind in data.X.dtypes}
    assert kinds <= {"float64", "category"}
    assert len(data.X) == len(data.y) > 100
    assert not pandas.isna(data.y).any()
    if data.task == "regression":
        assert data.y.dtype == float
    assert not any(data.X[column].equals(pandas.Series(data.y)) for column in data.X)  # the target is not among them


def test_tables_are_what_their_description_says() -> None:
    shapes = {"german": (1000, 20), "pima": (768, 8), "breast-cancer": (286, 9), "winequality-red": (1599, 11)}
    for name, shape in shapes.items():
        assert load(name).X.shape == shape
    assert load("breast-cancer").categories == 8
    assert load("german").categories == 13
    assert set(np.unique(load("breast-cancer").y)) == {"no-recurrence-events", "recurrence-events"}  # quotes are gone
    assert load("pima").missing > 0.1  # zeros stand for missing


def test_horse_colic_has_no_column_that_gives_the_answer_away() -> None:
    data = load("horse-colic")
    assert data.X.shape == (300, 22)
    assert 0.2 < data.missing < 0.4
    assert sorted(np.unique(data.y, return_counts=True)[1]) == [109, 191]
    for column in ("column 3", "column 23", "column 24", "column 25", "column 26", "column 27"):
        assert column not in data.X


def test_outer_folds_are_the_same_for_all_and_stratified() -> None:
    y = np.repeat([0, 1, 2], [60, 30, 9])
    folds = tabular_data.folds("classification", y, 3, seed=0)
    again = tabular_data.folds("classification", y, 3, seed=0)
    for (train, test), (_, same) in zip(folds, again, strict=True):
        assert not set(train) & set(test)
        assert np.bincount(y[test]).tolist() == [20, 10, 3]
        np.testing.assert_array_equal(test, same)
    assert sorted(np.concatenate([test for _, test in folds])) == list(range(99))
    assert np.any(np.diff(tabular_data.folds("regression", np.arange(9.0), 3, seed=0)[0][1]) != 1)  # shuffled


# ---- scores ----


def test_log_loss_is_that_of_scikit_learn() -> None:
    from sklearn.metrics import log_loss as expected
    from sklearn.metrics import r2_score

    generator = np.random.default_rng(0)
    found, y = generator.dirichlet(np.ones(3), 50), generator.integers(0, 3, 50)
    assert log_loss(found, y, np.arange(3)) == pytest.approx(expected(y, found), abs=1e-5)
    assert log_loss(np.eye(2)[[0]], np.array([1]), np.arange(2)) == pytest.approx(-np.log(1e-7), abs=1e-6)
    assert r_squared(found[:, 0], found[:, 1]) == pytest.approx(r2_score(found[:, 1], found[:, 0]))


def test_outputs_have_a_column_for_each_class() -> None:
    class Model:
        classes_ = np.array(["a", "c"])

        def predict_proba(self, X: Any) -> np.ndarray:
            return np.array([[0.3, 0.7]])

    np.testing.assert_array_equal(outputs(Model(), None, np.array(["a", "b", "c"])), [[0.3, 0.0, 0.7]])


def test_predictions_that_are_no_numbers_are_a_failure() -> None:
    with pytest.raises(ValueError, match="1 of 2 predictions are not finite"):
        tabular_fit.scores(np.array([np.nan, 1.0]), np.zeros(2), None)


# ---- the search of the peers ----


class Constant(BaseEstimator):
    """Predicts one value; or fails, or never ends."""

    def __init__(self, value: float = 0.0, fails: bool = False, endless: bool = False) -> None:
        self.value, self.fails, self.endless = value, fails, endless

    def fit(self, X: Any, y: np.ndarray) -> Constant:
        if self.endless:
            threading.Event().wait()
        if self.fails:
            raise ValueError("diverged")
        self.fitted_rows_ = len(y)
        return self

    def predict(self, X: Any) -> np.ndarray:
        return np.full(len(X), self.value)


def timed_search(candidates: list[Constant], seconds: float, now: Callable[[], float]) -> TimedSearch:
    listed = [(model, {"value": model.value}) for model in candidates]
    return TimedSearch(listed, "regression", seconds, threads=1, now=now)


def rows() -> tuple[Any, np.ndarray]:
    return pandas.DataFrame({"a": np.arange(40.0)}), np.random.default_rng(0).normal(5.0, 1.0, 40)


class Late:
    """A clock on which the time is up once it has been looked at so often."""

    def __init__(self, looks: int) -> None:
        self.looks = looks

    def __call__(self) -> float:
        self.looks -= 1
        return 0.0 if self.looks >= 0 else 1e9


def test_the_search_of_peers_picks_the_best_and_fits_it_on_all_rows() -> None:
    candidates = [Constant(0), Constant(9), Constant(5), Constant(5.0, fails=True), Constant(3)]
    timed = timed_search(candidates, 1000, lambda: 0.0).fit(*rows())  # it ends when there is nothing left to try
    assert timed.model_.value == 5
    assert timed.model_.fitted_rows_ == 40
    assert timed.details_["candidates"] == 5
    assert timed.details_["best_candidate"] == 2
    assert timed.details_["best_parameters"] == {"value": "5"}
    assert timed.details_["first_score"] < timed.details_["best_score"]


def test_a_candidate_that_does_not_end_is_left_behind() -> None:
    looks = 1 + 2 * FOLDS  # at the beginning, and before each answer of the first two
    timed = timed_search([Constant(0), Constant(4), Constant(5, endless=True)], 1000, Late(looks)).fit(*rows())
    assert timed.model_.value == 4
    assert timed.details_["candidates"] == 2


class Worker:
    """Does the tasks of a search in this process; each fit takes half a second on its clock."""

    def __init__(self) -> None:
        self.time = 0.0

    def apply_async(self, work: Any, arguments: Any, callback: Any, error_callback: Any) -> None:
        self.time += 0.5
        trial, fold, score, _ = work(*arguments)
        callback((trial, fold, score, 0.5))

    def terminate(self) -> None:
        """Nothing is left running."""

    join = terminate


def test_a_default_that_there_was_no_time_to_try_is_fitted_all_the_same() -> None:
    timed = timed_search([Constant(1), Constant(5)], 1000, Late(1))
    timed._pool = Worker()
    timed.fit(*rows())
    assert timed.model_.value == 1
    assert timed.model_.fitted_rows_ == 40
    assert timed.details_["candidates"] == 0


@pytest.mark.parametrize(("seconds", "candidates"), [(3.0, 0), (5.0, 1), (20.0, 7)])
def test_the_refit_is_part_of_the_time(seconds: float, candidates: int) -> None:
    worker = Worker()
    timed = timed_search([Constant(k) for k in range(100)], seconds, lambda: worker.time)
    timed._pool = worker
    timed.fit(*rows())
    assert timed.details_["candidates"] == candidates
    assert seconds - 1.5 <= worker.time + 0.5 <= seconds


def mixed_table(rows: int = 90, seed: int = 0) -> tuple[Any, np.ndarray]:
    generator = np.random.default_rng(seed)
    number = generator.normal(size=rows)
    category = generator.choice(["a", "b", "c"], rows)
    X = pandas.DataFrame({"number": number, "other": generator.normal(size=rows), "category": category})
    X.loc[generator.random(rows) < 0.2, ["other", "category"]] = np.nan
    X["category"] = X["category"].astype(pandas.CategoricalDtype(["a", "b", "c", "never seen before"]))
    return X, number + (category == "a")


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize("name", SEARCHES)
def test_candidates_take_categories_and_missing_values(name: str, task: str) -> None:
    X, target = mixed_table()
    classes = np.array([0, 1]) if task == "classification" else None
    y = (target > 0.3).astype(int) if task == "classification" else target
    new = X[:3].copy()
    new["category"] = pandas.Categorical(["never seen before"] * 3, dtype=X["category"].dtype)
    scores = []
    for model, _ in itertools.islice(getattr(tabular_peers, name)(task, 0), 3):
        with warnings.catch_warnings(), threadpool_limits(1):
            warnings.simplefilter("ignore")  # some of the drawn ones do not converge
            found = outputs(model.fit(X, y), X, classes)
            assert np.isfinite(outputs(model, new, classes)).all()
        scores.append(r_squared(found, y) if classes is None else (found.argmax(1) == y).mean())
    assert max(scores) > 0.75  # of the rows it was fitted on


@pytest.mark.parametrize("name", SEARCHES)
def test_the_first_candidate_is_the_default_of_the_library(name: str) -> None:
    from sklearn.base import clone

    (model, parameters), *others = itertools.islice(getattr(tabular_peers, name)("classification", 3), 4)
    final = model.named_steps["model"]
    defaults = type(final)().get_params()
    changed = {key for key, value in final.get_params().items() if value != defaults[key]}
    assert parameters == {}
    assert changed <= {"random_state", "n_jobs", "max_iter" if name == "linear" else "random_state"}
    for other, drawn in others:
        assert {key: clone(other).get_params()[key] for key in drawn if not key.startswith("columns")} == {
            key: value for key, value in drawn.items() if not key.startswith("columns")
        }


def test_all_peers_but_the_threaded_ones_have_a_thread_for_each_process(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, str] = {}

    class Popen:
        returncode = 0

        def __init__(self, command: list[str], env: dict[str, str], **_: Any) -> None:
            seen[json.loads(command[-1])["contender"]] = env["OMP_NUM_THREADS"] + env["SHOAL_THREADS"]

        def communicate(self, timeout: float) -> tuple[str, str]:
            return f"noise\n{tabular_fit.LAST_LINE}" + '{"r2": 0.5}\n', ""

    monkeypatch.setattr(tabular_fit.subprocess, "Popen", Popen)
    for name in tabular_peers.CONTENDERS:
        assert tabular_fit.run({"contender": name, "threads": 2}, 1) == {"r2": 0.5}
    assert seen == {**dict.fromkeys(SEARCHES, "11"), "shoal": "22", "realmlp": "22"}


def test_a_fit_that_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    real, started = subprocess.Popen, []

    def sleeper(command: list[str], **options: Any) -> Any:
        started.append(real(["sleep", "600"], **options))
        return started[0]

    monkeypatch.setattr(tabular_fit.subprocess, "Popen", sleeper)
    assert tabular_fit.run({"contender": "mlp", "threads": 1}, 0.2) == {"error": "did not end within 0 s"}
    assert started[0].returncode == -signal.SIGKILL


def test_a_fit_ends_with_the_benchmark_that_started_it(tmp_path: Path) -> None:
    """The child of a process that is killed ends itself."""
    child = "from benchmarks.peers.tabular.fit import end_with_parent; end_with_parent(); import threading; "
    child += f"open({str(tmp_path / 'started')!r}, 'w').close(); threading.Event().wait()"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}], start_new_session=True)"
    process = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE)
    wait_until((tmp_path / "started").exists)
    process.kill()
    process.communicate(timeout=30)  # ends when nobody holds the pipe any more: neither the parent nor the child
