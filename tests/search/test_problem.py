"""The rows of a search."""

import numpy as np

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
