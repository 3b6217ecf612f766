"""Metrics from scikit-learn: its names, its scorer objects, and functions of (estimator, X, y).

They are computed from out-of-fold predictions, which a stand-in estimator returns. Their values per row are estimates:
rows that are alike (in class, prediction and confidence, or in error) are given the same influence on the score.
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

MEASURED = 8  # predictions whose influences are measured; later ones get the mean of these
THIRD, FIFTIETH = 3, 50  # at most a third of a cell and a fiftieth of all rows are left out at a time
ERROR_QUANTILES = (0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.87, 0.92, 0.95, 0.975, 0.99)  # borders between cells
DISTANCE_QUANTILES = (0.5, 0.85)  # likewise, of the distance of the target from its mean
UNSCORABLE = -1e30  # row value of predictions that cannot be scored; not -inf, whose product with zero is NaN
MOST_REPEATS = 1000
MOST_GROWTH = 0.1  # of a score when every row is duplicated: division by n - 1 changes it less, a sum more
SHARES = (
    "accuracy_score",
    "balanced_accuracy_score",
    "top_k_accuracy_score",
    "f1_score",
    "fbeta_score",
    "precision_score",
    "recall_score",
    "jaccard_score",
    "roc_auc_score",
    "average_precision_score",
    "rand_score",
    "normalized_mutual_info_score",
    "homogeneity_score",
    "completeness_score",
    "v_measure_score",
    "fowlkes_mallows_score",
)  # between 0 and 1
AGREEMENTS = ("matthews_corrcoef", "cohen_kappa_score")  # between -1 and 1
AT_MOST_ONE = (
    *SHARES,
    *AGREEMENTS,
    "r2_score",
    "explained_variance_score",
    "d2_absolute_error_score",
    "d2_pinball_score",
    "d2_tweedie_score",
    "d2_log_loss_score",
    "d2_brier_score",
    "adjusted_rand_score",
    "adjusted_mutual_info_score",
)
NEVER_NEGATIVE = ("_error", "_loss", "_deviance", "_likelihood_ratio")  # ends of the names of scikit-learn's errors
Cells = tuple[np.ndarray, int, np.ndarray]
Value = Callable[[Task, np.ndarray, np.ndarray, np.ndarray], float]


@dataclass(frozen=True)
class Scored(Metric):
    """A score that is computed from all rows at once. `value` is NaN where it is not defined."""

    value: Value = lambda task, p, y, w: np.nan
    problem: Callable[[Task, np.ndarray, np.ndarray, np.ndarray], str] = lambda task, p, y, w: ""

    def score(self, task: Task, prediction: np.ndarray, y: np.ndarray, weight: np.ndarray) -> np.ndarray:
        flat = prediction.reshape(-1, *prediction.shape[-2:])
        return np.array([self._one(task, p, y, weight) for p in flat]).reshape(prediction.shape[:-2])

    def _one(self, task: Task, p: np.ndarray, y: np.ndarray, weight: np.ndarray) -> float:
        value = self.value(task, p, y, weight)
        if not np.isnan(value):
            return value
        rows_are_fine = not np.isnan(self.value(task, _reference(task, y), y, weight))
        # Either the prediction cannot be scored, or the rows cannot, e.g. because they are of one class.
        return -np.inf if rows_are_fine else self.otherwise

    def check(self, task: Task, y: np.ndarray, weight: np.ndarray, folds: Iterable[np.ndarray]) -> None:
        for k, rows in enumerate(folds):
            problem = self.problem(task, _reference(task, y)[rows], y[rows], weight[rows])
            if problem:
                raise UserError(
                    f"scoring {self.name!r} gives no number for predictions of this {task.kind} on fold {k}: {problem}"
                )
        self._refuse_sums(task, _partly_wrong(task, y), y)

    def _refuse_sums(self, task: Task, p: np.ndarray, y: np.ndarray) -> None:
        """Raise if the score is a sum over rows: folds and samples differ in size, so sums cannot be compared."""
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
    """The metric for a name of scikit-learn, a scorer or a function; None if scikit-learn has no such name."""
    if isinstance(scoring, str):
        if scoring not in get_scorer_names():
            return None
        call, name, classes = get_scorer(scoring), scoring, None  # None: class numbers, of which the second is positive
        if not _fits(call, task):
            return None
    else:
        call, name = scoring, _name(scoring)
        _refuse_metric(call, name)
    caller = _ScorerCall(call, classes)
    label = name.removeprefix("neg_").replace("_", " ") + (" (negative)" if name.startswith("neg_") else "")
    return Scored(
        name, label, (task.kind,), _Influence(caller.value), _least(call), _most(call), value=caller.value,
        problem=caller.problem,
    )  # fmt: skip


def scorer_names(task: Task) -> list[str]:
    """Scikit-learn's names of scorers for such a task."""
    return [name for name in get_scorer_names() if _fits(get_scorer(name), task)]


def _fits(call: Any, task: Task) -> bool:
    return _module(call).endswith("_regression") == (task.kind == REGRESSION)


def _module(call: Any) -> str:
    return str(getattr(getattr(call, "_score_func", None), "__module__", ""))


def _function(call: Any) -> str:
    """The name of scikit-learn's function that a scorer calls; empty if it is another one."""
    return str(getattr(call._score_func, "__name__", "")) if _module(call).startswith("sklearn.") else ""


def _least(call: Any) -> float:
    """The lower bound of a score; minus infinity if there is none, or it is not known."""
    name = _function(call)
    return 0.0 if name in SHARES else -1.0 if name in AGREEMENTS else float("-inf")


def _most(call: Any) -> float:
    """The upper bound of a score; infinity if it is not known."""
    name = _function(call)
    if not name:
        return float("inf")
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
    """Raise for a function of (y_true, y_pred): only `make_scorer` can state whether higher is better."""
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


# ---- calling a scorer ----


class _Rows:
    """Stands in for the X of a scorer: carries the predictions of its rows; their columns cannot be read."""

    def __init__(self, prediction: np.ndarray) -> None:
        self._prediction = prediction

    def __len__(self) -> int:
        return len(self._prediction)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__array__":
            raise AttributeError(name)
        raise UserError("it reads X, but scores are computed from predictions and y alone")

    def __getitem__(self, key: Any) -> Any:
        return self.__getattr__("columns")


class _StandIn(BaseEstimator):
    """An estimator that returns the predictions it is given as X."""

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
            raise UserError("it needs predictions of rows other than the held-out ones, and there are none")
        return X._prediction


class _StandInClassifier(ClassifierMixin, _StandIn):
    def predict_proba(self, X: Any) -> np.ndarray:
        return self._given(X).astype(np.float64)

    def decision_function(self, X: Any) -> np.ndarray:
        p = self._given(X).astype(np.float64)
        logs = np.log(np.maximum(p, 1e-300))
        if self.kind == CLASSIFICATION and p.shape[1] > 2:
            return np.asarray(logs)
        odds = logs - np.log(np.maximum(1 - p, 1e-300))  # from one column alone, so that ties remain ties
        return np.asarray(odds if self.kind == MULTILABEL else odds[:, 1])


class _StandInRegressor(RegressorMixin, _StandIn):
    pass


class _ScorerCall:
    """Calls a scorer with predictions in place of an estimator and X."""

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
            return self._call(task, p, y, weight)
        except Exception:  # anything that a user's function raises for these rows; `problem` reported it at the start
            return np.nan

    def problem(self, task: Task, p: np.ndarray, y: np.ndarray, weight: np.ndarray) -> str:
        """Why there is no finite score; empty if there is one."""
        try:
            value = self._call(task, p, y, weight)
        except Exception as error:
            return f"{type(error).__name__}: {' '.join(str(error).split())}"
        return "" if np.isfinite(value) else f"it is {value}; use fewer folds, stratified ones, or another scoring"

    def _call(self, task: Task, p: np.ndarray, y: np.ndarray, weight: np.ndarray) -> float:
        used = weight > 0
        p, y, weight = p[used], y[used], weight[used]
        options: dict[str, Any] = {}
        if not (weight == weight[0]).all():
            if self.weighted:
                options["sample_weight"] = weight
            else:
                repeats = _repeats(weight)
                p, y = np.repeat(p, repeats, axis=0), np.repeat(y, repeats, axis=0)
        classes = self.classes
        if task.kind == CLASSIFICATION:
            classes = np.arange(task.n_outputs) if classes is None else classes
            estimator, y = _StandInClassifier(classes, task.kind), classes[y]
        elif task.kind == MULTILABEL:
            estimator, y = _StandInClassifier(np.arange(task.n_outputs), task.kind), (y > 0.5).astype(int)
        else:
            estimator, y = _StandInRegressor(None, task.kind), y[:, 0] if y.shape[1] == 1 else y
        with warnings.catch_warnings(), config_context(assume_finite=True, skip_parameter_validation=True):
            warnings.simplefilter("ignore")  # e.g. that a class was never predicted
            return float(self.call(estimator, _Rows(p), y, **options))


def _repeats(weight: np.ndarray) -> np.ndarray:
    """Weights as numbers of repeated rows, for scorers without sample_weight."""
    times = weight / weight.min()
    for factor in range(1, 13):
        whole = np.rint(times * factor)
        if np.allclose(times * factor, whole, rtol=1e-6) and whole.max() <= MOST_REPEATS:
            return whole.astype(np.int64)
    raise UserError("it takes no sample_weight, but rows have weights; fit without weights, or use another scoring")


def _reference(task: Task, y: np.ndarray) -> np.ndarray:
    """Predictions that any score can be computed for: a mix of the row's own target and that of another row."""
    other = np.roll(y, 1, axis=0)
    if task.kind == REGRESSION:
        return np.asarray(0.75 * y + 0.25 * other)
    if task.kind == MULTILABEL:
        return np.asarray(0.2 + 0.4 * y + 0.2 * other)
    one = np.eye(task.n_outputs)
    return np.asarray(0.5 * one[y] + 0.3 * one[other] + 0.2 / task.n_outputs)


def _partly_wrong(task: Task, y: np.ndarray) -> np.ndarray:
    """`_reference`, but every third row has the prediction of another row, so that some are wrong."""
    p = _reference(task, y)
    wrong = np.arange(len(y)) % 3 == 0
    return np.where(wrong[:, None], np.roll(p, 1, axis=0), p)


# ---- values per row ----


class _Influence:
    """Values of rows whose mean is the score, and whose mean over a sample of rows is nearly the score of that sample.

    Similar rows form a cell. The influence of a cell's rows is measured by leaving some of them out and computing the
    score again. This is done for the first MEASURED predictions of the same rows; later ones get the mean influence of
    their cells, so that the number of computations stays bounded, however many networks there are.
    """

    def __init__(self, value: Value) -> None:
        self.value = value
        self.key: tuple[Any, ...] = ()
        self.edges: Any = None  # between the cells of a regression

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
            return np.full(len(y), UNSCORABLE)
        cell, cells, order = self._cells(task, p, y)
        if self.known == 0:
            self.total, self.count = np.zeros(cells), np.zeros(cells)
        if self.known < MEASURED:
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
        """(cells,) the influence of a row of each cell; NaN for empty cells, and if there is no score without them."""
        cell, cells, order = where
        found = np.full(cells, np.nan)
        for k in np.unique(cell[w > 0]):
            rows = np.flatnonzero((cell == k) & (w > 0))
            rows = rows[np.argsort(order[rows], kind="stable")]
            count = max(1, min(len(rows) // THIRD, len(y) // FIFTIETH))
            left_out = rows[((np.arange(count) + 0.5) / count * len(rows)).astype(np.int64)]
            weight = w.copy()
            weight[left_out] = 0.0
            share = w[left_out].sum() / w.sum()
            if weight.any():
                found[k] = -(self.value(task, p, y, weight) - score) * (1 - share) / share
        return np.where(np.isfinite(found), found, np.nan)

    def _cells(self, task: Task, p: np.ndarray, y: np.ndarray) -> Cells:
        """(n,) the cell of each row, the number of cells, and (n,) a key that orders the rows of a cell."""
        if task.kind == REGRESSION:
            scale = np.maximum(y.std(axis=0), 1e-300)
            error, deviation = (p - y) / scale, (y - y.mean(axis=0)) / scale
            size, distance = np.sqrt((error**2).mean(axis=1)), np.sqrt((deviation**2).mean(axis=1))
            if self.edges is None:
                self.edges = (np.quantile(size, ERROR_QUANTILES), np.quantile(distance, DISTANCE_QUANTILES))
            place = np.searchsorted(self.edges[0], size) * 3 + np.searchsorted(self.edges[1], distance)
            return place * 2 + (error.mean(axis=1) > 0), 6 * (len(ERROR_QUANTILES) + 1), size
        if task.kind == MULTILABEL:
            truth, predicted = y > 0.5, p > 0.5
            pairs = (truth & predicted, truth & ~predicted, ~truth & predicted)
            counts = [np.minimum(pair.sum(axis=1), 3) for pair in pairs]
            return (counts[0] * 4 + counts[1]) * 4 + counts[2], 64, np.where(truth, p, 1 - p).mean(axis=1)
        chosen, confidence = p.argmax(axis=1), p[np.arange(len(y)), y]
        k = task.n_outputs
        if k == 2:
            return y * 8 + _bin(confidence, 8), 16, confidence
        if k <= 4:
            return (y * k + chosen) * 3 + _bin(confidence, 3), 3 * k * k, confidence
        return (np.minimum(y, 7) * 2 + (chosen == y)) * 4 + _bin(confidence, 4), 64, confidence


def _bin(share: np.ndarray, count: int) -> np.ndarray:
    return np.minimum((share * count).astype(np.int64), count - 1)
