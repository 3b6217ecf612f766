"""The peers of the benchmark of searches: they are strong, and they end on time."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from support.waiting import wait_until
from threadpoolctl import threadpool_limits

from benchmarks.peers.tabular import fit as tabular_fit
from benchmarks.peers.tabular import scikit
from benchmarks.peers.tabular.child import LAST_LINE, read, with_categories
from benchmarks.peers.tabular.contenders import ENTRANTS
from benchmarks.peers.tabular.data import Dataset
from benchmarks.peers.tabular.search import FOLDS, TimedSearch, folds, log_loss, outputs, r_squared

pandas = pytest.importorskip("pandas")
SEARCHES = ("forest", "boosting", "linear")


# ---- scores ----


def test_log_loss_is_that_of_scikit_learn() -> None:
    from sklearn.metrics import log_loss as expected
    from sklearn.metrics import r2_score

    generator = np.random.default_rng(0)
    found, y = generator.dirichlet(np.ones(3), 50), generator.integers(0, 3, 50)
    assert log_loss(found, y) == pytest.approx(expected(y, found), abs=1e-5)
    assert log_loss(np.eye(2)[[0]], np.array([1])) == pytest.approx(-np.log(1e-7), abs=1e-6)
    assert r_squared(found[:, 0], found[:, 1]) == pytest.approx(r2_score(found[:, 1], found[:, 0]))


def test_outputs_have_a_column_for_each_class() -> None:
    class Model:
        classes_ = np.array([0, 2])

        def predict_proba(self, X: Any) -> np.ndarray:
            return np.array([[0.3, 0.7]])

    np.testing.assert_array_equal(outputs(Model(), [[0]], 3), [[0.3, 0.0, 0.7]])


def table(y: list[float], task: str = "regression") -> Dataset:
    return Dataset("t", task, pandas.DataFrame({"a": np.arange(len(y))}), np.array(y))


def test_losses_and_scores() -> None:
    found = tabular_fit.scores(table([0.0, 2.0, 4.0, 6.0]), np.array([1.0, 3.0]), np.array([0, 1]), None)
    assert found == {"loss": pytest.approx(1 / np.std([0, 2, 4, 6])), "score": 0, "test_rows": 2}
    found = tabular_fit.scores(table([0, 1, 1], "classification"), np.array([[0.2, 0.8]]), np.array([1]), None)
    assert found == {"loss": pytest.approx(-np.log(0.8)), "score": 1, "test_rows": 1}


def test_predictions_that_are_no_numbers_are_a_failure() -> None:
    found = tabular_fit.scores(table([1.0, 2.0]), np.array([np.nan, 1.0]), np.arange(2), None)
    assert found == {"error": "1 of 2 predictions are not finite"}


@pytest.mark.parametrize(("low", "high", "inside", "covered"), [
    (0.7, 0.8, True, True), (0.78, 0.88, False, True), (0.98, 0.99, False, False),
])  # fmt: skip
def test_whether_the_honest_interval_holds(low: float, high: float, inside: bool, covered: bool) -> None:
    y = np.tile([0, 1], 50)
    answers = np.eye(2)[np.where(np.arange(100) < 75, y, 1 - y)]  # 75 of 100 are right
    honest = {"metric": "accuracy", "corrected": (low + high) / 2, "low": low, "high": high}
    found = tabular_fit.holds(table(list(y), "classification"), answers, y, honest)
    assert found == {"inside": inside, "covered": covered}


def test_inner_folds_keep_classes_and_take_rare_ones() -> None:
    y = np.repeat([0, 1, 2], [60, 30, 5])
    parts = folds(y, 3, 0)
    assert [np.bincount(y[valid]).tolist() for _, valid in parts] == [[12, 6, 1]] * FOLDS
    assert sorted(np.concatenate([valid for _, valid in parts])) == list(range(95))
    assert len(folds(np.repeat([0, 1], [30, 1]), 2, 0)) == 2
    assert np.any(np.diff(folds(np.arange(20.0), 0, 0)[0][1]) != 1)  # shuffled


def test_a_table_arrives_as_it_was_sent(tmp_path: Path) -> None:
    whole = pandas.DataFrame({"[a]": [1 / 3, np.nan, 1e-300], "b": [1, 2, 3], "c": ["x, y", None, '"01"']})
    for name, part in (("train", whole), ("test", whole[::-1])):
        part.to_csv(tmp_path / f"{name}.csv", header=False, index=False)
    kinds = ["float64", "int64", "str"]
    train, test = read(tmp_path, list(whole), kinds)
    pandas.testing.assert_frame_equal(train, whole, check_dtype=False)
    assert test["c"].iloc[0] == '"01"'
    train, test = with_categories(train, test)
    assert list(train) == ["column0", "column1", "column2"]
    assert train["column2"].dtype == test["column2"].dtype == "category"


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
    classes = 2 if task == "classification" else 0
    y = (target > 0.3).astype(int) if task == "classification" else target
    new = X[:3].copy()
    new["category"] = pandas.Categorical(["never seen before"] * 3, dtype=X["category"].dtype)
    scores = []
    for model, _ in itertools.islice(getattr(scikit, name)(task, 0), 3):
        with warnings.catch_warnings(), threadpool_limits(1):
            warnings.simplefilter("ignore")  # some of the drawn ones do not converge
            found = outputs(model.fit(X, y), X, classes)
            assert np.isfinite(outputs(model, new, classes)).all()
        scores.append((found.argmax(1) == y).mean() if classes else r_squared(found, y))
    assert max(scores) > 0.75  # of the rows it was fitted on


@pytest.mark.parametrize("name", SEARCHES)
def test_the_first_candidate_is_the_default_of_the_library(name: str) -> None:
    from sklearn.base import clone

    (model, parameters), *others = itertools.islice(getattr(scikit, name)("classification", 3), 4)
    final = model.named_steps["model"]
    defaults = type(final)().get_params()
    changed = {key for key, value in final.get_params().items() if value != defaults[key]}
    assert parameters == {}
    assert changed <= {"random_state", "n_jobs", "max_iter" if name == "linear" else "random_state"}
    for other, drawn in others:
        assert {key: clone(other).get_params()[key] for key in drawn if not key.startswith("columns")} == {
            key: value for key, value in drawn.items() if not key.startswith("columns")
        }


def job(contender: str, seconds: float = 1.0) -> dict[str, Any]:
    return {"contender": contender, "split": 0, "seconds": seconds, "cores": 2}


def test_searches_have_a_thread_for_each_process(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    class Popen:
        returncode = 0

        def __init__(self, command: list[str], env: dict[str, str], **_: Any) -> None:
            self.folder = Path(command[-1])
            assert command[0] == "python-of-the-peers"
            seen.append(env["OMP_NUM_THREADS"] + env["SHOAL_THREADS"])

        def communicate(self, timeout: float) -> tuple[str, str]:
            np.save(self.folder / "predictions.npy", np.zeros(2))
            return f'noise\n{LAST_LINE}{{"fit_seconds": 2.5, "predict_seconds": 0.1, "details": {{}}}}\n', ""

    monkeypatch.setattr(tabular_fit.subprocess, "Popen", Popen)
    for name in ENTRANTS:
        assert tabular_fit.run("python-of-the-peers", table([0.0] * 3 + [1.0] * 3), job(name))["loss"] > 0
    assert seen == ["11" if entrant.searched else "22" for entrant in ENTRANTS.values()]
    late = tabular_fit.run("python-of-the-peers", table([0.0] * 3 + [1.0] * 3), job("tabm", 0.8))
    assert late["error"] == "took 2 s instead of 0.8 s"
    assert "loss" not in late


def test_a_fit_that_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    real, started = subprocess.Popen, []

    def sleeper(command: list[str], **options: Any) -> Any:
        started.append(real(["sh", "-c", "setsid sleep 600 & sleep 600"], **options))
        return started[0]

    monkeypatch.setattr(tabular_fit.subprocess, "Popen", sleeper)
    monkeypatch.setattr(tabular_fit, "BESIDE", 0.2)
    begun = time.perf_counter()
    assert tabular_fit.run(sys.executable, table([0.0] * 6), job("linear", 0.1)) == {"error": "did not end within 0 s"}
    assert started[0].returncode == -signal.SIGKILL
    assert time.perf_counter() - begun < 60  # nothing holds the pipes any more


def test_a_fit_ends_with_the_benchmark_that_started_it(tmp_path: Path) -> None:
    """The child of a process that is killed ends itself."""
    child = "from benchmarks.peers.tabular.child import end_with_parent; end_with_parent(); import threading; "
    child += f"open({str(tmp_path / 'started')!r}, 'w').close(); threading.Event().wait()"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}], start_new_session=True)"
    process = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE)
    wait_until((tmp_path / "started").exists)
    process.kill()
    process.communicate(timeout=30)  # ends when nobody holds the pipe any more: neither the parent nor the child
