"""The search as scikit-learn estimators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal.metrics.tasks import CLASSIFICATION, REGRESSION
from shoal.search.estimator import SearchEstimator
from shoal.search.options import as_parameters
from shoal.search.results.result import SearchResult
from shoal.search.table_estimators import TableClassifier, TableRegressor
from shoal.tables.reading import Reading


@dataclass(eq=False, repr=False, kw_only=True)
class ShoalClassifier(TableClassifier, SearchEstimator):
    """Search for networks that predict classes, and combine the best of them.

    Other Parameters
    ----------------
    class_weight : "balanced" or dict, optional
        How much rows of each class count in training and in losses.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> model = ShoalClassifier(recipes=10, seeds=1).fit(*load_iris(return_X_y=True))
    >>> model.best_score_ > 0.9
    True
    >>> model.predict([[5.1, 3.5, 1.4, 0.2]]).tolist()
    [0]
    """

    __doc__ += "\n" + SearchEstimator.__doc__.partition("\n")[2]  # type: ignore[union-attr]
    kind = CLASSIFICATION
    class_weight: Any = None

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None, time: Any = None) -> ShoalClassifier:
        """Search for a model.

        Parameters
        ----------
        X : array, frame, dict of columns, or list of rows
            The inputs, (n_rows, n_columns).
        y : array of shape (n_rows,) or (n_rows, n_labels)
            Classes, or 0 and 1 for several labels at once.
        sample_weight, groups, time : array of shape (n_rows,), or name of a column of X, optional
            How much rows count; which rows stay in one fold; when rows were measured.

        Returns
        -------
        self
        """
        return self._fit(X, y, {"sample_weight": sample_weight, "groups": groups, "time": time})


@dataclass(eq=False, repr=False)
class ShoalRegressor(TableRegressor, SearchEstimator):
    """Search for networks that predict numbers, one or several at once, and combine the best of them.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> model = ShoalRegressor(recipes=5, seeds=1).fit(X, X[:, 0] + X[:, 1] ** 2)
    >>> model.predict(X).shape, model.predict_interval(X, coverage=0.8).shape
    ((200,), (200, 2))
    """

    __doc__ += "\n" + SearchEstimator.__doc__.partition("\n")[2]  # type: ignore[union-attr]
    kind = REGRESSION

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None, time: Any = None) -> ShoalRegressor:
        """Search for a model.

        Parameters
        ----------
        X : array, frame, dict of columns, or list of rows
            The inputs, (n_rows, n_columns).
        y : array of shape (n_rows,) or (n_rows, n_outputs)
            Numbers to predict.
        sample_weight, groups, time : array of shape (n_rows,), or name of a column of X, optional
            How much rows count; which rows stay in one fold; when rows were measured.

        Returns
        -------
        self
        """
        return self._fit(X, y, {"sample_weight": sample_weight, "groups": groups, "time": time})


def fitted_estimator(result: SearchResult, reading: Reading | None) -> ShoalClassifier | ShoalRegressor:
    """The estimator of a search. `reading`: how the file was read that its data came from."""
    kind = ShoalRegressor if result.data.classes is None else ShoalClassifier
    estimator = kind(**as_parameters(result.options))
    names = result.table.names
    estimator.n_features_in_, estimator.feature_names_in_ = len(names), np.array(names, dtype=object)
    estimator.target_name_ = result.data.target_name
    if reading is not None:
        estimator.reading_ = reading
    estimator._publish(result)
    return estimator
