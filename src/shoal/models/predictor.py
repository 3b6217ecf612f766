"""A saved model of any kind that only predicts: what `shoal predict`, `explain` and `export` use.

It needs neither the search nor scikit-learn. To import these takes longer than to read a model and predict with it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from shoal.conformal.strangeness import Strange
from shoal.errors import CompleteError
from shoal.metrics.tasks import MULTILABEL
from shoal.models.certainty import predict_interval, predict_set, strange
from shoal.models.model import Model
from shoal.models.networks import TorchNetwork
from shoal.models.predictions import read_new_rows
from shoal.models.saving import DESCRIPTION, model_folder, naming, read_folder, restore_predictor
from shoal.tables.inputs import new_table
from shoal.tables.reading import Reading
from shoal.tables.schema import Schema
from shoal.tables.table import Table

MakeNetwork = Callable[[TorchNetwork], Any]


class Predictor:
    """Answers of a saved model; its attributes are those of a fitted estimator, as far as prediction needs them.

    Rows are a file, a data frame, a dict of columns, an array, or a `Table`.
    """

    model_kind = "network"
    model_: Model
    schema_: Schema
    n_features_in_: int
    classes_: np.ndarray  # of a classifier
    one_column_: bool  # of a regressor
    feature_names_in_: np.ndarray  # if it was fitted with names
    target_name_: str
    reading_: Reading  # if it was fitted on a file
    loss_: str  # of a network that `shoal train` has trained
    background_: Table | None = None  # rows of the training data, to explain others with

    @staticmethod
    def load(path: str | os.PathLike[str], make_network: MakeNetwork | None = None) -> Predictor:
        """From the folder of a model or of its run.

        make_network  makes a network of PyTorch, where the model is one; None: then it does not predict
        """
        folder = model_folder(path)
        body, arrays = read_folder(folder)
        with naming(folder / DESCRIPTION):
            return Predictor.restore(body, arrays, make_network)

    @staticmethod
    def restore(body: dict[str, Any], arrays: dict[str, np.ndarray], make_network: MakeNetwork | None) -> Predictor:
        made = Predictor()
        restore_predictor(made, body, arrays)
        if "loss" in body:
            made.loss_ = body["loss"]
        for network in made.model_.networks.values():
            if isinstance(network, TorchNetwork) and make_network is not None:
                module = make_network(network)
                if module is None:
                    raise CompleteError(network.missing())
                network.fill(module)
        return made

    def predict_proba(self, X: Any, threads: int | None = None) -> np.ndarray:
        """(n, n_classes or n_labels)."""
        return self.model_.predict(self._table(X), threads)

    def predict(self, X: Any, threads: int | None = None) -> np.ndarray:
        """(n,) classes, (n, n_labels) zeros and ones, or (n,) or (n, n_outputs) numbers."""
        values = self.model_.predict(self._table(X), threads)
        if self.model_.task.kind == MULTILABEL:
            return (values > 0.5).astype(int)
        if hasattr(self, "classes_"):
            return np.asarray(self.classes_[values.argmax(axis=1)])
        return values[:, 0] if self.one_column_ else values

    def predict_interval(self, X: Any, coverage: float) -> np.ndarray:
        """(n, 2) or (n, n_outputs, 2) of a regressor."""
        found = predict_interval(self.model_, self._table(X), coverage)
        return found[:, 0] if self.one_column_ else found

    def predict_set(self, X: Any, coverage: float) -> np.ndarray:
        """(n, n_classes) of a classifier."""
        return predict_set(self.model_, self._table(X), coverage)

    def strange(self, X: Any) -> Strange:
        """How unlike the training data rows are."""
        return strange(self.model_, self._table(X))

    def _table(self, X: Any) -> Table:
        if isinstance(X, Table):  # it was read for this model
            return X
        return read_new_rows(Path(X), self) if isinstance(X, (str, os.PathLike)) else new_table(self, X)
