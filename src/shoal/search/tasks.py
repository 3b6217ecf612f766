"""What is to be predicted: classes, several labels at once, or numbers. And the scores of predictions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from shoal.members import nearest

SMALLEST_PROBABILITY = 1e-7  # a certain mistake costs 16 in log-loss, not infinity

CLASSIFICATION, MULTILABEL, REGRESSION = "classification", "multilabel", "regression"


@dataclass(frozen=True)
class Task:
    """The kind of task and the number of outputs. Targets are class numbers (n,) or values (n, n_outputs).

    Predictions have the shape (..., n, n_outputs): probabilities, or values in the units of the target.
    """

    kind: str
    n_outputs: int
    doubt: float = 0.0  # share of the rows that losses imagine to be mistakes

    @property
    def loss(self) -> str:
        return {CLASSIFICATION: "cross_entropy", MULTILABEL: "bce", REGRESSION: "mse"}[self.kind]

    def activate(self, raw: np.ndarray) -> np.ndarray:
        """Raw outputs to predictions, in float32."""
        if self.kind == CLASSIFICATION:
            shifted = np.exp(raw - raw.max(axis=-1, keepdims=True))
            return np.asarray(shifted / shifted.sum(axis=-1, keepdims=True))
        if self.kind == MULTILABEL:
            return np.asarray(0.5 * (1.0 + np.tanh(0.5 * raw)), dtype=np.float32)
        return raw

    def temper(self, prediction: np.ndarray, temperature: float) -> np.ndarray:
        """Probabilities sharpened (temperature below one) or flattened (above one)."""
        if self.kind == REGRESSION or temperature == 1.0:
            return prediction
        logs = np.log(np.clip(prediction, SMALLEST_PROBABILITY, 1.0).astype(np.float64)) / temperature
        if self.kind == MULTILABEL:
            other = np.log(np.clip(1.0 - prediction, SMALLEST_PROBABILITY, 1.0).astype(np.float64)) / temperature
            return np.asarray(1.0 / (1.0 + np.exp(other - logs)))
        logs -= logs.max(axis=-1, keepdims=True)
        return np.asarray(np.exp(logs) / np.exp(logs).sum(axis=-1, keepdims=True))

    def losses(self, prediction: np.ndarray, y: np.ndarray, scale: np.ndarray | float = 1.0) -> np.ndarray:
        """Loss of each row, shape (..., n): log-loss, mean log-loss over labels, or mean squared error over `scale`.

        With `doubt`, being right with certainty costs something too. Where networks make no mistake on the rows at
        hand, plain log-loss would prefer the most certain of them, and the first mistake would cost without limit.
        """
        return self.mean_losses(self.essence(prediction, y), y, scale)

    def essence(self, prediction: np.ndarray, y: np.ndarray) -> np.ndarray:
        """What of a prediction the loss of an average of predictions depends on, (..., n, d).

        For classes it is the probability of the true class alone, so that ensembles of any size are cheap to judge.
        """
        if self.kind == CLASSIFICATION:
            index = np.broadcast_to(y[:, None], (*prediction.shape[:-1], 1))
            return np.take_along_axis(prediction, index, axis=-1)
        if self.kind == MULTILABEL:
            return np.where(y > 0.5, prediction, 1.0 - prediction)
        return prediction

    def mean_losses(self, essence: np.ndarray, y: np.ndarray, scale: np.ndarray | float = 1.0) -> np.ndarray:
        """Loss of each row from the essence."""
        if self.kind == REGRESSION:
            return np.asarray((((essence - y) / scale) ** 2).mean(axis=-1))
        losses = -np.log(np.maximum(essence, SMALLEST_PROBABILITY))
        if self.doubt:
            losses = (1 - self.doubt) * losses - self.doubt * np.log(np.maximum(1 - essence, SMALLEST_PROBABILITY))
        return np.asarray(losses.mean(axis=-1))


# ---- metrics: a value per row, whose weighted mean is the score ----


def _accuracy(task: Task, p: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    if task.kind == MULTILABEL:
        return np.asarray(((p > 0.5) == (y > 0.5)).all(axis=-1), dtype=np.float64)
    return np.asarray(p.argmax(axis=-1) == y, dtype=np.float64)


def _balanced_accuracy(task: Task, p: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    mass = np.bincount(y, weights=w, minlength=task.n_outputs)
    share = mass / max(mass.sum(), 1e-300)
    present = int((mass > 0).sum())
    inverse = np.divide(1.0, share * present, out=np.zeros_like(share), where=share > 0)
    return np.asarray((p.argmax(axis=-1) == y) * inverse[y])


def _log_loss(task: Task, p: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    return -replace(task, doubt=0.0).losses(p, y)


def _brier(task: Task, p: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    truth = np.eye(task.n_outputs, dtype=np.float32)[y] if task.kind == CLASSIFICATION else y
    return np.asarray(-((p - truth) ** 2).mean(axis=-1) * (1.0 if task.kind == MULTILABEL else task.n_outputs / 2))


def _r2(task: Task, p: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    total = max(w.sum(), 1e-300)
    centre = (w[:, None] * y).sum(axis=0) / total
    spread = (w[:, None] * (y - centre) ** 2).sum(axis=0) / total
    varied = spread > 0
    if not varied.any():
        return np.asarray(np.where(((p - y) == 0).all(axis=-1), 1.0, 0.0))
    return np.asarray((1.0 - (p - y)[..., varied] ** 2 / spread[varied]).mean(axis=-1))


def _squared(task: Task, p: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    return np.asarray(-((p - y) ** 2).mean(axis=-1))


def _absolute(task: Task, p: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    return np.asarray(-np.abs(p - y).mean(axis=-1))


@dataclass(frozen=True)
class Metric:
    """A score, the higher the better, that is the weighted mean of a value per row."""

    name: str
    label: str
    kinds: tuple[str, ...]
    rows: Callable[[Task, np.ndarray, np.ndarray, np.ndarray], np.ndarray]
    least: float = -np.inf
    most: float = 0.0

    def score(self, task: Task, prediction: np.ndarray, y: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """(...,) scores of predictions (..., n, n_outputs)."""
        total = weight.sum()
        return np.asarray(self.rows(task, prediction, y, weight) @ (weight / total))


_BOTH = (CLASSIFICATION, MULTILABEL)
METRICS = {
    metric.name: metric
    for metric in (
        Metric("accuracy", "accuracy", _BOTH, _accuracy, 0.0, 1.0),
        Metric("balanced_accuracy", "balanced accuracy", (CLASSIFICATION,), _balanced_accuracy, 0.0, 1.0),
        Metric("neg_log_loss", "log-loss (negative)", _BOTH, _log_loss),
        Metric("neg_brier_score", "Brier score (negative)", _BOTH, _brier),
        Metric("r2", "R2", (REGRESSION,), _r2, most=1.0),
        Metric("neg_mean_squared_error", "mean squared error (negative)", (REGRESSION,), _squared),
        Metric("neg_mean_absolute_error", "mean absolute error (negative)", (REGRESSION,), _absolute),
    )
}


def find_metric(name: str | None, task: Task) -> Metric:
    """The metric of that name; by default accuracy or R2, like `score` of scikit-learn's estimators."""
    if name is None:
        return METRICS["r2" if task.kind == REGRESSION else "accuracy"]
    fitting = [metric.name for metric in METRICS.values() if task.kind in metric.kinds]
    if name not in fitting:
        raise ValueError(
            f"scoring must be one of {', '.join(fitting)} for {task.kind}; got {name!r}{nearest(name, fitting)}"
        )
    return METRICS[name]
