"""Spreads: large where residuals are, the same where nothing tells them apart."""

import numpy as np
import pytest

from shoal.conformal.spread import Residuals, fit_spread


def residuals(seed, rows=400, repeats=2, folds=4, noisy=True, outputs=1):
    generator = np.random.default_rng(seed)
    inputs = generator.normal(size=(rows, 5))
    true = np.where(inputs[:, 1] > 0, 3.0, 0.5) if noisy else np.ones(rows)
    row = np.tile(np.arange(rows), repeats)
    fold = np.concatenate([k * folds + generator.permutation(rows) % folds for k in range(repeats)])
    order = np.argsort(fold, kind="stable")
    row, fold = row[order], fold[order]
    held_out = np.zeros((folds * repeats, rows), dtype=bool)
    held_out[fold, row] = True
    size = (true * np.abs(generator.normal(size=rows)))[row][:, None] * np.ones(outputs)
    prediction = generator.normal(size=(rows, outputs))[row]
    return Residuals(inputs, row, fold, prediction, size, np.ones(len(row)), held_out), true


@pytest.mark.parametrize("averaged", [True, False])
def test_a_spread_is_large_where_residuals_are(averaged):
    found, true = residuals(0)
    spread, each = fit_spread(found, averaged)
    calm = true[found.row] < 1
    assert each[~calm].mean() > 1.7 * each[calm].mean()
    folds = 8 if averaged else 1
    new = spread(found.inputs[:50], np.zeros((folds, 50, 1)))
    assert new.shape == (folds, 50, 1)
    assert new[:, true[:50] > 1].mean() > 1.7 * new[:, true[:50] < 1].mean()
    scores = found.residual / each
    plain = np.quantile(found.residual, 0.9)
    assert np.quantile(scores, 0.9) * each.mean() < 0.95 * plain, "intervals are narrower on average"


def test_spreads_are_the_same_where_nothing_tells_them_apart():
    found, _ = residuals(1, noisy=False)
    _, each = fit_spread(found, True)
    assert each.std() < 0.2 * each.mean()


def test_a_fold_learns_nothing_from_the_rows_that_it_held_out():
    found, _ = residuals(2)
    spread, _ = fit_spread(found, True)
    changed = found.residual.copy()
    changed[found.held_out[0][found.row]] *= 1.01  # of the rows of fold 0, in every repeat
    other, _ = fit_spread(Residuals(**{**vars(found), "residual": changed}), True)
    shift = other.coefficients[0, 0] - spread.coefficients[0, 0]
    np.testing.assert_allclose(shift[:-1], 0.0, atol=5e-3)  # but for the mean that all share
    moved = np.abs(other.coefficients[1, 0, :-1] - spread.coefficients[1, 0, :-1]).max()
    assert moved > np.abs(shift[:-1]).max()


@pytest.mark.parametrize("size", [0.0, 1e-200, 1e200])
def test_residuals_of_any_size(size):
    found, _ = residuals(3, rows=80)
    spread, each = fit_spread(Residuals(**{**vars(found), "residual": np.full_like(found.residual, size)}), True)
    assert np.isfinite(each).all()
    assert (each > 0).all()
    assert np.isfinite(spread(found.inputs, np.zeros((8, 80, 1)))).all()
