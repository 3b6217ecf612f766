"""A saved model that only predicts tables: what `shoal predict` uses.

It needs neither the search nor scikit-learn. To import these takes longer than to read a model and predict with it.
"""

from __future__ import annotations

import os

import numpy as np

from shoal.conformal.strangeness import Strange
from shoal.metrics.tasks import REGRESSION
from shoal.models.certainty import predict_interval, predict_set, strange
from shoal.models.model import Model
from shoal.models.saving import DESCRIPTION, model_folder, naming, read_folder, restore_predictor
from shoal.tables.reading import Reading
from shoal.tables.schema import Schema
from shoal.tables.table import Table


class ServedModel:
    """Answers of a saved model; its attributes are those of a fitted estimator, as far as prediction needs them."""

    model_: Model
    schema_: Schema
    classes_: np.ndarray  # of a classifier
    one_column_: bool  # of a regressor
    feature_names_in_: np.ndarray  # if it was fitted with names
    target_name_: str
    reading_: Reading  # if it was fitted on a file

    @staticmethod
    def load(path: str | os.PathLike[str]) -> ServedModel:
        """From the folder of a model or of its run."""
        folder = model_folder(path)
        body, arrays = read_folder(folder, None)
        served = ServedModel()
        with naming(folder / DESCRIPTION):
            restore_predictor(served, body, arrays)
        return served

    @property
    def classifies(self) -> bool:
        return self.model_.task.kind != REGRESSION

    def predict_proba(self, table: Table, threads: int | None = None) -> np.ndarray:
        """(n, n_classes or n_labels)."""
        return self.model_.predict(table, threads)

    def predict(self, table: Table, threads: int | None = None) -> np.ndarray:
        """(n,) or (n, n_outputs) numbers of a regressor."""
        values = self.model_.predict(table, threads)
        return values[:, 0] if self.one_column_ else values

    def predict_interval(self, table: Table, coverage: float) -> np.ndarray:
        """(n, 2) or (n, n_outputs, 2) of a regressor."""
        found = predict_interval(self.model_, table, coverage)
        return found[:, 0] if self.one_column_ else found

    def predict_set(self, table: Table, coverage: float) -> np.ndarray:
        """(n, n_classes) of a classifier."""
        return predict_set(self.model_, table, coverage)

    def strange(self, table: Table) -> Strange:
        """How unlike the training data rows are."""
        return strange(self.model_, table)
