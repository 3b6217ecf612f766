"""The best of many random networks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr
from sklearn.linear_model import Ridge

from benchmarks.papers.parallel_mlps import random_networks as module
from benchmarks.papers.parallel_mlps.random_networks import lottery
from shoal import Member


def data(rows: int = 150, columns: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(seed).normal(size=(rows, columns))
    return X, (X[:, 0] + 0.5 * X[:, -1] > 0).astype(int)


@pytest.mark.parametrize("solve", [False, True])
def test_the_best_is_far_from_the_median_and_good_on_new_rows_too(solve):
    X, y = data(400)
    found = lottery(X, y, count=3000, solve=solve, trained=50, keep=20, epochs=5)
    assert found.scores.shape == (3000,)
    assert found.best == found.scores.max() > found.median + 0.02
    assert found.best_on_new_rows > 0.75
    assert len(found.winners) == 20
    assert len(found.trained_scores) == 70
    assert found.low < found.correlation < found.high
    text = str(found)
    assert f"best {found.best:.3f}" in text
    assert "rank correlation" in text


@pytest.mark.parametrize("solve", [False, True])
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_the_winners_are_given_back_as_they_were_scored(solve, task):
    X, _ = data(200)
    y = X[:, 0] > 0 if task == "classification" else X[:, 0]
    found = lottery(X, y, count=200, solve=solve, trained=10, keep=5, epochs=2, task=task)
    draw = module._Draw.of(
        module.prepare(module._Holder(), X, y, kind=task), module.DEFAULT, solve, 0, 1000, 1
    )  # fmt: skip
    rows = draw.new
    there = found.networks.evaluate(draw.inputs[rows], draw.data.target[rows]).score
    np.testing.assert_allclose(there, found.new_scores[:5], atol=1e-5)


@pytest.mark.parametrize("target", ["labels", "values"])
def test_winners_for_several_targets_are_given_back_as_they_were_scored(target):
    X, _ = data(200)
    y = np.column_stack([X[:, 0], X[:, 1] * X[:, 2] + 3])
    y = (y > 1).astype(int) if target == "labels" else y
    found = lottery(X, y, count=100, solve=True, trained=0, keep=5)
    draw = module._Draw.of(module.prepare(module._Holder(), X, y), module.DEFAULT, True, 0, 1000, 1)
    there = found.networks.evaluate(draw.inputs[draw.new], draw.data.target[draw.new]).score
    np.testing.assert_allclose(there, found.new_scores, atol=1e-5)


def test_a_network_that_diverged_makes_the_lead_unknown():
    assert np.isnan(module.difference(np.array([1.0, -np.inf]), np.array([0.0, 1.0]))).all()


def test_the_solved_layer_is_that_of_ridge_regression():
    random = np.random.default_rng(0)
    hidden, truth = random.normal(size=(3, 50, 4)), random.normal(size=(50, 2))
    found = module.ridge(hidden.astype(np.float32), truth)
    for layer, inputs in zip(found, hidden, strict=True):
        centred = inputs - inputs.mean(axis=0)
        model = Ridge(module.RIDGE * (centred**2).sum() / 4).fit(inputs, truth)
        np.testing.assert_allclose(layer[:-1], model.coef_.T, atol=1e-5)
        np.testing.assert_allclose(layer[-1], model.intercept_, atol=1e-5)


@settings(max_examples=6, deadline=None)
@given(st.integers(3, 80), st.integers(1, 5), st.integers(2, 4), st.integers(1, 40), st.booleans())
def test_neither_threads_nor_parts_change_a_bit(rows, columns, threads, at_once, solve):
    X = np.random.default_rng(rows).normal(size=(rows, columns))
    made = {"count": 90, "trained": 5, "keep": 5, "epochs": 1, "solve": solve, "task": "regression"}
    one = lottery(X, X[:, 0], n_jobs=1, **made)
    before, module.NETWORKS_AT_ONCE = module.NETWORKS_AT_ONCE, at_once
    try:
        other = lottery(X, X[:, 0], n_jobs=threads, **made)
    finally:
        module.NETWORKS_AT_ONCE = before
    np.testing.assert_array_equal(one.scores, other.scores)
    np.testing.assert_array_equal(one.trained_scores, other.trained_scores)
    assert one.winners == other.winners


def test_a_network_is_known_by_its_seed():
    X, y = data()
    found = lottery(X, y, count=50, trained=0, keep=1)
    member = found.networks.members[0]
    assert member.seed == found.first_seed + found.winners[0]
    assert np.isnan(found.correlation)


def test_random_labels_have_winners_only_on_the_rows_they_won_on():
    """The negative control: the best of many is far above chance where it was chosen, and not on new rows."""
    random = np.random.default_rng(0)
    X, y = random.normal(size=(300, 6)), random.integers(2, size=300)
    found = lottery(X, y, count=5000, trained=0, keep=50)
    assert found.best > 0.6
    assert abs(np.mean(found.new_scores[:50]) - 0.5) < 0.08


def test_intervals_of_a_rank_correlation_hold_in_95_of_100_cases():
    random, held = np.random.default_rng(0), 0
    truth = 6 / np.pi * np.arcsin(0.5 / 2)  # of a normal distribution with a correlation of one half
    for _ in range(400):
        one = random.normal(size=60)
        other = 0.5 * one + np.sqrt(0.75) * random.normal(size=60)
        value, low, high = module.correlation(one, other)
        assert value == pytest.approx(spearmanr(one, other).statistic)
        held += low < truth < high
    assert 0.92 < held / 400 < 0.98


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ({"count": 0}, "count must be a whole number"),
        ({"member": Member(hidden=()), "solve": True}, "solve=True needs a hidden layer"),
        ({"member": "tanh"}, "member must be of type Member"),
        ({"max_rows": 3}, "max_rows must be a whole number of at least 10; got 3"),
        ({"solve": 1}, "solve must be True or False"),
        ({"count": 10**12}, "count=1,000,000,000,000 would take about 24000 GB, and .* count can be at most"),
        ({"epochs": 0, "trained": 5}, "epochs must be a whole number"),
    ],
)
def test_what_a_user_can_mend_is_said(made, message):
    with pytest.raises(ValueError, match=message):
        lottery(*data(), **{"count": 20, "trained": 0} | made)


def test_too_few_rows_and_one_class_are_refused_and_missing_cells_are_not():
    with pytest.raises(ValueError, match="at least 3 different rows"):
        lottery([[0.0], [1.0]], [0, 1], count=5)
    with pytest.raises(ValueError, match="the target has 1 class"):
        lottery(np.arange(20.0)[:, None], ["a"] * 20, count=5)
    X, y = data()
    with pytest.raises(ValueError, match="lottery requires y to be passed"):
        lottery(X, None)
    X[::5, 1] = np.nan
    assert lottery(X, y, count=30, trained=0).best > 0.5
