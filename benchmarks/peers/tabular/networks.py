"""RealMLP and TabM of pytabkit with their defaults, within the seconds given."""

from __future__ import annotations

import importlib
import logging
import time
import warnings
from typing import Any, ClassVar

import numpy as np

from benchmarks.peers.tabular.scikit import columns, imputed
from benchmarks.peers.tabular.search import outputs

CLEARLY = 0.8  # threads that hardly help on a quiet machine are a disaster on one that is busy for a moment
TRIED_EPOCHS = 4


class Network:
    """A network whose epochs are timed first, with one thread and with all: on small tables two are often slower.

    The documentation of pytabkit advises for log-loss to choose the epoch by cross-entropy.
    """

    kind: str
    for_log_loss: ClassVar[dict[str, Any]]
    tried_folds: int

    def __init__(self, task: str, seconds: float, cores: int, seed: int) -> None:
        self.task, self.seconds, self.cores, self.seed = task, seconds, cores, seed

    def warm_up(self) -> None:
        import torch

        pytabkit = importlib.import_module("pytabkit")  # not a dependency: nothing but this line may ask for it
        self.estimator = getattr(pytabkit, f"{self.kind}_{'Classifier' if self.is_classifier else 'Regressor'}")
        torch.set_num_threads(self.cores)
        warnings.simplefilter("ignore")
        for name in ("pytorch_lightning", "lightning.pytorch", "lightning_fabric"):
            logging.getLogger(name).setLevel(logging.ERROR)

    @property
    def is_classifier(self) -> bool:
        return self.task == "classification"

    def fit(self, X: Any, y: np.ndarray) -> Network:
        begun = time.perf_counter()
        self.columns_ = columns(imputed(), "passthrough").set_output(transform="pandas")
        X = self.columns_.fit_transform(X)
        self.model(self.tried_folds, 1, 1).fit(X, y)  # what the first fit of a process sets up is no part of an epoch
        threads, (start, epoch) = 1, self._timed(X, y, 1)
        if self.cores > 1 and (together := self._timed(X, y, self.cores))[1] < CLEARLY * epoch:
            threads, (start, epoch) = self.cores, together
        left = self.seconds - (time.perf_counter() - begun)
        folds, epochs = self.planned(start, epoch, left)
        self.model_ = self.model(folds, epochs, threads).fit(X, y)
        self.details_ = {"folds": folds, "most_epochs": epochs, "threads": threads}
        return self

    def predict(self, X: Any, classes: int) -> np.ndarray:
        return outputs(self.model_, self.columns_.transform(X), classes)

    def planned(self, start: float, epoch: float, left: float) -> tuple[int, int]:
        """Folds and epochs, from the seconds of starting and of an epoch, both with `tried_folds`."""
        raise NotImplementedError

    def model(self, folds: int, epochs: int, threads: int) -> Any:
        return self.estimator(
            device="cpu", random_state=self.seed, n_cv=folds, n_epochs=epochs, n_threads=threads, verbosity=0,
            **(self.for_log_loss if self.is_classifier else {}),
        )  # fmt: skip

    def _timed(self, X: Any, y: np.ndarray, threads: int) -> tuple[float, float]:
        """Seconds that setting up takes, and those of an epoch."""
        seconds = []
        for epochs in (1, 1 + TRIED_EPOCHS):
            begun = time.perf_counter()
            self.model(self.tried_folds, epochs, threads).fit(X, y)
            seconds.append(time.perf_counter() - begun)
        return seconds[0], max(seconds[1] - seconds[0], 1e-6) / TRIED_EPOCHS


class RealMLP(Network):
    """RealMLP-TD with as many bagged folds as the time allows, up to the eight that its documentation advises.

    Its schedule needs all of its 256 epochs, so that a fit is never cut short. The trials are not its fault: it may use
    the whole time for its fit.
    """

    kind = "RealMLP_TD"
    for_log_loss: ClassVar = {"val_metric_name": "cross_entropy", "use_ls": False}
    tried_folds = 8
    epochs = 256

    def planned(self, start: float, epoch: float, left: float) -> tuple[int, int]:
        expected = start + (self.epochs - 1) * epoch
        return max(1, min(self.tried_folds, int(self.tried_folds * self.seconds / expected))), self.epochs


class TabM(Network):
    """TabM with one split: it stops when it no longer improves, or when the time is up, and returns its best epoch."""

    kind = "TabM_D"
    for_log_loss: ClassVar = {"val_metric_name": "cross_entropy"}
    tried_folds = 1

    def planned(self, start: float, epoch: float, left: float) -> tuple[int, int]:
        return 1, max(1, int((left - start) / epoch))
