"""Numbers, scaled and in pieces."""

import numpy as np

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
