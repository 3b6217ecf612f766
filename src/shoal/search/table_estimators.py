"""Shared code of all estimators for tables: from a fitted `Model` to the answers that scikit-learn expects."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from shoal.metrics.tasks import MULTILABEL
from shoal.models.model import Model
from shoal.report.notebook import card_of
from shoal.search.options import threads_of
from shoal.tables.inputs import new_table


class CardOfFitted(BaseEstimator):
    """In notebooks a fitted estimator shows what it found; one that is not fitted shows scikit-learn's diagram.

    `sklearn.utils.estimator_html_repr(model)` always gives the diagram, and so do pipelines.
    """

    def _repr_html_inner(self) -> str:
        return str(card_of(self)) if self._is_shown() else str(super()._repr_html_inner())

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        shown: dict[str, str] = super()._repr_mimebundle_(**options)
        return shown | {"text/html": str(card_of(self))} if "text/html" in shown and self._is_shown() else shown

    def _is_shown(self) -> bool:
        """Whether it is fitted."""
        return hasattr(self, "model_") or hasattr(self, "support_")


class TableEstimator(CardOfFitted):
    """Fitted, it has a model, and its classes or whether y had one column."""

    n_jobs: int | None
    model_: Model
    classes_: np.ndarray
    one_column_: bool

    def _publish_target(self, classes: np.ndarray | None, one_column: bool) -> None:
        if classes is None:
            self.one_column_ = one_column
        else:
            self.classes_ = classes

    def _raw(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        return self.model_.predict(new_table(self, X), threads=threads_of(self.n_jobs))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = False
        return tags


class TableClassifier(ClassifierMixin, TableEstimator):
    """Of classes, or of several labels at once."""

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


class TableRegressor(RegressorMixin, TableEstimator):
    """Of one number, or of several at once."""

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
