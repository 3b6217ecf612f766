"""What the estimators among the tools share: from a fitted `Model` to the answers that scikit-learn expects."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from shoal.metrics.tasks import CLASSIFICATION, MULTILABEL, REGRESSION
from shoal.models.model import Model
from shoal.search.options import threads_of
from shoal.tables.inputs import new_table
from shoal.tools.prepared import ToolData


class ToolEstimator(BaseEstimator):
    """An estimator whose `fit` ends with `_publish_model`."""

    n_jobs: int | None
    model_: Model
    classes_: np.ndarray
    one_column_: bool

    @abstractmethod
    def _fit(self, X: Any, y: Any, sample_weight: Any, kind: str) -> Any: ...

    def _publish_model(self, data: ToolData, model: Model) -> None:
        self.model_, self.schema_, self.background_ = model, data.schema, data.background
        if data.classes is not None:
            self.classes_ = data.classes
        else:
            self.one_column_ = data.one_column

    def _raw(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        return self.model_.predict(new_table(self, X), threads=threads_of(self.n_jobs))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = False
        return tags


class ToolClassifier(ClassifierMixin, ToolEstimator):
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

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class.

        Parameters
        ----------
        X : array or frame of shape (n_rows, n_columns)
            New rows.

        Returns
        -------
        array of shape (n_rows, n_classes)
            For several labels at once (n_rows, n_labels).
        """
        return self._raw(X)

    def predict(self, X: Any) -> np.ndarray:
        """The likeliest class of each row.

        Parameters
        ----------
        X : array or frame of shape (n_rows, n_columns)
            New rows.

        Returns
        -------
        array of shape (n_rows,)
            For several labels at once 0 and 1, (n_rows, n_labels).
        """
        probability = self._raw(X)
        if self.model_.task.kind == MULTILABEL:
            return (probability > 0.5).astype(int)
        return np.asarray(self.classes_[probability.argmax(axis=1)])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


class ToolRegressor(RegressorMixin, ToolEstimator):
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

    def predict(self, X: Any) -> np.ndarray:
        """The predicted number of each row.

        Parameters
        ----------
        X : array or frame of shape (n_rows, n_columns)
            New rows.

        Returns
        -------
        array of shape (n_rows,) or (n_rows, n_outputs)
        """
        values = self._raw(X)
        return values[:, 0] if self.one_column_ else values

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
