"""Shared code of the estimators among the tools."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from shoal.metrics.tasks import CLASSIFICATION, REGRESSION
from shoal.models.model import Model
from shoal.search.table_estimators import TableClassifier, TableEstimator, TableRegressor
from shoal.tools.prepared import ToolData


class ToolEstimator(TableEstimator):
    """An estimator whose `fit` ends with `_publish_model`."""

    @abstractmethod
    def _fit(self, X: Any, y: Any, sample_weight: Any, kind: str) -> Any: ...

    def _publish_model(self, data: ToolData, model: Model) -> None:
        self.model_, self.schema_, self.background_ = model, data.schema, data.background
        self._publish_target(data.classes, data.one_column)


class ToolClassifier(TableClassifier, ToolEstimator):
    """Of classes, or of several labels at once."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Train the networks.

        Parameters
        ----------
        X : array, frame, dict of columns, or list of rows
            The inputs, (n_rows, n_columns).
        y : array of shape (n_rows,) or (n_rows, n_labels)
            Classes, or 0 and 1 for several labels at once.
        sample_weight : array of shape (n_rows,), optional
            How much rows count.

        Returns
        -------
        self
        """
        return self._fit(X, y, sample_weight, CLASSIFICATION)


class ToolRegressor(TableRegressor, ToolEstimator):
    """Of one number, or of several at once."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Train the networks.

        Parameters
        ----------
        X : array, frame, dict of columns, or list of rows
            The inputs, (n_rows, n_columns).
        y : array of shape (n_rows,) or (n_rows, n_outputs)
            Numbers to predict.
        sample_weight : array of shape (n_rows,), optional
            How much rows count.

        Returns
        -------
        self
        """
        return self._fit(X, y, sample_weight, REGRESSION)
