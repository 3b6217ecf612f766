"""The rows of a search."""

import numpy as np

from shoal import ShoalRegressor
from shoal.search.problem.problem import distinct_rows
from shoal.tables.table import Table


def test_equal_rows_are_one_row_whatever_their_order():
    generator = np.random.default_rng(0)
    X = generator.integers(3, size=(200, 2)).astype(float)
    X[generator.random((200, 2)) < 0.1] = np.nan
    y = generator.integers(2, size=200)
    table = Table.of(X)
    first, row_of = distinct_rows(table, y)
    known = {tuple(np.append(np.nan_to_num(row, nan=-9), label)) for row, label in zip(X, y, strict=True)}
    assert len(first) == len(known)
    for k in range(200):
        np.testing.assert_array_equal(X[first[row_of[k]]], X[k])
        assert y[first[row_of[k]]] == y[k]
    order = generator.permutation(200)
    second, _ = distinct_rows(Table.of(X[order]), y[order])
    np.testing.assert_array_equal(X[order][second], X[first])


def test_what_is_trained_again_has_the_encodings_of_the_folds():
    """Of all rows one may outweigh the rest so far that trees find no thresholds; recipes of the folds have them."""
    X = np.random.default_rng(0).uniform(size=(61, 2))
    y, weight = (X[:, 0] > 0.4).astype(float), np.ones(61)
    weight[60] = 1e9
    halves = [(np.arange(30), np.arange(30, 60)), (np.arange(30, 60), np.arange(30))]
    space = {"hidden": [(4,)], "encoding": ["steps"]}
    model = ShoalRegressor(space, strategy="grid", cv=halves, refit=True, seeds=1, epochs=5, explain_seconds=0)
    model.fit(X, y, sample_weight=weight)
    assert [encoder.has("steps") for encoder in model.result_.search.problem.encoders] == [True, True]
    assert [fold.encoder.has("steps") for fold in model.model_.folds] == [False]
    assert np.isfinite(model.predict(X)).all()
