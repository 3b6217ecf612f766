"""Numbers, scaled and in pieces."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.encoders.scaling import NumberScaling


def test_numbers_know_no_rows_of_weight_zero_and_bend_outliers():
    generator = np.random.default_rng(0)
    values = generator.normal(size=(100, 3))
    weight = np.ones(100)
    weight[50:] = 0
    before = NumberScaling.fit(values, weight)
    values[50:] = 1e9
    after = NumberScaling.fit(values, weight)
    for name, array in vars(before).items():
        np.testing.assert_array_equal(array, getattr(after, name))
    scaled = after.plain(values)
    assert np.abs(scaled).max() <= 3.0
    pieces = after.piecewise(values[:50])
    np.testing.assert_allclose(pieces.mean(axis=0), 0, atol=1e-6)


def test_piecewise_encoding_is_monotone_and_exact_between_edges():
    values = np.linspace(0, 1, 101)[:, None]
    numbers = NumberScaling.fit(values, np.ones(101))
    pieces = numbers.piecewise(values)
    assert pieces.shape[1] == 12
    assert np.all(np.diff(pieces, axis=0) >= 0)
    lengths = np.diff(numbers.edges[0])
    np.testing.assert_allclose((pieces + numbers.offset[0]) @ lengths, values[:, 0], atol=1e-6)


def test_a_column_of_the_smallest_numbers_has_no_spread():
    values = np.random.default_rng(0).normal(size=(40, 1)) * 1e-310
    scaling = NumberScaling.fit(values, np.ones(40))
    assert np.isfinite(scaling.plain(values)).all()
    assert np.isfinite(scaling.piecewise(values)).all()


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 200), st.integers(1, 4), st.integers(0, 99), st.sampled_from([0, 1, 6]))
def test_quantiles_are_weighted_sums_of_pieces(rows, columns, seed, digits):
    generator = np.random.default_rng(seed)
    values = np.round(generator.lognormal(size=(rows, columns)), digits)
    values[generator.random(values.shape) < 0.1] = np.nan
    weight = generator.integers(0, 3, rows).astype(float)
    weight[0] = 1.0
    scaling = NumberScaling.fit(values, weight)
    found = scaling.quantile(values)
    assert found.shape == (rows, columns)
    total = np.zeros((rows, columns))
    np.add.at(total.T, scaling.columns("piecewise"), (scaling.piecewise(values) * scaling.heights).T)
    np.testing.assert_allclose(found, total, atol=1e-5)
    known = ~np.isnan(values)
    assert (found[~known] == 0).all()
    means = (np.where(known, found, 0) * weight[:, None]).sum(axis=0)
    np.testing.assert_allclose(means / weight.sum(), 0, atol=1e-4)
    for j in range(columns):
        assert (np.diff(found[known[:, j], j][np.argsort(values[known[:, j], j])]) >= 0).all()


def test_quantiles_of_many_rows_are_those_of_a_normal_distribution():
    values = np.exp(np.random.default_rng(0).normal(size=(5_000, 1)))  # skewed as they may be
    found = NumberScaling.fit(values, np.ones(5_000)).quantile(values)
    assert np.corrcoef(found[:, 0], np.log(values[:, 0]))[0, 1] > 0.98
    assert abs(found.std() - 1) < 0.1
