"""Thresholds that boosted trees propose."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.encoders.encoder import MOST_NUMBERS, Encoder
from shoal.encoders.thresholds import MOST_STEPS, Binned, find_thresholds
from shoal.metrics.tasks import REGRESSION, Task
from shoal.search.problem.data import TrainingData
from shoal.search.problem.problem import make_problem
from shoal.tables.schema import Schema
from shoal.tables.table import Table


def test_planted_thresholds_are_found_and_noise_has_few():
    generator = np.random.default_rng(0)
    X = generator.uniform(size=(600, 6))
    y = ((X[:, 1] > 0.3) & (X[:, 4] < 0.7)).astype(float)[:, None]
    place, above = find_thresholds(X, y, np.ones(600), 6)
    assert np.abs(above[place == 1] - 0.3).min() < 0.03
    assert np.abs(above[place == 4] - 0.7).min() < 0.03
    gains = [(place == j).sum() for j in range(6)]
    assert len(place) <= MOST_STEPS
    assert min(gains[1], gains[4]) >= 1


def test_an_interaction_without_main_effects_is_found():
    X = np.random.default_rng(1).uniform(-1, 1, size=(800, 4))
    y = (X[:, 0] * X[:, 2] > 0).astype(float)[:, None]
    place, above = find_thresholds(X, y, np.ones(800), 4)
    for column in (0, 2):
        assert np.abs(above[place == column]).min() < 0.1


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 80), st.integers(1, 5), st.integers(0, 999), st.integers(1, 3))
def test_weights_are_repeated_rows_and_zero_leaves_no_trace(rows, columns, seed, outputs):
    generator = np.random.default_rng(seed)
    X = np.round(generator.normal(size=(rows, columns)), 1)
    X[generator.random(X.shape) < 0.1] = np.nan
    y = generator.normal(size=(rows, outputs))
    weight = generator.integers(0, 2, rows).astype(float)
    weight[0] = 1.0
    wild = X.copy()
    wild[weight == 0] = 1e6
    one, two = find_thresholds(X, y, weight, columns), find_thresholds(wild, y, weight, columns)
    assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))
    place, above = one
    assert np.isfinite(above).all()
    for j, t in zip(place, above, strict=True):
        side = X[weight > 0, j] > t
        assert 0 < side.sum() < len(side), "a threshold has rows on both sides"
    assert (np.diff(place) >= 0).all()


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 200), st.integers(0, 999), st.sampled_from([0, 1, 8]))
def test_codes_are_comparisons(rows, seed, digits):
    generator = np.random.default_rng(seed)
    X = np.round(generator.normal(size=(rows, 2)), digits)
    X[generator.random(X.shape) < 0.2] = np.nan
    binned = Binned.of(X, np.ones(rows))
    for j in range(2):
        for b, threshold in enumerate(binned.thresholds[j]):
            assert np.array_equal(binned.codes[:, j] > b, X[:, j] > threshold)


@pytest.mark.parametrize("cells", [{"a": ["x", "y"] * 10}, {"a": ["x", "y"] * 10, "b": [1.0, 2.0] * 10}])
def test_columns_without_thresholds_have_no_steps(cells):
    table = Table.of(cells)
    (encoder,) = Encoder.fit_many(Schema.of(table), table, [np.ones(20)], [np.ones((20, 1))])
    assert not encoder.has("steps")
    assert "steps" not in encoder.transform(table)


def test_tables_of_very_many_numbers_have_no_steps_and_no_trees():
    """Trees of thousands of columns take seconds a fold, and these tables have the plain encoding alone."""
    X = np.random.default_rng(0).normal(size=(60, MOST_NUMBERS + 1))
    y = (X[:, :1] > 0).astype(float)
    for columns, found in ((MOST_NUMBERS, True), (MOST_NUMBERS + 1, False)):
        table = Table.of(X[:, :columns])
        (encoder,) = Encoder.fit_many(Schema.of(table, plain=True), table, [np.ones(60)], [y])
        assert encoder.has("steps") == found


def test_several_numbers_have_thresholds_whatever_their_units():
    X = np.random.default_rng(0).uniform(size=(400, 3))
    low, high = (X[:, 0] > 0.3).astype(float), X[:, 1] + np.sin(7 * X[:, 2])
    found = []
    for unit in (1.0, 1e6):
        table, y = Table.of(X), np.stack([low, unit * high], axis=1)
        data = TrainingData(Task(REGRESSION, 2), Schema.of(table, plain=True), table, y, np.ones(400))
        scaling = make_problem(data, [(np.arange(400), np.arange(400))]).encoders[0].scaling
        found.append((scaling.step_column, scaling.step_above))
        assert np.abs(scaling.step_above[scaling.step_column == 0] - 0.3).min() < 0.03
    np.testing.assert_array_equal(found[0][0], found[1][0])
    np.testing.assert_allclose(found[0][1], found[1][1])


def test_numbers_that_are_nearly_the_same_have_no_threshold_between_them():
    X = np.repeat([0.0, 1e-300, 2e-300, 1.0], 10)[:, None]
    y = (X > 0).astype(float)
    place, above = find_thresholds(X, y, np.ones(40), 1)
    assert place.tolist() == [0]
    np.testing.assert_allclose(above, [0.5])
