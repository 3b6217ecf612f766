from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.tables import columns

import shoal
from shoal.search.results.conclude import make_model


@pytest.fixture(scope="session")
def mixed() -> Any:
    """A model of every kind of column, with both encodings of numbers."""
    X = columns()
    y = [
        str(colour) if size is None or size < 0.5 else "large"
        for size, colour in zip(X["size"], X["colour"], strict=True)
    ]
    space = {"hidden": [(4,)], "encoding": ["plain", "piecewise"], "epochs": [3]}
    model = shoal.ShoalClassifier(space, strategy="grid", seeds=1, cv=3, n_jobs=1).fit(X, y)
    result = model.result_
    model.model_ = make_model(result.problem, result.candidates, [0.4, 0.6], {0: 0, 1: 1}, 1.3)
    return model


@pytest.fixture(scope="session")
def numbers() -> Any:
    """A model of three numbers, trained on all rows, with what it was fitted on: a product, and one number of noise."""
    X = np.random.default_rng(0).normal(size=(160, 3))
    y = 2 * X[:, 0] + X[:, 0] * X[:, 1]
    space = {"hidden": [(8,)], "encoding": ["plain"], "epochs": [40], "learning_rate": [0.02]}
    return shoal.ShoalRegressor(space, recipes=1, seeds=1, cv=2, refit=True, n_jobs=1).fit(X, y), X, y
