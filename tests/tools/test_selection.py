"""The selector of columns: what it finds, what it must not find, odd input."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, spearmanr
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from shoal import FeatureSelector, Member, ShoalForestRegressor
from shoal.tools import selection as module
from shoal.tools.prepared import folds_of, prepare

QUICK = {"max_masks": 64, "epochs": 20}


@pytest.mark.filterwarnings("ignore:No features were selected")
@parametrize_with_checks([FeatureSelector(max_masks=256, epochs=5, member=Member(hidden=4))])
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


def signal(rows: int, columns: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The first column matters alone, the next two only together."""
    X = np.random.default_rng(seed).normal(size=(rows, columns))
    return X, np.sign(X[:, 0] * 1.2 + 2 * (X[:, 1] * X[:, 2] > 0) - 1).astype(int)


@given(rows=st.integers(4, 40), more=st.integers(1, 500), classes=st.booleans(), repeated=st.integers(1, 2))
@settings(max_examples=25, deadline=None)
def test_more_folds_than_fit_are_refused_with_how_many_do(rows, more, classes, repeated):
    """Never fewer folds than were asked for."""
    X = np.random.default_rng(0).normal(size=(rows, 2))
    y = np.arange(rows) % 2 if classes else X[:, 0]
    X, y = np.repeat(X, repeated, axis=0), np.repeat(y, repeated)
    most = -(-rows // 2) if classes else rows
    kind = "classification" if classes else "regression"
    with pytest.raises(ValueError, match=rf"{most + more} folds are too many: .* give at most {most} folds"):
        FeatureSelector(cv=most + more, task=kind).fit(X, y)
    data = prepare(FeatureSelector(), X, y, kind=kind, kinds=None)
    assert [len(folds_of(data, number, 0)) for number in (2, most)] == [2, most]
    assert len(folds_of(data, None, 0)) == min(5, most)


def test_columns_that_matter_alone_and_only_together_are_found():
    X, y = signal(200, 6, 0)
    selector = FeatureSelector(epochs=40).fit(X, y)
    assert selector.get_support().tolist() == [True] * 3 + [False] * 3
    assert (selector.intervals_[:, 0] < selector.importances_).all()
    assert (selector.importances_ < selector.intervals_[:, 1]).all()
    assert selector.n_networks_ == 5 * selector.n_masks_
    assert "narrow no interval" in selector.stopped_
    assert (selector.masks_error_ < np.diff(selector.intervals_)[:, 0] / 4).all(), "few of the errors come from masks"


def selected_share(seeds: int, epochs: int, signal: float = 0.0) -> tuple[int, int]:
    """How many columns are selected, of how many: of noise, or of noise with a little signal in it."""
    found = 0
    for seed in range(seeds):
        random = np.random.default_rng(seed)
        y = random.integers(2, size=60)
        X = random.normal(size=(60, 6)) + signal * y[:, None]
        found += FeatureSelector(random_state=seed, max_masks=64, epochs=epochs).fit(X, y).support_.sum()
    return int(found), 6 * seeds


def test_noise_is_not_selected_more_often_than_the_level_says():
    found, count = selected_share(60, 6)
    assert found <= binom.ppf(0.999, count, 0.05)


def test_the_control_can_fail_where_columns_know_a_little():
    found, count = selected_share(10, 6, signal=0.7)
    assert found > binom.ppf(0.999, count, 0.05)


def test_noise_beside_an_easy_signal_is_not_selected():
    """Larger networks are more certain: columns of noise seem to be worth having there if masks leave columns out."""
    found = 0
    for seed in range(5):
        random = np.random.default_rng(seed)
        y = np.arange(120) % 2
        X = np.column_stack([6.0 * y + random.normal(size=120), random.normal(size=(120, 5))])
        found += FeatureSelector(random_state=seed, max_masks=128, epochs=15).fit(X, y).support_[1:].sum()
    assert found <= binom.ppf(0.999, 25, 0.05)


def test_importances_agree_with_permutation_importance():
    random = np.random.default_rng(1)
    X = random.normal(size=(400, 6))
    y = X @ np.array([3.0, 2.0, 1.2, 0.6, 0.0, 0.0]) + random.normal(size=400)
    selector = FeatureSelector(**QUICK).fit(X[:300], y[:300])
    forest = ShoalForestRegressor(40, max_features=None).fit(X[:300], y[:300])
    theirs = permutation_importance(forest, X[300:], y[300:], random_state=0).importances_mean
    assert spearmanr(selector.importances_[:4], theirs[:4]).statistic == 1
    assert selector.importances_[4:].max() < selector.importances_[:4].min()


def test_masks_are_balanced_in_pairs_of_columns():
    X, y = signal(40, 5, 0)
    selector = FeatureSelector()
    study = module._Study.of(selector, module.prepare(selector, X, y))
    for block in range(3):
        masks = study.masks(block)
        signs = np.where(masks, 1, -1)
        np.testing.assert_array_equal(signs.T @ signs, len(masks) * np.eye(5))
        np.testing.assert_array_equal(signs.sum(axis=0), np.zeros(5))
    assert not np.array_equal(study.masks(0), study.masks(1))


@settings(max_examples=6, deadline=None)
@given(st.integers(15, 60), st.integers(1, 9), st.integers(2, 4), st.integers(0, 9))
def test_neither_threads_nor_parts_change_a_bit(rows, columns, threads, seed):
    X = np.random.default_rng(seed).normal(size=(rows, columns))
    made = {"max_masks": 128, "epochs": 2, "member": Member(hidden=3), "random_state": seed, "task": "regression"}
    one = FeatureSelector(n_jobs=1, **made).fit(X, X[:, 0]).intervals_
    before, module.NETWORKS_AT_ONCE = module.NETWORKS_AT_ONCE, 1
    try:
        other = FeatureSelector(n_jobs=threads, **made).fit(X, X[:, 0]).intervals_
    finally:
        module.NETWORKS_AT_ONCE = before
    np.testing.assert_array_equal(one, other)


def test_frames_stay_frames_in_a_pipeline_and_a_word_is_one_column():
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"noise": random.normal(size=200), "word": random.choice(["a", "b", "c"], 200)})
    frame["size"] = np.where(random.random(200) < 0.1, np.nan, random.normal(size=200))
    frame["constant"] = 1.0
    y = np.where((frame["word"] == "a") ^ (frame["size"] > 0), "yes", "no")
    selector = FeatureSelector(**QUICK).fit(frame, y)
    assert list(selector.transform(frame)) == ["word", "size"] == list(selector.get_feature_names_out())
    assert selector.intervals_[3].tolist() == [0, 0]
    numbers = frame[["noise", "size"]].fillna(0)
    pipeline = make_pipeline(FeatureSelector(**QUICK), LogisticRegression()).fit(numbers, numbers["size"] > 0)
    assert pipeline.score(numbers, numbers["size"] > 0) > 0.95
    assert pipeline[-1].n_features_in_ == 1


def test_one_column_is_compared_with_none():
    X = np.random.default_rng(0).normal(size=(80, 1))
    assert FeatureSelector(**QUICK).fit(X, X[:, 0] > 0).support_.tolist() == [True]


def test_nothing_selected_is_a_warning():
    random = np.random.default_rng(0)
    X = random.normal(size=(40, 2))
    selector = FeatureSelector(**QUICK).fit(X, random.integers(2, size=40))
    with pytest.warns(UserWarning, match="No features were selected"):
        assert selector.transform(X).shape == (40, 0)


def test_a_row_of_weight_two_is_the_row_twice():
    X, y = signal(30, 3, 0)
    weight = np.arange(30) % 3
    one = FeatureSelector(**QUICK).fit(X, y, sample_weight=weight)
    other = FeatureSelector(**QUICK).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    np.testing.assert_array_equal(one.intervals_, other.intervals_)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ({"level": 0.0}, "level must be a positive number below 1; got 0.0"),
        ({"max_masks": 10}, "max_masks must be at least 64 for so many columns; got 10"),
        ({"max_masks": 0}, "max_masks must be a whole number"),
        ({"task": "regresion"}, "task must be one of classification, regression; got 'regresion'; did you mean"),
        ({"task": "classification"}, "Unknown label type: continuous"),
        ({"member": Member(learning_rate=1e30, optimizer="sgd")}, "some networks diverged"),
        ({"epochs": 0}, "epochs must be a whole number"),
        ({"member": Member(patience=2)}, "has no patience; set epochs"),
        ({"cv": [(np.arange(20), np.arange(20, 31))]}, "folds must name rows from 0 to 29; got 20 to 30"),
        ({"cv": [(np.arange(20), np.arange(7, 30))]}, "must not be scored on rows that it is trained on; row 7 is in"),
        ({"cv": [(np.arange(20), np.array([-1]))]}, "folds must name rows from 0 to 29; got -1 to -1"),
    ],
)
def test_what_a_user_can_mend_is_said(made, message):
    X = np.random.default_rng(0).normal(size=(30, 3))
    with pytest.raises(ValueError, match=message):
        FeatureSelector(**QUICK | made).fit(X, X[:, 0] + 0.5)


def test_a_table_that_does_not_fit_is_refused_before_anything_is_trained(monkeypatch):
    monkeypatch.setattr("shoal.tools.selection.available_memory", lambda: 30_000)
    monkeypatch.setattr("shoal.tools.prepared.Population", None)
    with pytest.raises(ValueError, match=r"3 columns of 100 rows would take about 84.0 kB, .* about 35 rows"):
        FeatureSelector(**QUICK).fit(*signal(100, 3, 0))


def test_one_class_is_refused_and_two_rows_will_do():
    X = np.random.default_rng(0).normal(size=(20, 3))
    with pytest.raises(ValueError, match="the target has 1 class"):
        FeatureSelector().fit(X, ["a"] * 20)
    assert not FeatureSelector(**QUICK).fit(X[:2], [0.0, 1.5]).support_.any()
