"""The confidence interval of an honest score.

Its standard error has three parts, added as independent errors are:

1. The choice of rows: what each row adds to the score (`Metric.rows`) varies. Rows of a group count as one. Networks of
   one fold err together, and folds share training rows, so out-of-fold errors vary more than independent ones would
   (Bates, Hastie and Tibshirani, 2024): hence WIDER. Errors of numbers have heavier tails than few rows show.
2. The correction for the selection, which is as uncertain as it is large.
3. The gain from averaging over folds.

Errors, and 1 - R2, are positive and skewed: their interval is symmetric on a logarithmic scale, with the quantiles of a
t distribution whose degrees of freedom fall with the kurtosis of the rows' values, since a few large errors say little
about the next one. Shares such as accuracies get two right and two wrong rows added (Agresti and Coull, 1998): a
hundred right answers do not prove that there are no wrong ones.

The constants were chosen on generated tables of 20 to 300 rows, and checked on others (`shoal bench small`).
"""

from __future__ import annotations

import numpy as np

from shoal.metrics.tasks import CLASSIFICATION, MULTILABEL, REGRESSION, Task
from shoal.search.evidence import Evidence

CONFIDENCE = 0.95
WIDER_SHARE = 1.15
WIDER = {CLASSIFICATION: 1.05, MULTILABEL: 1.05, REGRESSION: 1.2}  # of losses
CORRECTION_ERROR = 1.0  # standard error of the correction for the selection, as a share of it
GAIN_ERROR = 0.25  # likewise of what averaging adds
# Over the number of rows: relative error of a loss that comes from fitting a few parameters.
FIT_ERROR = {CLASSIFICATION: 2.0, MULTILABEL: 2.0, REGRESSION: 3.5}
PSEUDO_ROWS = 4.0  # added to shares, half of them right
FEWEST_FREEDOM = 2.0
SMALLEST = 1e-300


def score_interval(
    evidence: Evidence, final: np.ndarray, measured: float, corrected: float, correction: float, gain: float
) -> tuple[float, float]:
    """Lowest and highest score to expect, where `final` are the out-of-fold predictions that scored `measured`."""
    metric = evidence.metric
    if not np.isfinite([measured, corrected]).all():
        return corrected, corrected
    others = np.hypot(CORRECTION_ERROR * correction, GAIN_ERROR * gain)
    if np.isfinite(metric.least):
        low, high = _of_share(evidence, final, measured, corrected, others)
    else:
        deviations = _deviations(evidence, metric.rows(evidence.task, final, evidence.y, evidence.weight))
        low, high = _of_loss(evidence, deviations, (measured, corrected), others)
    low, high = np.clip([min(low, corrected), max(high, corrected)], metric.least, metric.most).tolist()
    return low, high


def _of_share(
    evidence: Evidence, final: np.ndarray, measured: float, corrected: float, others: float
) -> tuple[float, float]:
    """Of a score between bounds."""
    task, counted = evidence.task, evidence.weight > 0
    units = int(counted.sum()) if evidence.group is None else len(np.unique(evidence.group[counted]))
    predicted, truth = _pseudo_rows(task, final.dtype)
    added = evidence.weight.sum() / units * PSEUDO_ROWS / len(truth)
    weight = np.concatenate([evidence.weight, np.full(len(truth), added)])
    values = evidence.metric.rows(task, np.concatenate([final, predicted]), np.concatenate([evidence.y, truth]), weight)
    centre = float((values * weight).sum() / weight.sum())
    share = (values - centre) * weight / weight.sum()
    n = len(evidence.y)
    variance = (_sums(share[:n], evidence.group) ** 2).sum() + (share[n:] ** 2).sum()
    half = _quantile(units - 1) * float(np.hypot(WIDER_SHARE * np.sqrt(variance), others))
    return corrected + centre - measured - half, corrected + centre - measured + half


def _of_loss(
    evidence: Evidence, deviations: np.ndarray, scores: tuple[float, float], others: float
) -> tuple[float, float]:
    """Of a score without a lower bound: a loss, or 1 less a loss. `scores`: as measured, and corrected."""
    metric, kind, (measured, corrected) = evidence.metric, evidence.task.kind, scores
    error, quantile = WIDER[kind] * float(np.sqrt((deviations**2).sum())), _quantile(_freedom(deviations))
    if not np.isfinite(metric.most):
        half = quantile * float(np.hypot(error, others))
        return corrected - half, corrected + half
    loss = metric.most - corrected
    scale = max(loss, others, SMALLEST)  # a gain may be estimated to be as large as the loss itself
    relative = [error / max(metric.most - measured, SMALLEST), others / scale, FIT_ERROR[kind] / len(deviations)]
    factor = float(np.exp(quantile * np.linalg.norm(relative)))
    return metric.most - scale * factor, metric.most - loss / factor


def _freedom(deviations: np.ndarray) -> float:
    """Degrees of freedom of an estimated variance: fewer, the higher the kurtosis."""
    count = len(deviations)
    scaled = deviations / max(float(np.abs(deviations).max()), SMALLEST)
    kurtosis = float((scaled**4).mean() / (scaled**2).mean() ** 2) if scaled.any() else 1.0
    return float(np.clip(2 * count / max(kurtosis, 1.0), FEWEST_FREEDOM, max(count - 1, FEWEST_FREEDOM)))


def _deviations(evidence: Evidence, values: np.ndarray) -> np.ndarray:
    """What each row, or group of rows, adds to the error of the score."""
    counted = evidence.weight > 0
    weight, values = evidence.weight[counted], values[counted]
    share = (values - (values * weight).sum() / weight.sum()) * weight / weight.sum()
    found = _sums(share, None if evidence.group is None else evidence.group[counted])
    return found * np.sqrt(len(found) / max(len(found) - 1, 1))


def _sums(values: np.ndarray, group: np.ndarray | None) -> np.ndarray:
    if group is None:
        return values
    _, place = np.unique(group, return_inverse=True)
    return np.bincount(place, values)


def _pseudo_rows(task: Task, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Predictions and truths: each class once right and once wrong, without any doubt."""
    k = task.n_outputs
    if task.kind == MULTILABEL:
        both = np.array([0, 1, 0, 1], dtype=dtype)[:, None].repeat(k, axis=1)
        return both, np.array([0, 1, 1, 0], dtype=np.float32)[:, None].repeat(k, axis=1)
    one = np.eye(k, dtype=dtype)
    return np.concatenate([one, np.roll(one, 1, axis=0)]), np.tile(np.arange(k), 2)


def _quantile(freedom: float) -> float:
    from scipy.stats import t

    return float(t.ppf(0.5 + CONFIDENCE / 2, max(freedom, 1)))
