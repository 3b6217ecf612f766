"""Tasks: classification, several labels at once (multilabel), or regression."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

SMALLEST_PROBABILITY = 1e-7  # limits the log-loss of a row to 16

FEW_OUTPUTS = 8  # from here on numpy sums in pairs

CLASSIFICATION, MULTILABEL, REGRESSION = "classification", "multilabel", "regression"


def weighted_mean(values: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """(...,) means of values (..., n). Not a matrix product: the last bits of one depend on its number of rows.

    >>> weighted_mean(np.array([[1.0, 4.0], [0.0, 8.0]]), np.array([1.0, 3.0])).tolist()
    [3.25, 6.0]
    """
    return np.asarray((np.ascontiguousarray(values) * (weight / weight.sum())).sum(axis=-1))


def _over_outputs(ufunc: np.ufunc, values: np.ndarray) -> np.ndarray:
    """(..., 1): `ufunc.reduce` over the last axis. Few outputs are taken column by column, which has the same bits.

    numpy's own reduction of a short axis is ten times as slow.
    """
    if values.shape[-1] >= FEW_OUTPUTS:
        return np.asarray(ufunc.reduce(values, axis=-1, keepdims=True))
    found = values[..., 0]
    for j in range(1, values.shape[-1]):
        found = ufunc(found, values[..., j])
    return found[..., None]


@dataclass(frozen=True)
class Task:
    """The kind of task and the number of outputs. Targets are class numbers (n,) or values (n, n_outputs).

    Predictions have the shape (..., n, n_outputs): probabilities, or values in the units of the target.
    """

    kind: str
    n_outputs: int
    label_noise: float = 0.0  # share of the labels that losses assume to be wrong

    @property
    def loss(self) -> str:
        return {CLASSIFICATION: "cross_entropy", MULTILABEL: "bce", REGRESSION: "mse"}[self.kind]

    def activate(self, raw: np.ndarray) -> np.ndarray:
        """Raw outputs to predictions, in float32."""
        if self.kind == CLASSIFICATION:
            shifted = np.exp(raw - _over_outputs(np.maximum, raw))
            return np.asarray(shifted / _over_outputs(np.add, shifted))
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
        powers = np.exp(logs - _over_outputs(np.maximum, logs))
        return np.asarray(powers / _over_outputs(np.add, powers))

    def losses(self, prediction: np.ndarray, y: np.ndarray, scale: np.ndarray | float = 1.0) -> np.ndarray:
        """Loss of each row, shape (..., n): log-loss, mean log-loss over labels, or mean squared error over `scale`.

        `label_noise` penalises certainty even where it is right. Without it, where networks make no mistake on these
        rows, log-loss would prefer the most certain one, whose first mistake on new rows costs without limit.
        """
        return self.losses_of_inputs(self.loss_inputs(prediction, y), y, scale)

    def loss_inputs(self, prediction: np.ndarray, y: np.ndarray) -> np.ndarray:
        """The part of predictions, (..., n, d), from which the loss of their average can be computed.

        For classes it is only the probability of the true class, which makes ensembles cheap to evaluate.
        """
        if self.kind == CLASSIFICATION:
            index = np.broadcast_to(y[:, None], (*prediction.shape[:-1], 1))
            return np.take_along_axis(prediction, index, axis=-1)
        if self.kind == MULTILABEL:
            return np.where(y > 0.5, prediction, 1.0 - prediction)
        return prediction

    def losses_of_inputs(self, loss_inputs: np.ndarray, y: np.ndarray, scale: np.ndarray | float = 1.0) -> np.ndarray:
        """Loss of each row from the `loss_inputs`."""
        if self.kind == REGRESSION:
            return np.asarray((((loss_inputs - y) / scale) ** 2).mean(axis=-1))
        losses = -np.log(np.maximum(loss_inputs, SMALLEST_PROBABILITY))
        if self.label_noise:
            losses = (1 - self.label_noise) * losses - self.label_noise * np.log(
                np.maximum(1 - loss_inputs, SMALLEST_PROBABILITY)
            )
        return np.asarray(losses.mean(axis=-1))
