"""Against a real MLflow store: what is there after a search, after a resumed one, and when the store is gone."""

from __future__ import annotations

import time

import numpy as np
import pytest

import shoal
from shoal import ShoalClassifier, ShoalRegressor
from shoal.callbacks import MLflow
from shoal.trackers import tracker as base

# MLflow and SQLAlchemy use what they call deprecated themselves.
pytestmark = [pytest.mark.filterwarnings(f"ignore::{kind}") for kind in ("DeprecationWarning", "FutureWarning")]


def test_a_search_has_parameters_scores_files_and_child_runs(model_with, store_uri, runs_in, rows, tmp_path):
    model = model_with(MLflow(store_uri))
    client, (run,), children = runs_in()
    assert run.info.status == "FINISHED"
    assert {name: run.data.params[name] for name in ("recipes", "folds", "metric")} == {
        "recipes": "4", "folds": "2", "metric": "r2",
    }  # fmt: skip
    metrics, honest = run.data.metrics, model.honest_score_
    found = [metrics[name] for name in ("honest_score", "honest_low", "honest_high", "measured_score")]
    assert np.allclose(found, [honest.corrected, honest.low, honest.high, honest.raw])
    steps = client.get_metric_history(run.info.run_id, "trained")
    assert [one.step for one in steps] == [*range(1, len(steps) + 1)]
    assert {child.data.tags["mlflow.parentRunId"] for child in children} == {run.info.run_id}
    assert sorted(child.data.metrics["score"] for child in children) == sorted(model.board_["score"])
    best = next(child for child in children if child.data.tags["shoal.rank"] == "1")
    assert best.data.params["learning_rate"] == str(model.best_member_.learning_rate)
    assert {file.path for file in client.list_artifacts(run.info.run_id)} == {"report.html", "leaderboard.csv", "model"}
    again = shoal.load(client.download_artifacts(run.info.run_id, "model", str(tmp_path)))
    assert np.array_equal(again.predict(rows[0]), model.predict(rows[0]))


def test_child_runs_are_limited(model_with, store_uri, runs_in, monkeypatch):
    monkeypatch.setattr(base, "MOST_RECIPES", 2)
    model_with(MLflow(store_uri))
    _, _, children = runs_in()
    assert {child.data.tags["shoal.rank"] for child in children} == {"1", "2"}
    assert base.MOST_RECIPES == 2


def test_no_more_than_a_hundred_child_runs_by_default():
    assert base.MOST_RECIPES == 100


class EndsAfter:
    """A callback that stops a search at a rung, as a killed process would not."""

    def __init__(self, rungs):
        self.left = rungs

    def step_ended(self, event):
        self.left -= 1
        return self.left <= 0


def test_a_resumed_search_continues_its_run(model_with, store_uri, runs_in, tmp_path):
    journal = {"journal": tmp_path / "journal", "recipes": 12}
    model_with(MLflow(store_uri), EndsAfter(1), **journal)
    client, (run,), first = runs_in()
    assert run.info.status == "KILLED"
    model = model_with(MLflow(store_uri), **journal)
    client, (same,), children = runs_in()
    assert same.info.run_id == run.info.run_id
    assert same.info.status == "FINISHED"
    assert len(children) == len(model.board_) == 12
    assert not {one.info.run_id for one in first} & {one.info.run_id for one in children}
    steps = [one.step for one in client.get_metric_history(run.info.run_id, "trained")]
    assert steps == sorted(set(steps)), "no rung is logged twice"
    assert len(steps) > 1


def test_another_search_in_the_same_journal_is_another_run(model_with, store_uri, runs_in, tmp_path):
    for seed in (0, 1):
        model_with(MLflow(store_uri), journal=tmp_path, budget=0.5, recipes=None, random_state=seed, epochs=None)
    _, runs, _ = runs_in()
    assert len(runs) == 2


def test_an_active_run_is_used_and_left_open(model_with, store_uri, runs_in):
    import mlflow

    mlflow.set_tracking_uri(store_uri)
    mlflow.set_experiment("shoal")
    with mlflow.start_run() as active:
        model_with(MLflow(store_uri))
        assert mlflow.active_run().info.run_id == active.info.run_id
        mlflow.log_metric("mine", 1.0)
    _, (run,), _ = runs_in()
    assert run.info.run_id == active.info.run_id
    assert {"mine", "honest_score"} <= set(run.data.metrics)


def test_more_searches_in_an_active_run_become_its_child_runs(store_uri, runs_in, rows):
    """Parameters of a run cannot change, and a second search must not remove what the first has logged."""
    import mlflow
    from sklearn.model_selection import cross_val_score

    mlflow.set_tracking_uri(store_uri)
    mlflow.set_experiment("shoal")
    quick = {"seeds": 1, "cv": 2, "n_jobs": 1, "epochs": 5, "explain_seconds": 0, "callbacks": [MLflow(store_uri)]}
    with mlflow.start_run() as active:
        ShoalRegressor(recipes=2, **quick).fit(*rows)
        cross_val_score(ShoalRegressor(recipes=3, **quick), *rows, cv=2)
    _, (run,), inner = runs_in()
    assert run.info.run_id == active.info.run_id
    assert run.data.params["recipes"] == "2"
    searches = [one for one in inner if "shoal.rank" not in one.data.tags]
    assert [(one.info.status, one.data.params["recipes"]) for one in searches] == [("FINISHED", "3")] * 2
    assert all(one.data.tags["mlflow.parentRunId"] == run.info.run_id for one in searches)
    assert len(inner) == 2 + 2 + 2 * 3


def test_a_store_that_is_gone_warns_once_and_changes_nothing(model_with):
    alone = model_with()
    with pytest.warns(UserWarning, match="does not get the rest of this run") as seen:
        model = model_with(MLflow("http://127.0.0.1:9"))
    assert len([one for one in seen if "does not get" in str(one.message)]) == 1
    assert np.array_equal(model.board_["score"], alone.board_["score"])


def test_the_store_that_mlflow_is_set_to_is_looked_at_too(model_with, store_uri, monkeypatch):
    """MLflow itself would try for minutes."""
    import mlflow

    monkeypatch.setattr("shoal.trackers.background.PATIENCE", 20.0)
    mlflow.set_tracking_uri("http://127.0.0.1:9")
    try:
        with pytest.warns(UserWarning, match="does not get the rest of this run: ConnectionRefusedError"):
            model_with(MLflow())
    finally:
        mlflow.set_tracking_uri(store_uri)


def test_a_full_disk_keeps_the_files_back_and_nothing_else(model_with, store_uri, runs_in, monkeypatch):
    def full(result, folder):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shoal.trackers.content.write_files", full)
    with pytest.warns(UserWarning, match="does not get the files of this run: .*No space left") as seen:
        model = model_with(MLflow(store_uri))
    assert len([one for one in seen if "does not get" in str(one.message)]) == 1
    client, (run,), children = runs_in()
    assert (run.info.status, len(children), client.list_artifacts(run.info.run_id)) == ("FINISHED", 4, [])
    assert run.data.metrics["honest_score"] == model.honest_score_.corrected


def test_what_the_user_has_logged_in_an_active_run_stays(model_with, store_uri, runs_in):
    import mlflow

    mlflow.set_tracking_uri(store_uri)
    mlflow.set_experiment("shoal")
    with mlflow.start_run():
        mlflow.log_param("recipes", "as many as there is time for")
        model_with(MLflow(store_uri))
    _, (run,), _ = runs_in()
    assert run.data.params["recipes"] == "as many as there is time for"
    assert run.data.params["folds"] == "2"
    assert "honest_score" in run.data.metrics


def test_a_resumed_search_whose_run_is_gone_for_good_begins_another_with_every_rung(
    model_with, store_uri, runs_in, tmp_path
):
    journal = {"journal": tmp_path / "journal", "recipes": 12}
    model_with(MLflow(store_uri), EndsAfter(1), **journal)
    client, (first,), children = runs_in()
    store = client._tracking_client.store
    for one in (first, *children):
        client.delete_run(one.info.run_id)
        store._hard_delete_run(one.info.run_id)  # as `mlflow gc` does
    model_with(MLflow(store_uri), **journal)
    client, (run,), _ = runs_in()
    assert run.info.run_id != first.info.run_id
    assert run.info.status == "FINISHED"
    steps = [one.step for one in client.get_metric_history(run.info.run_id, "trained")]
    assert steps == [*range(1, len(steps) + 1)]
    assert len(steps) > 1


def test_a_store_that_never_answers_holds_nothing_up(model_with, monkeypatch):
    """A server accepts connections and says nothing."""
    import socket

    monkeypatch.setattr("shoal.trackers.background.PATIENCE", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        with pytest.warns(UserWarning, match="did not answer for 0 s"):
            model = model_with(MLflow(address))
    assert len(model.board_) == 4


def test_a_failing_search_leaves_no_run_open(store_uri, runs_in, rows):
    class Fails:
        def step_ended(self, event):
            raise RuntimeError("a bug of the user's")

    tracker = MLflow(store_uri)
    with pytest.raises(RuntimeError):
        ShoalRegressor(recipes=2, seeds=1, cv=2, n_jobs=1, callbacks=[tracker, Fails()]).fit(*rows)
    tracker.close()
    _, (run,), _ = runs_in()
    assert run.info.status == "FAILED"


def test_clones_have_runs_of_their_own(model_with, store_uri, runs_in, rows):
    from sklearn.model_selection import cross_val_score

    tracker = MLflow(store_uri)
    model = model_with(tracker)
    assert len(cross_val_score(model, *rows, cv=2)) == 2
    _, runs, _ = runs_in()
    assert len(runs) == 3


def test_autologging_of_scikit_learn_gives_sensible_entries(store_uri, runs_in):
    """MLflow patches the classes of scikit-learn, so a pipeline around ours is logged: parameters, scores, a model."""
    mlflow = pytest.importorskip("mlflow")
    autolog = pytest.importorskip("mlflow.sklearn").autolog
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3))
    y = np.where(X[:, 0] > 0, "yes", "no")
    mlflow.set_tracking_uri(store_uri)
    mlflow.set_experiment("shoal")
    quick = {"recipes": 2, "seeds": 1, "cv": 2, "epochs": 5, "n_jobs": 1, "explain_seconds": 0}
    autolog(log_models=False, silent=True)
    try:
        made = make_pipeline(StandardScaler(), ShoalClassifier(**quick)).fit(X, y)
    finally:
        autolog(disable=True, silent=True)
    _, (run,), _ = runs_in()
    assert run.data.params["shoalclassifier__recipes"] == "2"
    assert run.data.metrics["training_accuracy_score"] == made.score(X, y)
    assert run.info.status == "FINISHED"


def test_logging_costs_training_little(store_uri):
    """The callbacks only put work into a queue: whatever the server does, they return at once."""

    class Slow(MLflow):
        def begin(self, parameters, run):
            time.sleep(0.3)
            return "begun"

        def log(self, step, scores):
            time.sleep(0.3)

    tracker = Slow(store_uri)
    begun = time.process_time()
    tracker.started(object())
    for _ in range(20):
        tracker.step_ended(object())
    assert tracker._background._waiting.qsize() > 10
    assert time.process_time() - begun < 1
    tracker._background.problem = "stop"
