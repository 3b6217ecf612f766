"""The gain from averaging over folds: the step from what is measured to what is delivered.

An out-of-fold prediction comes from the networks of one fold (of one per repeat of the folds), since all others were
trained on that row. The delivered model averages the networks of all folds, and an average of networks that disagree is
better than one of them. Two steps estimate by how much, without training anything and without rows set aside:

1. How much folds disagree on new rows. Folds that trained on a row disagree less about it than they would about a new
   one, as all were pulled towards its target. The pull makes the loss on seen rows smaller, and the variance by about
   the same factor; so the variance on seen rows is multiplied by the loss on held-out rows over the loss on seen rows.
2. What that does to a score. Disagreement is added to the held-out predictions in two strengths, and the score is
   extrapolated, linearly in the variance, to the variance that is left in the average (SIMEX; Cook and Stefanski,
   1994). It works for any score. For squared errors a straight line is exact.

Networks that learnt their rows by heart agree on them almost perfectly, which leaves little to go by. There the factor
is limited, and the estimate errs towards too small a gain.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from shoal.metrics.metric import Metric
from shoal.metrics.tasks import CLASSIFICATION, MULTILABEL, REGRESSION, Task

STRENGTHS = (0.25, 1.0)  # of the noise, in variances of one fold; none at all would keep the luck of having been chosen
DRAWS = 24
TEMPERATURE_DRAWS = 4
LARGEST_FACTOR = {CLASSIFICATION: 2.0, MULTILABEL: 2.0, REGRESSION: 10.0}  # of the variance on seen rows
LARGEST_SHARE = 0.1  # of the squared error that may be variance, where it is more than that on seen rows
SMALLEST = 1e-6  # probability
SMALLEST_DIVISOR = 0.3  # networks that learnt their rows by heart leave nothing to divide by
NEIGHBOURS = 20  # rows with about the same prediction
TEMPERATURES = np.geomspace(0.5, 4.0, 43)
COARSE = 6  # every so many of these are tried first, then those around the best


@dataclass(frozen=True, eq=False)
class FoldPredictions:
    """Predictions of each fold's part of the model for the same rows, whether it was trained on them or not."""

    task: Task
    prediction: np.ndarray  # (n_folds, n, n_outputs)
    held_out: np.ndarray  # (n_folds, n) whether a row is scored in a fold
    seen: np.ndarray  # (n_folds, n) whether a fold was trained on a row that it is not scored on
    y: np.ndarray
    weight: np.ndarray  # (n,) in scores
    loss_weight: np.ndarray  # (n,) in losses
    scale: np.ndarray | float = 1.0  # of errors
    averaged: bool = True  # whether the model averages over folds; it does not where it was trained again on all rows
    delivered: int | None = None  # folds that the model averages; None: all

    @property
    def out_of_fold(self) -> np.ndarray:
        """(n, n_outputs) the mean over folds that had not seen a row."""
        return _mean_over(self.held_out, self.prediction)

    @property
    def removed(self) -> float:
        """Share of one fold's variance that is in out-of-fold predictions and no longer in the delivered average.

        Below zero where a model of fewer folds is delivered than held a row out.
        """
        if not self.averaged:
            return 0.0
        return float(1 / self.held_out.sum(axis=0).mean() - 1 / (self.delivered or len(self.prediction)))


class Disagreement:
    """Draws of how else the out-of-fold predictions might have come out, with other folds."""

    def __init__(self, folds: FoldPredictions, seed: int) -> None:
        self.task, self.folds = folds.task, folds
        self.values = _open(self.task, folds.prediction)
        self.centre = _open(self.task, folds.out_of_fold)
        count = folds.seen.sum(axis=0)
        usable = count >= 2  # of other rows nothing is known: they stay as they are
        if usable.any():
            self.mean = _mean_over(folds.seen, self.values)
            square = np.where(usable, count / np.maximum(count - 1, 1), 0.0) * self._factor(usable)
        else:  # two folds: one has seen a row, and the other one has not
            self.mean = self.centre
            square = np.where(count == 1, self._share_of_difference(count == 1), 0.0)
        self.spread = np.sqrt(square)[:, None]
        self.order = _alike(self.task, folds.out_of_fold)
        self.generator = np.random.default_rng(seed)

    def _errors(self, usable: np.ndarray) -> tuple[float, float]:
        """Mean squared errors of one fold on rows that are new to it, and on rows that it has seen."""
        folds = self.folds
        truth = np.eye(self.task.n_outputs)[folds.y] if self.task.kind == CLASSIFICATION else folds.y
        errors = (((folds.prediction - truth) / folds.scale) ** 2).sum(axis=-1)
        new, old = (_mean_over(which, errors)[usable].mean() for which in (folds.held_out, folds.seen))
        return float(new), float(old)

    def _share_of_difference(self, usable: np.ndarray) -> float:
        """Variance on new rows, as a share of the squared difference between a fold that has seen a row and one that
        has not.

        Of the variance v and the error e on new rows, a fold that is pulled towards the target by a share s of the way
        has (1 - s)^2 of both on seen rows. The squared difference is v + (1 - s)^2 v + s^2 (e - v): solved for v.
        """
        folds = self.folds
        if not usable.any():
            return 0.0
        new, old = self._errors(usable)
        seen = _mean_over(folds.seen, folds.prediction)
        difference = float((((seen - folds.out_of_fold) / folds.scale) ** 2).sum(axis=-1)[usable].mean())
        left = min(old / max(new, 1e-300), 1.0)
        pull = (1 - np.sqrt(left)) ** 2
        variance = (difference - pull * new) / max(1 + left - pull, SMALLEST_DIVISOR)
        return float(np.clip(variance / max(difference, 1e-300), 0.0, 0.5))

    def _factor(self, usable: np.ndarray) -> float:
        """How much larger the variance between folds is on new rows than on seen ones."""
        folds = self.folds
        new, old = self._errors(usable)
        most = LARGEST_FACTOR[self.task.kind]
        if self.task.kind == REGRESSION:
            mean = _mean_over(folds.seen, folds.prediction)
            variance = _mean_over(folds.seen, (((folds.prediction - mean) / folds.scale) ** 2).sum(axis=-1))[usable]
            most = min(most, LARGEST_SHARE * new / max(float(variance.mean()), 1e-300))
        return float(np.clip(new / max(old, 1e-300), 1.0, max(most, 1.0)))

    def draw(self, strength: float) -> np.ndarray:
        """(n, n_outputs) out-of-fold predictions with so many variances of one fold added.

        A row gets the disagreement about another row for which the model says much the same. That about the row itself
        knows its target, as folds were pulled towards it.
        """
        folds, n = self.folds, len(self.folds.y)
        keys = np.where(folds.seen, self.generator.random(folds.seen.shape), -1.0)
        noise = self.spread * (self.values[keys.argmax(axis=0), np.arange(n)] - self.mean)
        step = self.generator.integers(1, max(2, min(NEIGHBOURS, n)))
        noise[self.order] = np.roll(noise[self.order], step, axis=0)
        sign = self.generator.choice([-1.0, 1.0], n)[:, None]
        return _close(self.task, self.centre + sign * np.sqrt(strength) * noise)


def averaging_gain(folds: FoldPredictions, metric: Metric, temperature: float, seed: int) -> float:
    """How much higher the score of the average over all folds is than that of out-of-fold predictions."""
    if folds.removed == 0:
        return 0.0
    disagreement = Disagreement(folds, seed)

    def score(strength: float) -> float:
        draws = (folds.task.temper(disagreement.draw(strength), temperature) for _ in range(DRAWS))
        return float(np.mean([metric.score(folds.task, draw, folds.y, folds.weight) for draw in draws]))

    weak, strong = STRENGTHS
    with np.errstate(invalid="ignore"):
        gain = (score(weak) - score(strong)) / (strong - weak) * folds.removed
    return float(gain) if np.isfinite(gain) else 0.0  # a score that some predictions do not have


def loss_slope(folds: FoldPredictions, seed: int) -> float:
    """How much lower the mean loss is with the variance of one fold less; not below zero."""
    if not folds.averaged:
        return 0.0
    disagreement, share = Disagreement(folds, seed), folds.loss_weight / folds.loss_weight.sum()

    def loss(strength: float) -> float:
        draws = (disagreement.draw(strength) for _ in range(TEMPERATURE_DRAWS))
        return float(np.mean([(folds.task.losses(draw, folds.y, folds.scale) * share).sum() for draw in draws]))

    weak, strong = STRENGTHS
    return max(0.0, (loss(strong) - loss(weak)) / (strong - weak))


def best_temperature(folds: FoldPredictions, seed: int) -> float:
    """The temperature with the lowest loss of the average over all folds, one mistake more being imagined.

    Out-of-fold predictions are of fewer networks, so they are too sure of themselves more often than the average is.
    """
    if folds.task.kind == REGRESSION:
        return 1.0
    task = replace(folds.task, label_noise=max(folds.task.label_noise, 1 / (len(folds.y) + 2)))
    share = folds.loss_weight / folds.loss_weight.sum()
    parts = [(1.0, folds.out_of_fold)]
    if folds.removed != 0:
        disagreement = Disagreement(folds, seed)
        slope = folds.removed / (STRENGTHS[1] - STRENGTHS[0]) / TEMPERATURE_DRAWS
        for sign, strength in zip((1, -1), STRENGTHS, strict=True):
            parts += [(sign * slope, disagreement.draw(strength)) for _ in range(TEMPERATURE_DRAWS)]

    def loss(place: int) -> float:
        temperature = float(TEMPERATURES[place])
        losses = [(task.losses(task.temper(part, temperature), folds.y) * share).sum() for _, part in parts]
        return float(sum(factor * value for (factor, _), value in zip(parts, losses, strict=True)))

    rough = min(range(0, len(TEMPERATURES), COARSE), key=loss)
    near = range(max(0, rough - COARSE + 1), min(len(TEMPERATURES), rough + COARSE))
    return float(TEMPERATURES[min(near, key=loss)])


def _mean_over(chosen: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Mean of values (n_folds, n, ...) over the folds chosen for each row, (n_folds, n); zero where there is none."""
    share = chosen / np.maximum(chosen.sum(axis=0), 1)
    return np.asarray(np.einsum("kn,kn...->n...", share, values))


def _alike(task: Task, prediction: np.ndarray) -> np.ndarray:
    """An order of the rows in which neighbours have about the same prediction."""
    if task.kind == CLASSIFICATION:
        return np.lexsort((prediction.max(axis=-1), prediction.argmax(axis=-1)))
    return np.argsort(prediction.mean(axis=-1), kind="stable")


def _open(task: Task, prediction: np.ndarray) -> np.ndarray:
    """Predictions as numbers without bounds, to which noise can be added."""
    if task.kind == REGRESSION:
        return np.asarray(prediction, dtype=np.float64)
    logs = np.log(np.maximum(prediction, SMALLEST).astype(np.float64))
    if task.kind == MULTILABEL:
        return np.asarray(logs - np.log(np.maximum(1.0 - prediction, SMALLEST)))
    return np.asarray(logs - logs.mean(axis=-1, keepdims=True))


def _close(task: Task, values: np.ndarray) -> np.ndarray:
    """Back from `_open`."""
    return values if task.kind == REGRESSION else task.activate(values)
