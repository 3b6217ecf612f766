"""Scores of scikit-learn beside our own: its names, its scorer objects, and functions of (estimator, X, y).

They are asked about out-of-fold predictions, through an object that stands in for an estimator. Their values per row
are estimated: rows that are alike (in class, answer and certainty, or in error) have the same influence on a score.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import get_scorer, get_scorer_names

from shoal.errors import UserError, WrongType
from shoal.metrics.metric import Metric
from shoal.metrics.tasks import CLASSIFICATION, MULTILABEL, REGRESSION, Task

OWN_TABLES = 8  # predictions whose influences are measured; later ones take the mean of these
THIRD, FIFTIETH = 3, 50
SIZES = (0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.87, 0.92, 0.95, 0.975, 0.99)  # of errors, as quantiles
FAR = (0.5, 0.85)
HOPELESS = -1e30  # the value of rows of predictions that cannot be scored; a product with zero must not be NaN
MOST_REPEATS = 1000
MOST_GROWTH = 0.1  # of a score whose rows are there twice; what is divided by n - 1 changes less, sums change more
AT_MOST_ONE = (
    "accuracy_score", "balanced_accuracy_score", "top_k_accuracy_score", "f1_score", "fbeta_score", "precision_score",
    "recall_score", "jaccard_score", "roc_auc_score", "average_precision_score", "matthews_corrcoef",
    "cohen_kappa_score", "r2_score", "explained_variance_score", "d2_absolute_error_score", "d2_pinball_score",
    "d2_tweedie_score", "d2_log_loss_score", "d2_brier_score", "rand_score", "adjusted_rand_score",
    "adjusted_mutual_info_score", "normalized_mutual_info_score", "homogeneity_score", "completeness_score",
    "v_measure_score", "fowlkes_mallows_score",
)  # fmt: skip
NEVER_NEGATIVE = ("_error", "_loss", "_deviance", "_likelihood_ratio")  # how scikit-learn's errors are called
Cells = tuple[np.ndarray, int, np.ndarray]
Value = Callable[[Task, np.ndarray, np.ndarray, np.ndarray], float]


@dataclass(frozen=True)
class Scored(Metric):
    """A score that is computed as a whole. `value` is NaN where it cannot be."""

    value: Value = lambda task, p, y, w: np.nan
    complaint: Callable[[Task, np.ndarray, np.ndarray, np.ndarray], str] = lambda task, p, y, w: ""

    def score(self, task: Task, prediction: np.ndarray, y: np.ndarray, weight: np.ndarray) -> np.ndarray:
        flat = prediction.reshape(-1, *prediction.shape[-2:])
        return np.array([self._one(task, p, y, weight) for p in flat]).reshape(prediction.shape[:-2])

    def _one(self, task: Task, p: np.ndarray, y: np.ndarray, weight: np.ndarray) -> float:
        value = self.value(task, p, y, weight)
        if not np.isnan(value):
            return value
        rows_are_fine = not np.isnan(self.value(task, _reference(task, y), y, weight))
        return -np.inf if rows_are_fine else self.otherwise  # the prediction's fault, or that of rows of one class, say

    def check(self, task: Task, y: np.ndarray, weight: np.ndarray, folds: Iterable[np.ndarray]) -> None:
        for k, rows in enumerate(folds):
            said = self.complaint(task, _reference(task, y)[rows], y[rows], weight[rows])
            if said:
                raise UserError(
                    f"scoring {self.name!r} gives no number for the predictions of this {task.kind} on fold {k}: {said}"
                )
        self._refuse_sums(task, _partly_wrong(task, y), y)

    def _refuse_sums(self, task: Task, p: np.ndarray, y: np.ndarray) -> None:
        """Folds and samples differ in size: a sum over rows would be on another scale in each of them."""
        one, two = np.ones(len(y)), np.ones(2 * len(y))
        once = self.value(task, p, y, one)
        twice = self.value(task, np.concatenate([p, p]), np.concatenate([y, y]), two)
        rounding = 1e-12 * max(1.0, float(np.abs(y).max()))
        if abs(twice - once) > max(MOST_GROWTH * max(abs(once), abs(twice)), rounding):  # not where one of them is NaN
            raise UserError(
                f"scoring {self.name!r} must not grow with the number of rows; it gives {once:g} for {len(y)} rows and "
                f"{twice:g} for the same rows twice: divide it by len(y)"
            )


def find_scorer(scoring: Any, task: Task, classes: np.ndarray | None) -> Scored | None:
    """What a name of scikit-learn, a scorer or a function means; None where it is no such name."""
    if isinstance(scoring, str):
        if scoring not in get_scorer_names():
            return None
        call, name, classes = get_scorer(scoring), scoring, None  # classes are numbers: the second one is positive
        if not _fits(call, task):
            return None
    else:
        call, name = scoring, _name(scoring)
        _refuse_metric(call, name)
    ask = _Question(call, classes)
    label = name.removeprefix("neg_").replace("_", " ") + (" (negative)" if name.startswith("neg_") else "")
    return Scored(
        name, label, (task.kind,), _Influence(ask.value), most=_most(call), value=ask.value, complaint=ask.complaint
    )  # fmt: skip


def scorer_names(task: Task) -> list[str]:
    """Those of scikit-learn's names that may fit."""
    return [name for name in get_scorer_names() if _fits(get_scorer(name), task)]


def _fits(call: Any, task: Task) -> bool:
    return _module(call).endswith("_regression") == (task.kind == REGRESSION)


def _module(call: Any) -> str:
    return str(getattr(getattr(call, "_score_func", None), "__module__", ""))


def _most(call: Any) -> float:
    """The best value that a score can have, where it is known."""
    if not _module(call).startswith("sklearn."):
        return float("inf")
    name = str(getattr(call._score_func, "__name__", ""))
    if call._sign > 0:
        return 1.0 if name in AT_MOST_ONE else float("inf")
    return 0.0 if name.endswith(NEVER_NEGATIVE) else float("inf")


def _name(call: Any) -> str:
    if not callable(call):
        raise WrongType(
            "scoring must be one score: a name, a scorer of sklearn.metrics.make_scorer, or a function of "
            f"(estimator, X, y); got {type(call).__name__}"
        )
    inner = getattr(call, "_score_func", call)
    name = str(getattr(inner, "__name__", type(inner).__name__)).strip("<>")
    return f"neg_{name}" if getattr(call, "_sign", 1) == -1 else name


def _refuse_metric(call: Any, name: str) -> None:
    """A function of (y_true, y_pred) is a metric; whether more of it is better only `make_scorer` knows."""
    try:
        parameters = inspect.signature(call).parameters.values()
    except (TypeError, ValueError):
        return
    needed = [p for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(needed) < 3 and not any(p.kind == p.VAR_POSITIONAL for p in parameters):
        raise WrongType(
            f"scoring must be a function of (estimator, X, y); {name} takes {', '.join(p.name for p in needed)}: give "
            f"sklearn.metrics.make_scorer({name}), with greater_is_better=False for an error"
        )


# ---- asking ----


class _Rows:
    """Stands for rows that were predicted already. Nobody can look at their columns."""

    def __init__(self, prediction: np.ndarray) -> None:
        self._prediction = prediction

    def __len__(self) -> int:
        return len(self._prediction)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__array__":
            raise AttributeError(name)
        raise UserError("it looks at X, and scores here are computed from predictions and y alone")

    def __getitem__(self, key: Any) -> Any:
        return self.__getattr__("columns")


class _Answers(BaseEstimator):
    """Gives the predictions that a network gave before."""

    def __init__(self, classes: np.ndarray | None, kind: str) -> None:
        self.kind = kind
        if classes is not None:
            self.classes_ = classes

    def predict(self, X: Any) -> np.ndarray:
        p = self._given(X)
        if self.kind == CLASSIFICATION:
            return np.asarray(self.classes_[p.argmax(axis=1)])
        if self.kind == MULTILABEL:
            return (p > 0.5).astype(int)
        return p[:, 0] if p.shape[1] == 1 else p

    @staticmethod
    def _given(X: Any) -> np.ndarray:
        if not isinstance(X, _Rows):
            raise UserError("it asks for predictions of other rows than the held-out ones")
        return X._prediction


class _ClassAnswers(ClassifierMixin, _Answers):
    def predict_proba(self, X: Any) -> np.ndarray:
        return self._given(X).astype(np.float64)

    def decision_function(self, X: Any) -> np.ndarray:
        p = self._given(X).astype(np.float64)
        logs = np.log(np.maximum(p, 1e-300))
        if self.kind == CLASSIFICATION and p.shape[1] > 2:
            return np.asarray(logs)
        odds = logs - np.log(np.maximum(1 - p, 1e-300))  # of one column alone, so that equal ones stay equal
        return np.asarray(odds if self.kind == MULTILABEL else odds[:, 1])


class _NumberAnswers(RegressorMixin, _Answers):
    pass


class _Question:
    """Asks a scorer for the score of predictions."""

    def __init__(self, call: Any, classes: np.ndarray | None) -> None:
        self.call, self.classes = call, classes
        try:
            self.weighted = "sample_weight" in inspect.signature(getattr(call, "_score_func", call)).parameters
        except (TypeError, ValueError):
            self.weighted = False

    def value(self, task: Task, p: np.ndarray, y: np.ndarray, weight: np.ndarray) -> float:
        if not np.isfinite(p).all():
            return np.nan
        try:
            return self._ask(task, p, y, weight)
        except Exception:  # whatever a user's function raises for these rows; `complaint` has shown it at the start
            return np.nan

    def complaint(self, task: Task, p: np.ndarray, y: np.ndarray, weight: np.ndarray) -> str:
        """What is wrong, in words; nothing if nothing is."""
        try:
            value = self._ask(task, p, y, weight)
        except Exception as error:
            return f"{type(error).__name__}: {' '.join(str(error).split())}"
        return "" if np.isfinite(value) else f"it is {value}; use fewer folds, stratified ones, or another scoring"

    def _ask(self, task: Task, p: np.ndarray, y: np.ndarray, weight: np.ndarray) -> float:
        used = weight > 0
        p, y, weight = p[used], y[used], weight[used]
        options: dict[str, Any] = {}
        if not (weight == weight[0]).all():
            if self.weighted:
                options["sample_weight"] = weight
            else:
                times = _times(weight)
                p, y = np.repeat(p, times, axis=0), np.repeat(y, times, axis=0)
        classes = self.classes
        if task.kind == CLASSIFICATION:
            classes = np.arange(task.n_outputs) if classes is None else classes
            estimator, y = _ClassAnswers(classes, task.kind), classes[y]
        elif task.kind == MULTILABEL:
            estimator, y = _ClassAnswers(np.arange(task.n_outputs), task.kind), (y > 0.5).astype(int)
        else:
            estimator, y = _NumberAnswers(None, task.kind), y[:, 0] if y.shape[1] == 1 else y
        with warnings.catch_warnings(), config_context(assume_finite=True, skip_parameter_validation=True):
            warnings.simplefilter("ignore")  # such as that a class was never predicted
            return float(self.call(estimator, _Rows(p), y, **options))


def _times(weight: np.ndarray) -> np.ndarray:
    """Weights as numbers of equal rows, for scores that know no weights."""
    times = weight / weight.min()
    for factor in range(1, 13):
        whole = np.rint(times * factor)
        if np.allclose(times * factor, whole, rtol=1e-6) and whole.max() <= MOST_REPEATS:
            return whole.astype(np.int64)
    raise UserError("it takes no sample_weight, and rows have weights here; fit without weights, or take another")


def _reference(task: Task, y: np.ndarray) -> np.ndarray:
    """Predictions that any score of such rows can deal with: partly right, partly those of another row."""
    other = np.roll(y, 1, axis=0)
    if task.kind == REGRESSION:
        return np.asarray(0.75 * y + 0.25 * other)
    if task.kind == MULTILABEL:
        return np.asarray(0.2 + 0.4 * y + 0.2 * other)
    one = np.eye(task.n_outputs)
    return np.asarray(0.5 * one[y] + 0.3 * one[other] + 0.2 / task.n_outputs)


def _partly_wrong(task: Task, y: np.ndarray) -> np.ndarray:
    """The same with every third row's prediction that of another row, so that errors can be counted."""
    p = _reference(task, y)
    wrong = np.arange(len(y)) % 3 == 0
    return np.where(wrong[:, None], np.roll(p, 1, axis=0), p)


# ---- values per row ----


class _Influence:
    """Values of rows whose mean is the score, and whose mean over a sample of rows is nearly the score of that sample.

    A part of the rows that are alike is left out, and the change of the score is their influence. This is done for the
    first few predictions of the same rows; for later ones the score alone is computed, and the means of the influences
    found serve. So the number of evaluations stays bounded, however many networks there are.
    """

    def __init__(self, value: Value) -> None:
        self.value = value
        self.key: tuple[Any, ...] = ()
        self.edges: Any = None  # of the cells of numbers

    def __call__(self, task: Task, p: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
        key = (task, y.shape, hash(y.tobytes()), hash(w.tobytes()))
        if key != self.key:
            self.key, self.edges = key, None
            self.total, self.count, self.known = np.zeros(0), np.zeros(0), 0
        flat = p.reshape(-1, *p.shape[-2:])
        return np.array([self._rows(task, each, y, w) for each in flat]).reshape(p.shape[:-1])

    def _rows(self, task: Task, p: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
        score = self.value(task, p, y, w)
        if not np.isfinite(score):
            return np.full(len(y), HOPELESS)
        cell, cells, order = self._cells(task, p, y)
        if self.known == 0:
            self.total, self.count = np.zeros(cells), np.zeros(cells)
        if self.known < OWN_TABLES:
            own = self._measure(task, p, y, w, score, (cell, cells, order))
            found = ~np.isnan(own)
            self.total[found] += own[found]
            self.count[found] += 1
            self.known += 1
            influence = np.where(found, own, 0.0)[cell]
        else:
            influence = (self.total / np.maximum(self.count, 1))[cell]
        return np.asarray(score + influence - (influence * w).sum() / w.sum())

    def _measure(
        self, task: Task, p: np.ndarray, y: np.ndarray, w: np.ndarray, score: float, where: Cells
    ) -> np.ndarray:
        """(cells,) the influence of a row of each cell; NaN where there is none, or no score without it."""
        cell, cells, order = where
        found = np.full(cells, np.nan)
        for k in np.unique(cell[w > 0]):
            rows = np.flatnonzero((cell == k) & (w > 0))
            rows = rows[np.argsort(order[rows], kind="stable")]
            count = max(1, min(len(rows) // THIRD, len(y) // FIFTIETH))
            gone = rows[((np.arange(count) + 0.5) / count * len(rows)).astype(np.int64)]
            left = w.copy()
            left[gone] = 0.0
            share = w[gone].sum() / w.sum()
            if left.any():
                found[k] = -(self.value(task, p, y, left) - score) * (1 - share) / share
        return np.where(np.isfinite(found), found, np.nan)

    def _cells(self, task: Task, p: np.ndarray, y: np.ndarray) -> Cells:
        """(n,) the number of each row's cell, how many cells there are, and (n,) an order of rows within them."""
        if task.kind == REGRESSION:
            scale = np.maximum(y.std(axis=0), 1e-300)
            miss, away = (p - y) / scale, (y - y.mean(axis=0)) / scale
            size, far = np.sqrt((miss**2).mean(axis=1)), np.sqrt((away**2).mean(axis=1))
            if self.edges is None:
                self.edges = (np.quantile(size, SIZES), np.quantile(far, FAR))
            place = np.searchsorted(self.edges[0], size) * 3 + np.searchsorted(self.edges[1], far)
            return place * 2 + (miss.mean(axis=1) > 0), 6 * (len(SIZES) + 1), size
        if task.kind == MULTILABEL:
            truth, said = y > 0.5, p > 0.5
            counts = [np.minimum(both.sum(axis=1), 3) for both in (truth & said, truth & ~said, ~truth & said)]
            return (counts[0] * 4 + counts[1]) * 4 + counts[2], 64, np.where(truth, p, 1 - p).mean(axis=1)
        answer, sure = p.argmax(axis=1), p[np.arange(len(y)), y]
        k = task.n_outputs
        if k == 2:
            return y * 8 + _bin(sure, 8), 16, sure
        if k <= 4:
            return (y * k + answer) * 3 + _bin(sure, 3), 3 * k * k, sure
        return (np.minimum(y, 7) * 2 + (answer == y)) * 4 + _bin(sure, 4), 64, sure


def _bin(share: np.ndarray, count: int) -> np.ndarray:
    return np.minimum((share * count).astype(np.int64), count - 1)
