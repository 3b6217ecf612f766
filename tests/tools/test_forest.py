"""Forests of networks: scikit-learn's rules, bags, out-of-bag predictions, odd input."""

import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_diabetes, make_multilabel_classification
from sklearn.utils.estimator_checks import parametrize_with_checks

from shoal import Member, ShoalForestClassifier, ShoalForestRegressor
from shoal.tools import forest as module


@parametrize_with_checks([ShoalForestClassifier(30, epochs=40), ShoalForestRegressor(30, epochs=40)])
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


def table(rows: int, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """Numbers, words and missing cells; the label depends on a number and on the word."""
    random = np.random.default_rng(seed)
    frame = pd.DataFrame(random.normal(size=(rows, 3)), columns=["a", "b", "c"])
    frame["word"] = random.choice(["red", "green", "blue"], rows)
    y = np.where(frame["a"] + 2 * (frame["word"] == "red") > 0.5, "yes", "no")
    frame.loc[frame.index % 7 == 0, "b"] = np.nan
    return frame, y


def weights(model: object) -> np.ndarray:
    return model.model_.networks["plain"].state.parameters  # type: ignore[attr-defined]


def test_a_forest_reads_tables_and_is_pickled():
    X, y = table(300)
    model = ShoalForestClassifier(40).fit(X, y)
    assert 0.9 < model.oob_score_ <= 1
    assert model.oob_decision_function_.shape == (300, 2)
    assert model.n_networks_ == 40
    same = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(same.predict_proba(X[::-1]), model.predict_proba(X[::-1]))


@settings(max_examples=6, deadline=None)
@given(st.integers(20, 90), st.integers(1, 12), st.integers(2, 4), st.integers(1, 400), st.integers(0, 5))
def test_neither_threads_nor_parts_nor_the_other_networks_change_a_bit(rows, count, threads, at_once, seed):
    X, y = table(rows, seed)
    made = {"member": Member(hidden=5, batch_size=8), "epochs": 3, "random_state": seed, "oob_score": False}
    one = ShoalForestClassifier(count, n_jobs=1, **made).fit(X, y)
    before, module.ROWS_AT_ONCE = module.ROWS_AT_ONCE, at_once
    try:
        other = ShoalForestClassifier(count, n_jobs=threads, **made).fit(X, y)
    finally:
        module.ROWS_AT_ONCE = before
    more = ShoalForestClassifier(count + 3, n_jobs=threads, **made).fit(X, y)
    np.testing.assert_array_equal(weights(one), weights(other))
    np.testing.assert_array_equal(weights(one), weights(more)[: len(weights(one))])
    np.testing.assert_array_equal(one.predict_proba(X), other.predict_proba(X))


def test_the_out_of_bag_score_is_that_of_the_parts_whatever_they_are(monkeypatch):
    X, y = table(60)
    whole = ShoalForestClassifier(30, epochs=3).fit(X, y).oob_decision_function_
    monkeypatch.setattr(module, "ROWS_AT_ONCE", 100)
    monkeypatch.setattr(module, "CELLS_AT_ONCE", 500)
    np.testing.assert_array_equal(ShoalForestClassifier(30, epochs=3, n_jobs=1).fit(X, y).oob_decision_function_, whole)


def test_out_of_bag_predictions_are_of_networks_that_did_not_see_the_row():
    X, y = load_diabetes(return_X_y=True)
    X, y = X[:50], y[:50]
    model = ShoalForestRegressor(30, epochs=5).fit(X, y)
    data = module.prepare(ShoalForestRegressor(), X, y, kind="regression")
    drawing = module._Bags.of(model, data)
    row = 17
    mine = [k for k in range(30) if data.row_of[row] in drawing.rows(k).valid]
    assert 3 < len(mine) < 25
    raw = model.model_.networks["plain"].predict(data.inputs[data.row_of[[row]]], mine)
    np.testing.assert_allclose(
        data.scaling.back(data.task, raw).mean(axis=0)[0, 0], model.oob_prediction_[row], rtol=1e-6
    )


def test_random_labels_have_an_out_of_bag_score_of_chance_also_where_rows_come_twice():
    """The negative control: the training score is far above it, and a twin in the bag would give the label away."""
    random = np.random.default_rng(3)
    X, y = random.normal(size=(150, 8)), random.integers(2, size=150)
    X, y = np.concatenate([X, X]), np.concatenate([y, y])
    model = ShoalForestClassifier(60, epochs=60).fit(X, y)
    assert model.score(X, y) > 0.9
    assert 0.35 < model.oob_score_ < 0.62


@pytest.mark.parametrize(
    ("asked", "seen"), [(2, 2), (0.5, 2), ("sqrt", 2), ("log2", 2), (None, 4), (1.0, 4), (0.01, 1)]
)
def test_each_network_sees_so_many_columns_with_all_their_inputs(asked, seen):
    X, y = table(80)
    model = ShoalForestClassifier(25, max_features=asked, epochs=1).fit(X, y)
    assert {len(columns) for columns in model.estimators_features_} == {seen}
    encoder = model.model_.folds[0].encoder
    for member, columns in zip(model.model_.networks["plain"].members, model.estimators_features_, strict=True):
        names = {encoder.feature_names[k].split()[0] for k in member.features}
        assert names == {list(X)[j] for j in columns}
    if seen < 4:
        assert len({tuple(columns) for columns in model.estimators_features_}) > 1


def test_recipes_take_turns():
    X, y = table(60)
    recipes = [Member(hidden=3), Member(hidden=(), activation="tanh")]
    model = ShoalForestClassifier(5, member=recipes, epochs=1, oob_score=False).fit(X, y)
    assert [member.hidden for member in model.model_.networks["plain"].members] == [(3,), (), (3,), (), (3,)]


def test_several_labels_and_several_numbers():
    X, y = make_multilabel_classification(120, n_features=6, n_classes=3, random_state=0)
    model = ShoalForestClassifier(20).fit(X, y)
    assert model.predict(X).shape == model.oob_decision_function_.shape == (120, 3)
    numbers = ShoalForestRegressor(20).fit(X, X[:, :2])
    assert numbers.predict(X).shape == numbers.oob_prediction_.shape == (120, 2)
    assert numbers.score(X, X[:, :2]) > 0.8


def test_two_rows_will_do_and_rows_in_every_bag_are_told():
    X, y = np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([0, 1])
    with pytest.warns(UserWarning, match="in every bag"):
        model = ShoalForestClassifier(1).fit(np.repeat(X, 1, axis=0), y)
    assert model.predict(X).shape == (2,)
    model = ShoalForestClassifier(30).fit(X, y)
    assert np.isfinite(model.oob_decision_function_).all()


def test_a_table_without_a_usable_column_predicts_the_mean():
    model = ShoalForestRegressor(20, epochs=30).fit(np.ones((20, 2)), np.arange(20.0))
    assert model.predict(np.ones((3, 2))) == pytest.approx(9.5, abs=2)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ({"n_estimators": 0}, "n_estimators must be a whole number from 1 to 10000000; got 0"),
        ({"n_estimators": 2.5}, "n_estimators must be a whole number"),
        ({"max_features": 0}, "max_features must be a whole number from 1 to 4, or a share"),
        ({"max_features": 5}, "max_features must be a whole number from 1 to 4, or a share above 0 and at most 1.0"),
        ({"max_features": 0.0}, "max_features must be a share"),
        ({"max_features": "sqr"}, "max_features must be one of sqrt, log2; got 'sqr'; did you mean 'sqrt'"),
        ({"max_samples": 1.5}, "max_samples must be a share above zero and at most 1; got 1.5"),
        ({"max_samples": "half"}, "max_samples must be"),
        ({"bootstrap": False, "oob_score": True}, "oob_score=True needs bootstrap=True"),
        ({"member": []}, "member must be a shoal.Member or a list of them"),
        ({"member": Member(features=(0,))}, "a member's features are chosen here"),
        ({"member": Member(patience=2)}, "has no patience; set epochs"),
        ({"member": Member(optimizer="sgd", learning_rate=1e30)}, "every network diverged"),
        ({"n_jobs": 0}, "n_jobs must be a number of threads"),
    ],
)
def test_what_a_user_can_mend_is_said(made, message):
    with pytest.raises(ValueError, match=message):
        ShoalForestClassifier(**{"n_estimators": 3, "epochs": 2} | made).fit(*table(40))


def test_one_class_and_a_missing_target_are_refused():
    X, _ = table(20)
    with pytest.raises(ValueError, match="the target has 1 class: a"):
        ShoalForestClassifier(3).fit(X, ["a"] * 20)
    with pytest.raises(ValueError, match="requires y to be passed"):
        ShoalForestClassifier(3).fit(X, None)
    with pytest.raises(ValueError, match="the target y holds others: use a classifier"):
        ShoalForestRegressor(3).fit(X, ["a", "b"] * 10)
    with pytest.raises(ValueError, match="contains infinity"):
        ShoalForestRegressor(3).fit(X, [np.inf] * 20)


def test_more_networks_than_fit_are_refused_before_any_is_drawn(monkeypatch):
    monkeypatch.setattr("shoal.population.memory.available_memory", lambda: 1_500_000)
    with pytest.raises(
        ValueError, match=r"n_estimators=600 would take about 1.8 MB, .* n_estimators can be at most 500"
    ):
        ShoalForestClassifier(600).fit(*table(40))


def test_copies_of_rows_do_not_go_unnoticed():
    """Labels are random: equal rows are one, and nearly equal ones are named."""
    random = np.random.default_rng(0)
    X, y = np.repeat(random.normal(size=(100, 4)), 5, axis=0), np.repeat(random.integers(0, 2, 100), 5)
    assert ShoalForestClassifier(30, epochs=40).fit(X, y).oob_score_ < 0.7
    with pytest.warns(UserWarning, match="500 of 500 rows repeat each other.*remove the copies first"):
        ShoalForestClassifier(30, epochs=40).fit(X + 1e-6 * random.normal(size=X.shape), y)
