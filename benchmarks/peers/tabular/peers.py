"""What you would use instead of Shoal on a table, each set up as its users would: no straw men."""

from __future__ import annotations

import importlib
import logging
import time
import warnings
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from benchmarks.harness.machine import installed
from benchmarks.peers.tabular.search import Candidate, TimedSearch, outputs
from shoal.validate import one_of

CONTENDERS = ("shoal", "mlp", "forest", "boosting", "linear", "realmlp")
TITLES = {
    "shoal": "Shoal", "mlp": "MLP, random search", "forest": "random forest, random search",
    "boosting": "HistGradientBoosting, random search", "linear": "linear, grid search", "realmlp": "RealMLP (pytabkit)",
}  # fmt: skip


class Peer(Protocol):
    """Fitted once, asked once. `details_` says what was done, ready for JSON."""

    details_: dict[str, Any]

    def warm_up(self) -> None: ...  # imports and processes: not charged

    def fit(self, X: Any, y: np.ndarray) -> Any: ...

    def predict(self, X: Any, classes: np.ndarray | None) -> np.ndarray: ...


def missing(name: str) -> str | None:
    """Why a contender cannot take part, or None if it can."""
    one_of("--contender", name, CONTENDERS)
    if name == "realmlp" and not installed("pytabkit"):
        return "pytabkit is not installed: pip install '.[peers]'"
    return None


def make(name: str, task: str, seconds: float, threads: int, seed: int) -> Peer:
    """A contender, given so many seconds on so many cores."""
    if name == "shoal":
        return Shoal(task, seconds, seed)
    if name == "realmlp":
        return RealMLP(task, seconds, threads, seed)
    candidates = {"mlp": mlp, "forest": forest, "boosting": boosting, "linear": linear}[name](task, seed)
    return TimedSearch(candidates, task, seconds, threads, seed)


class Shoal:
    """Default settings; the table goes in as it is."""

    def __init__(self, task: str, seconds: float, seed: int) -> None:
        self.task, self.seconds, self.seed = task, seconds, seed

    def warm_up(self) -> None:
        from shoal.search.estimators import ShoalClassifier, ShoalRegressor

        self.kind = ShoalClassifier if self.task == "classification" else ShoalRegressor

    def fit(self, X: Any, y: np.ndarray) -> Shoal:
        self.model_ = self.kind(budget=self.seconds, random_state=self.seed).fit(X, y)
        best = getattr(self.model_, "best_member_", None)
        recipes = getattr(self.model_, "board_", None)
        self.details_ = {"best": str(best), "candidates": None if recipes is None else len(recipes)}
        return self

    def predict(self, X: Any, classes: np.ndarray | None) -> np.ndarray:
        return outputs(self.model_, X, classes)


class RealMLP:
    """RealMLP-TD with as many bagged folds, up to eight, as the time allows.

    Its documentation advises `n_cv=8`, and for log-loss no label smoothing and the epoch that is best by cross-entropy.
    Its schedule needs all of its 256 epochs, so that a fit is never cut short: a few epochs are timed first, with one
    thread and with all, for on small tables two are often slower than one.
    """

    most_folds = 8
    epochs, tried_epochs = 256, 4
    clearly = 0.8  # threads that hardly help on an idle machine are a disaster on one that is busy for a moment

    def __init__(self, task: str, seconds: float, threads: int, seed: int) -> None:
        self.task, self.seconds, self.threads, self.seed = task, seconds, threads, seed

    def warm_up(self) -> None:
        import torch

        pytabkit = importlib.import_module("pytabkit")  # not a dependency: nothing but this line may ask for it
        self.kind = pytabkit.RealMLP_TD_Classifier if self.task == "classification" else pytabkit.RealMLP_TD_Regressor
        torch.set_num_threads(self.threads)
        warnings.simplefilter("ignore")
        for name in ("pytorch_lightning", "lightning.pytorch", "lightning_fabric"):
            logging.getLogger(name).setLevel(logging.ERROR)

    def fit(self, X: Any, y: np.ndarray) -> RealMLP:
        self.columns_ = _columns(_imputed(), "passthrough").set_output(transform="pandas")
        X = self.columns_.fit_transform(X)
        self._model(1, 1, 1).fit(X, y)  # what the first fit of a process has to set up is no part of an epoch
        threads, expected = 1, self._expected(X, y, 1)
        if self.threads > 1 and (together := self._expected(X, y, self.threads)) < self.clearly * expected:
            threads, expected = self.threads, together
        share = self.seconds / expected  # the trials are not its fault: it may use the whole time for its fit
        folds = max(1, min(self.most_folds, int(self.most_folds * share)))
        self.model_ = self._model(folds, self.epochs, threads).fit(X, y)
        self.details_ = {"n_cv": folds, "expected_seconds": expected, "threads": threads}
        return self

    def _expected(self, X: Any, y: np.ndarray, threads: int) -> float:
        """Seconds of a fit with the most folds: what setting up takes, and what an epoch adds to it."""
        seconds = []
        for epochs in (1, 1 + self.tried_epochs):
            begun = time.perf_counter()
            self._model(self.most_folds, epochs, threads).fit(X, y)
            seconds.append(time.perf_counter() - begun)
        return seconds[0] + (self.epochs - 1) * max(seconds[1] - seconds[0], 0.0) / self.tried_epochs

    def predict(self, X: Any, classes: np.ndarray | None) -> np.ndarray:
        return outputs(self.model_, self.columns_.transform(X), classes)

    def _model(self, folds: int, epochs: int, threads: int) -> Any:
        for_log_loss = {"val_metric_name": "cross_entropy", "use_ls": False} if self.task == "classification" else {}
        return self.kind(
            device="cpu", random_state=self.seed, n_cv=folds, n_epochs=epochs, n_threads=threads, verbosity=0,
            **for_log_loss,
        )  # fmt: skip


# ---- candidates of the random searches: the library's defaults first, then draws from a wide space ----


def mlp(task: str, seed: int) -> Iterator[Candidate]:
    """scikit-learn's own multi-layer perceptron: numbers imputed and scaled, categories one-hot, target scaled."""
    from scipy.stats import loguniform
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.neural_network import MLPClassifier, MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import QuantileTransformer, RobustScaler, StandardScaler

    kind = MLPClassifier if task == "classification" else MLPRegressor
    model: Any = kind(random_state=seed)
    prefix = "model__"
    if task == "regression":
        model, prefix = TransformedTargetRegressor(model, transformer=StandardScaler()), "model__regressor__"
    numbers = make_pipeline(_imputed(), StandardScaler())
    settings = {
        "hidden_layer_sizes": [(16,), (32,), (64,), (128,), (256,), (32, 32), (64, 64), (128, 128), (64, 64, 64)],
        "activation": ["relu", "tanh", "logistic"],
        "solver": ["adam", "adam", "adam", "lbfgs"],  # lbfgs is often the better one on a few hundred rows
        "alpha": loguniform(1e-5, 30),
        "learning_rate_init": loguniform(3e-4, 3e-2),
        "batch_size": [16, 32, 64, 128],
        "max_iter": [10, 20, 40, 80, 160, 320],
        "early_stopping": [False, False, True],
    }
    space = {prefix + name: value for name, value in settings.items()}
    space["columns__numbers__standardscaler"] = [
        StandardScaler(), StandardScaler(), RobustScaler(),
        QuantileTransformer(n_quantiles=100, output_distribution="normal"),
    ]  # fmt: skip
    return _drawn(_pipeline(_columns(numbers, _one_hot()), model), space, seed)


def forest(task: str, seed: int) -> Iterator[Candidate]:
    """Random forest: takes missing numbers as they are; categories one-hot or as whole numbers."""
    from scipy.stats import loguniform, randint
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
    from sklearn.preprocessing import OrdinalEncoder

    kind = RandomForestClassifier if task == "classification" else RandomForestRegressor
    ordinal = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-1)
    space: dict[str, Any] = {
        "columns__categories": [_one_hot(), ordinal],
        "model__n_estimators": _whole(loguniform(100, 600)),
        "model__max_features": ["sqrt", "log2", 0.2, 0.33, 0.5, 0.7, 1.0],
        "model__min_samples_leaf": _whole(loguniform(1, 20)),
        "model__min_samples_split": randint(2, 12),
        "model__max_depth": [None, None, None, 6, 10, 16],
        "model__max_samples": [None, None, 0.5, 0.7, 0.9],
    }
    if task == "classification":
        space["model__criterion"] = ["gini", "entropy"]
    return _drawn(_pipeline(_columns("passthrough", _one_hot()), kind(n_jobs=1, random_state=seed)), space, seed)


def boosting(task: str, seed: int) -> Iterator[Candidate]:
    """Histogram gradient boosting: categories and missing values as they are, as it was made for."""
    from scipy.stats import loguniform
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    kind = HistGradientBoostingClassifier if task == "classification" else HistGradientBoostingRegressor
    space = {
        "model__learning_rate": loguniform(0.01, 0.3),
        "model__max_iter": _whole(loguniform(20, 500)),
        "model__max_leaf_nodes": _whole(loguniform(3, 64)),
        "model__min_samples_leaf": _whole(loguniform(2, 60)),
        "model__l2_regularization": loguniform(1e-4, 30),
        "model__max_features": [0.3, 0.5, 0.7, 1.0, 1.0],
        "model__max_bins": [63, 127, 255],
        "model__max_depth": [None, None, 2, 3, 5],
    }
    return _drawn(_pipeline("passthrough", kind(categorical_features="from_dtype", random_state=seed)), space, seed)


def linear(task: str, seed: int) -> Iterator[Candidate]:
    """Logistic or ridge regression with its one parameter searched: what everything else should be held against."""
    from sklearn.base import clone
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    classes = task == "classification"
    model = LogisticRegression(max_iter=2000) if classes else Ridge()
    base = _pipeline(_columns(make_pipeline(_imputed(), StandardScaler()), _one_hot()), model)
    yield base, {}
    for value in np.logspace(-4, 3, 22) if classes else np.logspace(-3, 4, 22):
        parameters = {"model__C" if classes else "model__alpha": float(value)}
        yield clone(base).set_params(**parameters), parameters


def _drawn(base: Any, space: dict[str, Any], seed: int) -> Iterator[Candidate]:
    """The base as it is, then without end."""
    from sklearn.base import clone
    from sklearn.model_selection import ParameterSampler

    yield base, {}
    for drawn in ParameterSampler(space, 1_000_000, random_state=seed):
        yield clone(base).set_params(**drawn), drawn


def _pipeline(columns: Any, model: Any) -> Any:
    from sklearn.pipeline import Pipeline

    return Pipeline([("columns", columns), ("model", model)])


def _columns(numbers: Any, categories: Any) -> Any:
    from sklearn.compose import ColumnTransformer, make_column_selector

    return ColumnTransformer(
        [
            ("numbers", numbers, make_column_selector(dtype_exclude="category")),
            ("categories", categories, make_column_selector(dtype_include="category")),
        ],
        verbose_feature_names_out=False, sparse_threshold=0.0,
    )  # fmt: skip


def _imputed() -> Any:
    """The median, and a column that says where a value was missing: being missing may mean something."""
    from sklearn.impute import SimpleImputer

    return SimpleImputer(strategy="median", add_indicator=True)


def _one_hot() -> Any:
    """A missing category is a category; one never seen before is none of them."""
    from sklearn.preprocessing import OneHotEncoder

    return OneHotEncoder(handle_unknown="ignore", sparse_output=False)


class _whole:
    """A distribution of whole numbers."""

    def __init__(self, distribution: Any) -> None:
        self.distribution = distribution

    def rvs(self, *arguments: Any, **keywords: Any) -> int:
        return round(float(self.distribution.rvs(*arguments, **keywords)))
