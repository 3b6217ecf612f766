"""What the report of a search is told, and the honest score in words."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shoal
from shoal.metrics.metric import METRICS
from shoal.report.search.sections import guessing_warning
from shoal.search.results.report_data import honest_words
from shoal.search.scoring.honest import HonestScore
from shoal.tables.table import Table


def fitted(kind, y, X, **settings):
    estimator = kind(recipes=3, seeds=2, epochs=4, cv=3, n_jobs=1, **settings)
    return estimator.fit(X, y)


@pytest.mark.parametrize("task", ["classification", "regression", "multilabel"])
def test_report_data_are_complete_and_agree_with_the_estimator(task):
    from sklearn.datasets import load_iris

    from shoal.report import search_page
    from shoal.search.results.report_data import Context, chance, report_data

    found = load_iris()
    X = Table.of(found.data, [f"x{k}" for k in range(4)])
    y = {
        "classification": found.target,
        "regression": found.data[:, 0] + found.data[:, 2] ** 2,
        "multilabel": np.column_stack([found.target > 0, found.target == 1]).astype(int),
    }[task]
    kind = shoal.ShoalRegressor if task == "regression" else shoal.ShoalClassifier
    estimator = fitted(kind, y, X)
    data = report_data(estimator.result_, Context("iris", ["a note"], 3.0, {"reading": 0.1}))
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


def test_one_time_is_not_one_times():
    honest = HonestScore("accuracy", 0.012, 0.01, 0.005, 0.02, 0.95, 200)
    said = honest_words(honest, 0.01, "y", 10)
    assert "about 1 right answer in 100" in said[0]
    assert "is right 1 time in 100" in said[1]


@given(st.floats(0, 1), st.floats(-0.001, 0.001), st.floats(-0.001, 0.001), st.sampled_from([1, 2, 5000]))
def test_no_correction_is_said_to_be_zero(raw, luck, averaging, recipes):
    corrected = raw - luck + averaging
    honest = HonestScore("r2", raw, corrected, corrected - 1, corrected + 1, 0.95, 200, averaging=averaging)
    said = honest_words(honest, 0.0, "y", recipes)[-1]
    assert said.startswith(f"On held-out rows it scored {raw:.4f}.")
    assert "0.0000" not in said.removeprefix(f"On held-out rows it scored {raw:.4f}.")
    assert ("the best of" in said) == (luck >= 0.0001) or abs(luck - 0.0001) < 0.0001
    assert ("of all folds" in said) == (abs(averaging) >= 0.0001) or abs(averaging) < 0.0002


@given(st.floats(-5, 1), st.floats(0, 3), st.floats(0, 3), st.floats(-5, 1))
def test_guessing_is_said_to_be_where_it_is(corrected, below, above, guess):
    """Below the interval, inside it, or above it: the words on the screen and on the page agree."""
    honest = HonestScore("r2", corrected, corrected, corrected - below, corrected + above, 0.95, 200)
    said = " ".join(honest_words(honest, guess, "y", 10))
    page = str(guessing_warning({"chance": guess, "low": honest.low, "high": honest.high}))
    assert ("within the interval" in said) == (honest.low <= guess <= honest.high) == ("may be no better" in page)
    assert ("do not use" in said) == (guess > honest.high) == ("is worse" in page)


def test_the_report_says_each_thing_that_was_reduced():
    from shoal.report.search.sections import reductions
    from shoal.search.budget.shares import Effort

    effort = Effort(folds=2, encodings=("plain",), rows=500)
    said = "To save time, it used only 500 of the 2,000 rows, 2 folds, one encoding of numbers. "
    assert reductions(effort.as_dict(), 2000) == said
