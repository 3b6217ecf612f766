"""Shapley values: they sum to what they should, sampling agrees with counting, and errors are as large as they say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as draw
from support.tables import columns

import shoal
from shoal.explain.shapley import Game, exact_values, games_of, sampled_values


def game(columns, rows, others, seed):
    """Any function of the columns of rows, with products in it; what a mixture of two rows gives."""
    random = np.random.default_rng(seed)
    X, Z = random.normal(size=(rows, columns)), random.normal(size=(others, columns))
    linear, products = random.normal(size=(columns, 2)), random.normal(size=(columns, columns, 2))

    def of(cells):
        pairs = np.einsum("qa,qb,abo->qo", cells, cells, products)
        return np.sin(cells) @ linear + pairs + cells.prod(axis=1, keepdims=True)

    def predict(row, other, own):
        return of(np.where(own, X[row], Z[other]))

    return Game(predict, of(X), of(Z))


@settings(max_examples=25, deadline=None)
@given(draw.integers(1, 6), draw.integers(1, 4), draw.integers(2, 7), draw.integers(1, 9), draw.integers(0, 999))
def test_values_sum_to_the_prediction_less_the_mean(columns, rows, others, pairs, seed):
    one = game(columns, rows, others, seed)
    values, error, walks = sampled_values(one, [one], columns, pairs, seed)
    assert walks == 2 * pairs
    wanted = one.rows - one.background.mean(axis=0)
    assert np.allclose(values.sum(axis=1), wanted)
    assert values.shape == error.shape == (rows, columns, 2)
    assert np.allclose(exact_values(one, columns).sum(axis=1), wanted)


def test_samples_are_near_exact_values_and_errors_are_honest():
    """Of 3,000 differences from the exact values, in standard errors, few are large."""
    found = []
    for seed in range(25):
        one = game(5, 12, 30, seed)
        exact = exact_values(one, 5)
        values, error, _ = sampled_values(one, [one], 5, 24, seed)
        found.append((values - exact) / error)
    found = np.concatenate(found)
    assert abs(found.mean()) < 0.1
    assert 0.9 < (np.abs(found) < 2.1).mean() <= 1.0
    assert 0.3 < found.std() < 1.15


def test_exact_values_are_those_of_the_definition():
    """Of all orders of three columns."""
    from itertools import permutations

    one = game(3, 2, 4, 7)
    wanted = np.zeros((2, 3, 2))
    for order in permutations(range(3)):
        for row in range(2):
            own = np.zeros((4, 3), dtype=bool)
            before = one.background.mean(axis=0)
            for column in order:
                own[:, column] = True
                now = one.predict(np.full(4, row), np.arange(4), own).mean(axis=0)
                wanted[row, column] += (now - before) / 6
                before = now
    assert np.allclose(exact_values(one, 3), wanted)


def test_a_column_without_effect_adds_nothing_and_two_alike_add_the_same():
    def predict(row, other, own):
        return (own[:, 0] & own[:, 1]).astype(float)[:, None]

    values = exact_values(Game(predict, np.ones((1, 1)), np.zeros((1, 1))), 3)[0, :, 0]
    assert values.tolist() == pytest.approx([0.5, 0.5, 0.0])


# ---- estimators


@pytest.mark.parametrize("rows", [1, 3])
def test_an_estimator_explains_rows_of_any_kind_of_column(mixed, rows):
    X = {name: cells[:rows] for name, cells in columns(5).items()}
    found = mixed.explain(X)
    assert found.columns == tuple(columns())
    assert found.values.shape == found.error.shape == (rows, 7, len(mixed.classes_))
    assert np.allclose(found.prediction, mixed.predict_proba(X), atol=1e-9)
    assert np.allclose(found.values.sum(axis=1), found.prediction - found.mean)
    assert np.allclose(found.values.sum(axis=2), 0, atol=1e-9)  # probabilities sum to one
    assert np.allclose(found.mean, mixed.predict_proba(mixed.background_).mean(axis=0))
    exact = mixed.explain(X, exact=True, background=columns(6, 4))
    again = mixed.explain(X, background=columns(6, 4))
    assert (np.abs(again.values - exact.values) <= 5 * again.error + 1e-6).all()
    assert (exact.error == 0).all()
    one = found.of(2)
    assert one.values.shape == (rows, 7)
    assert "7 columns" in repr(found)


def test_one_number_has_one_axis_less_and_the_same_call_gives_the_same(numbers):
    model, X, _ = numbers
    found = model.explain(X[:4])
    assert found.values.shape == (4, 3)
    assert found.outputs is None
    assert np.allclose(found.prediction, model.predict(X[:4]))
    assert (model.explain(X[:4]).values == found.values).all()
    quick = model.explain(X[:4], seconds=0)
    assert quick.walks == 4  # two pairs at least
    assert np.allclose(quick.values.sum(axis=1), quick.prediction - quick.mean)


def test_mistakes_are_sentences(mixed, numbers):
    model, X, _ = numbers
    row = {name: cells[:1] for name, cells in columns(5).items()}
    del row["colour"]
    with pytest.raises(shoal.errors.UserError, match="'colour' is missing"):
        mixed.explain(row)
    with pytest.raises(ValueError, match="seconds must be a number of seconds of at least 0; got -1"):
        model.explain(X, seconds=-1)
    with pytest.raises(ValueError, match="background must have at least 2 rows to compare with; got 1"):
        model.explain(X, background=X[:1])
    wide = np.random.default_rng(0).normal(size=(60, 9))
    nine = shoal.ShoalRegressor({"hidden": [()], "epochs": [2]}, recipes=1, seeds=1, cv=2).fit(wide, wide[:, 0])
    with pytest.raises(ValueError, match=r"exact=True is for at most 8 columns.*the model uses 9: use exact=False"):
        nine.explain(wide[:1], exact=True)
    with pytest.raises(AttributeError, match="no importance_ yet: call fit first"):
        _ = shoal.ShoalRegressor().importance_


def test_walks_over_parts_of_the_folds_agree_with_the_whole_model():
    """Eight folds, two or three at a time."""
    X = np.random.default_rng(0).normal(size=(120, 4))
    space = {"hidden": [(6,)], "epochs": [15], "learning_rate": [0.03]}
    model = shoal.ShoalRegressor(space, recipes=1, seeds=1, cv=8, n_jobs=1).fit(X, X[:, 0] * X[:, 1] * X[:, 2])
    rows = model.schema_.check(model.background_)
    whole, parts = games_of(model.model_, rows, rows, 1, 0)
    assert len(parts) == 2
    assert np.allclose(np.mean([part.rows for part in parts], axis=0), whole.rows, atol=1e-6)
    found, exact = model.explain(X[:6]), model.explain(X[:6], exact=True)
    assert (np.abs(found.values - exact.values) <= 5 * found.error + 1e-4).all()
    assert np.allclose(found.values.sum(axis=1), model.predict(X[:6]) - found.mean)
