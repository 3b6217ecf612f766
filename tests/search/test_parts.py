"""Parts of `shoal search`: what is asked of a table, the folder of a run, and what its report is told."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

import shoal
from shoal import Member, ShoalClassifier
from shoal.metrics.metric import METRICS
from shoal.runs import folder as run_folder
from shoal.search import settings as run_settings
from shoal.search.arguments import threads_of
from shoal.search.honest import HonestScore
from shoal.search.space import Recipe, Space
from shoal.search.summary import honest_words
from shoal.tables.table import Table
from shoal.tables.target import find_target

# ---- the question ----


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        ([0, 1] * 30, "classification"),
        ([0, 1] * 5, "classification"),
        ([1, 2, 3] * 40, "classification"),
        ([1, 2, 3] * 4, "regression"),  # three values in twelve rows may be anything
        ([0.5, 1.5] * 50, "regression"),
        (list(range(30)) * 30, "regression"),
        (["good", "bad"] * 20, "classification"),
        ([True, False] * 10, "classification"),
        (["$1,200", "$950"] * 20, "classification"),
        ([f"${k},{k}00" for k in range(100, 140)], "regression"),
    ],
)
def test_the_task_is_guessed_from_the_target(cells, kind):
    table = Table.of({"x": list(range(len(cells))), "y": cells})
    assert find_target(table, "y").kind == kind


def test_rows_without_a_target_are_left_out_and_said_so():
    table = Table.of({"x": list(range(20)), "y": ["a", "b", None, "a"] * 5})
    question = find_target(table, "y")
    assert len(question.y) == len(question.X) == 15
    assert "5 rows left out: the target is missing there" in question.notes
    assert 2.0 not in question.X["x"]


def test_whole_numbers_as_classes_are_written_without_a_point():
    table = Table.of({"x": list(range(20)), "y": [1.0, 2.0] * 10})
    assert find_target(table, "y").y.dtype == np.int64


def test_free_text_is_no_target():
    table = Table.of({"x": list(range(40)), "y": [f"remark {k}" for k in range(40)]})
    with pytest.raises(ValueError, match="40 different strings in 40 rows"):
        find_target(table, "y")


# ---- the folder of a run ----


def test_a_run_folder_appears_whole_under_the_next_free_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number in (1, 2):
        with run_folder.RunFolder(None, "data") as folder:
            (folder.path / "file").write_text("x")
            assert not Path(f"shoal-runs/data-{number}").exists()
            assert folder.finish() == Path(f"shoal-runs/data-{number}")
    assert sorted(os.listdir("shoal-runs")) == ["data-1", "data-2"]


def test_a_name_taken_during_the_search_is_left_alone(tmp_path):
    with run_folder.RunFolder(tmp_path / "run", "data") as folder:
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "settings.json").write_text("somebody else's")
        assert folder.finish() == tmp_path / "run-1"
    assert (tmp_path / "run" / "settings.json").read_text() == "somebody else's"


def test_a_run_that_fails_leaves_no_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RuntimeError), run_folder.RunFolder(None, "data"):
        raise RuntimeError
    assert os.listdir() == []


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"format": "shoal-run", "version": 9}', '{"format": "shoal-run", "version": 1}']
)
def test_settings_that_are_not_whole_are_refused(tmp_path, text):
    (tmp_path / "settings.json").write_text(text)
    with pytest.raises(ValueError, match=r"settings\.json"):
        run_settings.read_settings(tmp_path)


# ---- the report's data ----


def fitted(kind, y, X, **settings):
    estimator = kind(recipes=3, seeds=2, epochs=4, cv=3, n_jobs=1, **settings)
    return estimator.fit(X, y)


@pytest.mark.parametrize("task", ["classification", "regression", "multilabel"])
def test_report_data_are_complete_and_agree_with_the_estimator(task):
    from sklearn.datasets import load_iris

    from shoal.report import search_page
    from shoal.search.summary import Context, chance, report_data

    found = load_iris()
    X = Table.of(found.data, [f"x{k}" for k in range(4)])
    y = {
        "classification": found.target,
        "regression": found.data[:, 0] + found.data[:, 2] ** 2,
        "multilabel": np.column_stack([found.target > 0, found.target == 1]).astype(int),
    }[task]
    kind = shoal.ShoalRegressor if task == "regression" else shoal.ShoalClassifier
    estimator = fitted(kind, y, X)
    data = report_data(estimator, X, Context("iris", "species", ["a note"], None, 3.0, {"reading": 0.1}))
    assert data["task"] == task
    assert data["search"]["networks"] == estimator.n_networks_
    assert data["score"]["corrected"] == estimator.honest_score_.corrected
    assert sum(part["weight"] for part in data["ensemble"]["parts"]) == pytest.approx(1)
    assert len(data["leaderboard"]["rows"]) == len(estimator.leaderboard_)
    assert data["curves"][0]["label"] == "best"
    assert len(data["curves"][0]["train"]) == len(data["curves"][0]["valid"]) == 4
    if task == "classification":
        counts = np.array(data["confusion"]["counts"])
        assert counts.sum(axis=1).tolist() == [50, 50, 50]  # every row once, equal ones too
        assert counts.trace() / 150 == pytest.approx(data["score"]["raw"], abs=1e-6)
        assert data["score"]["chance"] == pytest.approx(1 / 3)
        always = chance(estimator.result_.search.problem, METRICS["neg_log_loss"])
        assert always == pytest.approx(-np.log(3), abs=1e-3)
    if task == "regression":
        assert data["score"]["chance"] == pytest.approx(0, abs=1e-9)
        true, predicted = (np.array(data["residuals"][name]) for name in ("true", "predicted"))
        assert 1 - ((true - predicted) ** 2).mean() / true.var() > 0.5
        assert data["calibration"] is None
    else:
        bins = data["calibration"]["bins"]
        assert sum(one["count"] for one in bins) == (300 if task == "multilabel" else 150)
        assert all(0 <= one["observed"] <= 1 for one in bins)
    json.dumps(data, allow_nan=True)
    assert "iris" in search_page(data)


def test_the_space_in_words_has_what_was_tried_beside_it():
    from scipy import stats

    space = Space({
        "hidden": [(), (16,), (8, 8)], "batch_size": [128, 256], "learning_rate": stats.loguniform(1e-3, 3e-2),
        "dropout": stats.uniform(0, 0.5), "weight_decay": [0.0, 3.0], "warmup": stats.norm(), "activation": ["relu"],
    })  # fmt: skip
    anchor = Recipe(Member(hidden=(16,), batch_size=32, learning_rate=0.1, dropout=0.1, activation="mish"))
    assert space.describe([anchor]) == {
        "hidden": "linear, 16, 8x8",
        "batch_size": "32, 128, 256",
        "learning_rate": "0.001 to 0.03, drawn evenly on a logarithmic scale, 0.1",
        "dropout": "0 to 0.5, drawn evenly",
        "weight_decay": "0, 3",
        "warmup": "drawn from the distribution norm",
        "activation": "relu, mish",
    }


def test_one_time_is_not_one_times():
    honest = HonestScore("accuracy", 0.012, 0.01, 0.005, 0.02, 0.95, 200)
    said = honest_words(honest, 0.01, "y", 10)
    assert "about 1 right answer in 100" in said[0]
    assert "is right 1 time in 100" in said[1]


@pytest.mark.parametrize("jobs", [0, 5000, True, "2", 1.5])
def test_wrong_numbers_of_jobs_are_named_as_the_user_gave_them(jobs):
    X = np.random.default_rng(0).normal(size=(40, 2))
    with pytest.raises(ValueError, match=rf"^n_jobs must be a number of threads from 1 to 4096, .* got {jobs!r}$"):
        ShoalClassifier(n_jobs=jobs).fit(X, X[:, 0] > 0)


def test_minus_one_is_all_cores(monkeypatch):
    monkeypatch.setenv("SHOAL_THREADS", "4")
    assert [threads_of(jobs) for jobs in (None, 3, -1, -2, -9)] == [4, 3, 4, 3, 1]
