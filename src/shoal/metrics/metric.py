"""Metrics: scores of predictions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from shoal.errors import UserError
from shoal.metrics.tasks import CLASSIFICATION, MULTILABEL, REGRESSION, Task, weighted_mean

# A metric gives a value per row; the weighted mean of the values is the score.
#
# For scores that are not means over rows (areas, F1, recalls of classes) the value of a row is the score plus the row's
# influence on it. The mean of these values is exactly the score, and their mean over a bootstrap sample is nearly the
# score of that sample, so that one computation serves thousands of samples.


def _accuracy(task: Task, p: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    if task.kind == MULTILABEL:
        return np.asarray(((p > 0.5) == (y > 0.5)).all(axis=-1), dtype=np.float64)
    return np.asarray(p.argmax(axis=-1) == y, dtype=np.float64)


def _balanced_accuracy(task: Task, p: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The mean recall of the classes that occur in y."""
    mass = np.bincount(y, weights=w, minlength=task.n_outputs)
    right = p.argmax(axis=-1) == y
    recall = np.zeros((*right.shape[:-1], task.n_outputs))
    present = np.flatnonzero(mass > 0)
    for k in present:
        recall[..., k] = weighted_mean(right[..., y == k], w[y == k])
    inverse = np.divide(w.sum(), mass * len(present), out=np.zeros_like(mass), where=mass > 0)
    influence = (right - recall[..., y]) * inverse[y]
    return np.asarray(recall.sum(axis=-1, keepdims=True) / len(present) + influence)


def _truths(task: Task, y: np.ndarray) -> np.ndarray:
    """(n, columns) binary targets: with two classes whether it is the second, else one column per class or label."""
    if task.kind == MULTILABEL:
        return np.asarray(y > 0.5)
    return y[:, None] == (np.array([1]) if task.n_outputs == 2 else np.arange(task.n_outputs))


def _roc_auc(task: Task, p: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The area under the ROC curve of each class against all others, averaged over the classes that occur in y."""
    truths = _truths(task, y)
    p = p[..., -truths.shape[1] :]
    usable = [k for k in range(truths.shape[1]) if _two_sided(truths[:, k], w)]
    total = np.zeros((int(np.prod(p.shape[:-2])), len(y)))
    for k in usable:
        for row, score in zip(total, p[..., k].reshape(total.shape), strict=True):
            row += _area(score, truths[:, k], w)
    return total.reshape(p.shape[:-1]) / max(len(usable), 1)


def _two_sided(truth: np.ndarray, w: np.ndarray) -> bool:
    return bool((w[truth] > 0).any() and (w[~truth] > 0).any())


def _area(score: np.ndarray, truth: np.ndarray, w: np.ndarray) -> np.ndarray:
    """(n,) area plus influence, from the share of rows of the other class that a row is ranked correctly against.

    Equal scores count half.
    """
    order = np.argsort(score)
    ranked, side = score[order], truth[order]
    yes, no = np.where(side, w[order], 0.0), np.where(side, 0.0, w[order])
    new = np.ones(len(order), dtype=bool)
    new[1:] = ranked[1:] != ranked[:-1]
    first = np.flatnonzero(new)
    yes_here, no_here = np.add.reduceat(yes, first), np.add.reduceat(no, first)
    group = np.cumsum(new) - 1
    below = (np.cumsum(no_here) - no_here / 2)[group]
    above = (yes_here.sum() - np.cumsum(yes_here) + yes_here / 2)[group]
    all_yes, all_no = yes_here.sum(), no_here.sum()
    won = np.where(side, below / all_no, above / all_yes)
    area = (won * yes).sum() / all_yes  # not a product of vectors: for those BLAS starts threads
    values = np.empty(len(order))
    values[order] = area + (won - area) * np.where(side, 1 + all_no / all_yes, 1 + all_yes / all_no)
    return values


def _f1(task: Task, p: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    """With two classes the F1 score of the second one; with more, or with several labels, the mean over them."""
    return _mean_f1(_truths(task, y), _predicted(task, p)[..., 1:] if _binary(task) else _predicted(task, p), w)


def _f1_macro(task: Task, p: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    truths = y > 0.5 if task.kind == MULTILABEL else y[:, None] == np.arange(task.n_outputs)
    return _mean_f1(truths, _predicted(task, p), w)


def _binary(task: Task) -> bool:
    return task.kind == CLASSIFICATION and task.n_outputs == 2


def _predicted(task: Task, p: np.ndarray) -> np.ndarray:
    """(..., n, n_outputs) whether a class or label is predicted."""
    if task.kind == MULTILABEL:
        return np.asarray(p > 0.5)
    return p.argmax(axis=-1)[..., None] == np.arange(task.n_outputs)


def _mean_f1(truths: np.ndarray, predicted: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The mean F1 score over the classes that occur in y or were predicted, as in scikit-learn."""
    total, count = np.zeros(predicted.shape[:-1]), np.zeros(predicted.shape[:-2])
    share = w / w.sum()
    for k in range(truths.shape[1]):
        hits = 2.0 * (truths[:, k] & predicted[..., k])
        named = 1.0 * truths[:, k] + predicted[..., k]
        mean = (named * share).sum(axis=-1, keepdims=True)
        usable = mean > 0
        mean = np.where(usable, mean, 1.0)
        score = (hits * share).sum(axis=-1, keepdims=True) / mean
        total += np.where(usable, score + (hits - score * named) / mean, 0.0)
        count += usable[..., 0]
    return total / np.maximum(count, 1.0)[..., None]


def _log_loss(task: Task, p: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    return -replace(task, label_noise=0.0).losses(p, y)


def _brier(task: Task, p: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    truth = np.eye(task.n_outputs, dtype=np.float32)[y] if task.kind == CLASSIFICATION else y
    halved = task.kind == CLASSIFICATION and task.n_outputs == 2  # as scikit-learn has it
    scale = 1.0 if task.kind == MULTILABEL else 1.0 if halved else task.n_outputs
    return np.asarray(-((p - truth) ** 2).mean(axis=-1) * scale)


def _r2(task: Task, p: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    total = max(w.sum(), 1e-300)
    centre = (w[:, None] * y).sum(axis=0) / total
    spread = (w[:, None] * (y - centre) ** 2).sum(axis=0) / total
    varied = spread > 0
    if not varied.any():
        return np.asarray(np.where(((p - y) == 0).all(axis=-1), 1.0, 0.0))
    error = (p - y)[..., varied] ** 2 / spread[varied]
    unexplained = (w[:, None] * error).sum(axis=-2, keepdims=True) / total
    far = (y - centre)[:, varied] ** 2 / spread[varied]  # a row far from the mean also adds to the spread
    return np.asarray((1.0 - error + unexplained * (far - 1.0)).mean(axis=-1))


def _squared(task: Task, p: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    return np.asarray(-((p - y) ** 2).mean(axis=-1))


def _absolute(task: Task, p: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    return np.asarray(-np.abs(p - y).mean(axis=-1))


def _always(task: Task, y: np.ndarray, w: np.ndarray) -> bool:
    return True


def _several_classes(task: Task, y: np.ndarray, w: np.ndarray) -> bool:
    return any(_two_sided(truth, w) for truth in _truths(task, y).T)


def _positive_rows(task: Task, y: np.ndarray, w: np.ndarray) -> bool:
    return bool(_truths(task, y)[w > 0].any())


@dataclass(frozen=True)
class Metric:
    """A score, higher is better, that is the weighted mean of a value per row.

    `defined` tells whether the score exists for given rows; `need` describes in words what it requires. Where it does
    not exist, the score is `otherwise`.
    """

    name: str
    label: str
    kinds: tuple[str, ...]
    rows: Callable[[Task, np.ndarray, np.ndarray, np.ndarray], np.ndarray]
    least: float = -np.inf
    most: float = 0.0
    defined: Callable[[Task, np.ndarray, np.ndarray], bool] = _always
    need: str = ""
    otherwise: float = np.nan
    against_all: bool = False  # few rows are scored against the spread of all: few have none to speak of

    def score_part(
        self, task: Task, prediction: np.ndarray, y: np.ndarray, weight: np.ndarray, part: np.ndarray
    ) -> float:
        """The score of one prediction (n, n_outputs) on a part of the rows."""
        if self.against_all:
            return float(weighted_mean(self.rows(task, prediction, y, weight)[part], weight[part]))
        return float(self.score(task, prediction[part], y[part], weight[part]))

    def score(self, task: Task, prediction: np.ndarray, y: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """(...,) scores of predictions (..., n, n_outputs)."""
        if not self.defined(task, y, weight):
            return np.full(prediction.shape[:-2], self.otherwise)
        return weighted_mean(self.rows(task, prediction, y, weight), weight)

    def check(self, task: Task, y: np.ndarray, weight: np.ndarray, folds: Iterable[np.ndarray]) -> None:
        """Raise if the score is not defined on the rows that some fold is scored on."""
        for k, rows in enumerate(folds):
            if not self.defined(task, y[rows], weight[rows]):
                raise UserError(
                    f"scoring {self.name!r} needs {self.need} in the held-out rows of every fold; fold {k} has none; "
                    "use fewer folds, stratified ones, or another scoring"
                )


_BOTH = (CLASSIFICATION, MULTILABEL)
_CLASSES = "rows of a second class"
_POSITIVE = "rows of the positive class (the second one in sorted order)"
METRICS = {
    metric.name: metric
    for metric in (
        Metric("accuracy", "accuracy", _BOTH, _accuracy, 0.0, 1.0),
        Metric("balanced_accuracy", "balanced accuracy", (CLASSIFICATION,), _balanced_accuracy, 0.0, 1.0),
        Metric("roc_auc", "area under the ROC curve", _BOTH, _roc_auc, 0.0, 1.0, _several_classes, _CLASSES),
        Metric("f1", "F1 score", _BOTH, _f1, 0.0, 1.0, _positive_rows, _POSITIVE),
        Metric("f1_macro", "mean F1 score of the classes", _BOTH, _f1_macro, 0.0, 1.0),
        Metric("neg_log_loss", "log-loss (negative)", _BOTH, _log_loss),
        Metric("neg_brier_score", "Brier score (negative)", _BOTH, _brier),
        Metric("r2", "R2", (REGRESSION,), _r2, most=1.0, against_all=True),
        Metric("neg_mean_squared_error", "mean squared error (negative)", (REGRESSION,), _squared),
        Metric("neg_mean_absolute_error", "mean absolute error (negative)", (REGRESSION,), _absolute),
    )
}
ALIASES = {"roc_auc_ovr": "roc_auc"} | {
    name.removeprefix("neg_"): name for name in METRICS if name.startswith("neg_")
}  # names without "neg_" mean the same: all scores are higher is better


def forward_metric(metric: Metric, y: np.ndarray, weight: np.ndarray, stretches: Sequence[np.ndarray]) -> Metric:
    """The metric for rows that are scored in stretches of time, one after the other.

    Where the target drifts, the mean over all stretches is far from each of them. Any forecast of roughly the right
    level would have a high R2 against that mean, and a low one in each stretch.
    """
    if metric.name != "r2":
        return metric
    squares, total = np.zeros(y.shape[1]), 0.0
    for rows in stretches:
        share = weight[rows, None]
        centre = (share * y[rows]).sum(axis=0) / max(float(share.sum()), 1e-300)
        squares += (share * (y[rows] - centre) ** 2).sum(axis=0)
        total += float(share.sum())
    spread = squares / total
    return replace(metric, rows=partial(_explained, spread)) if spread.all() else metric


def _explained(spread: np.ndarray, task: Task, p: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    return np.asarray((1.0 - (p - y) ** 2 / spread).mean(axis=-1))
