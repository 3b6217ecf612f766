"""Effects of columns, pairs that act together, columns that are alike."""

from __future__ import annotations

import datetime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as draw
from sklearn.inspection import partial_dependence
from support.tables import columns

from shoal.explain.alike import alike_groups, association
from shoal.explain.effects import Dependence, grid_table, h_statistic, make_grid
from shoal.explain.networks import FoldNetworks
from shoal.tables.schema import Schema
from shoal.tables.table import Table


def dependence(model, X, places, most=9):
    table = model.schema_.check(Table.of(X))
    grids = [make_grid(table, j, "number", most) for j in places]
    return Dependence(model.model_, grids, table, lambda fold: FoldNetworks(model.model_, fold, 1).encode(table), 1)


def test_partial_dependence_is_that_of_scikit_learn(numbers):
    model, X, _ = numbers
    found = dependence(model, X, [0, 1]).curves(None, [0])
    for j, effect in enumerate(found):
        grid = {j: np.array(effect.values)}
        theirs = partial_dependence(model, X, [j], custom_values=grid, method="brute", kind="average")
        assert np.allclose(effect.mean, theirs["average"][0], atol=1e-5)
        assert all(low <= mean <= high for low, mean, high in zip(effect.low, effect.mean, effect.high, strict=True))
    joint = dependence(model, X, [0, 1], 5).pairs(None, [0])[0]
    for a, row in zip(joint.values[0], joint.mean, strict=True):
        told = [model.predict(np.column_stack([np.tile([a, b], (len(X), 1)), X[:, 2]])).mean() for b in joint.values[1]]
        assert np.allclose(row, told, atol=1e-5)


def test_the_pair_that_acts_together_is_found(numbers):
    model, X, _ = numbers
    pairs = dependence(model, X, [0, 1, 2], 6).pairs(None, [0])
    assert pairs[0].columns == ("x0", "x1")
    assert pairs[0].strength > 0.3
    assert [round(pair.strength, 6) for pair in pairs] == sorted((round(p.strength, 6) for p in pairs), reverse=True)


@settings(max_examples=30, deadline=None)
@given(draw.integers(2, 6), draw.integers(2, 6), draw.integers(1, 3), draw.integers(0, 999))
def test_columns_that_add_have_no_interaction_and_a_pure_product_has_nothing_else(a, b, outputs, seed):
    random = np.random.default_rng(seed)
    one, other = random.normal(size=(a, outputs)), random.normal(size=(b, outputs))
    share = np.full((a, b), 1 / (a * b))
    assert h_statistic(one[:, None] + other[None], one, other, share) < 1e-5
    one, other = one - one.mean(axis=0), other - other.mean(axis=0)
    product = one[:, None] * other[None]
    assert h_statistic(product, product.mean(axis=1), product.mean(axis=0), share) == pytest.approx(1)


def test_grids_of_every_kind_can_be_encoded():
    table = Table.of(columns())
    schema = Schema.of(table)
    checked = schema.check(table)
    kinds = {column.name: column.kind for column in schema.used}
    grids = {name: make_grid(checked, j, kinds[name], 7) for j, name in enumerate(checked.names)}
    assert grids.pop("told") is None  # nobody sets a text to a value
    assert len(grids["size"].shown) == 7
    assert grids["count"].shown != tuple(range(9))  # nine different values are more than seven
    assert grids["open"].shown == ("no", "yes")
    assert set(grids["colour"].shown) == {"red", "green", "blue"}
    assert sum(grids["colour"].rug) == pytest.approx(np.mean([one is not None for one in columns()["colour"]]))
    first = datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=grids["day"].shown[0])
    assert first.year == 2020
    assert grids["size"].nearest[3] == -1  # missing
    made = schema.check(grid_table(checked, list(grids.values())))
    assert len(made) == 7
    assert (made["size"] == grids["size"].cells).all()


def test_a_column_of_one_value_has_no_effect_to_show():
    assert make_grid(Table.of([[1.0], [1.0]]), 0, "number", 5) is None


# ---- columns that are alike


@settings(max_examples=20, deadline=None)
@given(draw.integers(60, 400), draw.integers(0, 999), draw.booleans())
def test_copies_are_found_and_strangers_are_not(rows, seed, as_words):
    random = np.random.default_rng(seed)
    a, b, c = random.normal(size=(3, rows))
    copy = np.where(a > 0, "high", "low") if as_words else np.exp(a)
    original = (a > 0).astype(float) if as_words else a
    table = Table.of({"a": original, "b": b, "copy": copy, "c": c})
    assert alike_groups(table) == [[0, 2]]


def test_association_is_between_nothing_and_everything():
    table = Schema.of(Table.of(columns())).check(Table.of(columns()))
    found = association(table)
    assert found.shape == (7, 7)
    assert (found >= 0).all()
    assert (found <= 1).all()
    assert np.allclose(found, found.T)
    assert alike_groups(table) == []
    assert alike_groups(table.select([0])) == []
