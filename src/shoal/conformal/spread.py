"""Expected size of a regression error, by row: learnt from residuals of held-out rows.

A ridge regression of the logarithm of residuals on the inputs of the row and on what was predicted. Each fold has
coefficients of its own, fitted without the rows that it held out, so that a row's score does not know its own residual.
How strongly to hold coefficients back is chosen by their errors on rows left out, and how much of the result to use by
the width of intervals: where spreads do not differ, all rows get the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

MOST_INPUTS = 128  # of more, the prediction alone tells the spread
FEWEST_ROWS = 60  # of fewer rows all spreads are the same
PENALTIES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
POWERS = (0.0, 0.5, 1.0)
USUAL = 0.9  # coverage that widths are compared at
SMALLEST = 1e-3  # of the median residual; smaller ones count as this
FARTHEST = 3.0  # standard deviations that a prediction counts as away from the mean, at most
EDGES = (0.01, 0.99)  # quantiles of the logarithm of spreads between which new ones stay


@dataclass(frozen=True, eq=False)
class Spread:
    """The spread of each row and output, as each fold sees it."""

    input_centre: np.ndarray  # (d,)
    input_scale: np.ndarray
    output_centre: np.ndarray  # (n_outputs,)
    output_scale: np.ndarray
    coefficients: np.ndarray  # (n_folds, n_outputs, d + 3)
    low: np.ndarray  # (n_outputs,) of the logarithm
    high: np.ndarray

    @property
    def needs_inputs(self) -> bool:
        return len(self.input_centre) > 0

    def __call__(self, inputs: np.ndarray, prediction: np.ndarray) -> np.ndarray:
        """(n_folds, n, n_outputs) from inputs (n, d) and predictions of each fold (n_folds, n, n_outputs)."""
        scaled = (inputs[:, : len(self.input_centre)] - self.input_centre) / self.input_scale
        logs = np.empty(prediction.shape)
        for k, j in np.ndindex(len(prediction), prediction.shape[2]):
            said = (prediction[k, :, j] - self.output_centre[j]) / self.output_scale[j]
            logs[k, :, j] = features(scaled, said) @ self.coefficients[k, j]
        return np.exp(np.clip(logs, self.low, self.high))


def features(scaled: np.ndarray, said: np.ndarray) -> np.ndarray:
    """(n, d + 3) inputs, prediction, its square, and a one."""
    said = np.clip(said, -FARTHEST, FARTHEST)[:, None]
    return np.concatenate([scaled, said, said**2, np.ones_like(said)], axis=1)


@dataclass(frozen=True, eq=False)
class Residuals:
    """What folds said of rows that they held out: a pair of a row and a fold each."""

    inputs: np.ndarray  # (n, d) of the rows
    row: np.ndarray  # (pairs,) place among these
    fold: np.ndarray  # (pairs,)
    prediction: np.ndarray  # (pairs, n_outputs)
    residual: np.ndarray  # (pairs, n_outputs), not negative
    weight: np.ndarray  # (pairs,)
    held_out: np.ndarray  # (n_folds, n) whether a fold held out a row


def fit_spread(found: Residuals, averaged: bool) -> tuple[Spread, np.ndarray]:
    """The spread, and that of each pair, (pairs, n_outputs), learnt without the pair's row.

    averaged: the model has the folds; else it has one, trained on all rows, and so has its spread.
    """
    outputs = found.residual.shape[1]
    folds = len(found.held_out) if averaged else 1
    weight = found.weight / found.weight.mean()
    plain = found.inputs if found.inputs.shape[1] <= MOST_INPUTS else found.inputs[:, :0]
    centre, scale = _moments(plain[found.row], weight)
    said_centre, said_scale = _moments(found.prediction, weight)
    scaled = ((plain - centre) / scale)[found.row]
    coefficients = np.zeros((folds, outputs, plain.shape[1] + 3))
    logs = np.empty(found.residual.shape)
    for j in range(outputs):
        matrix = features(scaled, (found.prediction[:, j] - said_centre[j]) / said_scale[j])
        coefficients[:, j], logs[:, j] = _fit_output(matrix, found.residual[:, j], weight, found, averaged)
    low, high = (np.array([np.quantile(logs[:, j], edge) for j in range(outputs)]) for edge in EDGES)
    spread = Spread(centre, scale, said_centre, said_scale, coefficients, low, high)
    return spread, np.exp(np.clip(logs, low, high))


def _fit_output(
    matrix: np.ndarray, residual: np.ndarray, weight: np.ndarray, found: Residuals, averaged: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients of each fold of the model, and the logarithm of the spread of each pair, learnt without its row."""
    middle = float(np.median(residual)) or float(residual.mean()) or 1.0
    logs = np.log(np.maximum(residual, SMALLEST * middle))
    mean = float(logs @ weight / weight.sum())
    folds = len(found.held_out)
    constant = np.zeros(matrix.shape[1])
    constant[-1] = mean
    if len(found.inputs) < FEWEST_ROWS:
        return np.tile(constant, (folds if averaged else 1, 1)), np.full(len(logs), mean)
    gram, moment = _sums(matrix, logs - mean, weight)
    without = [_without(gram, moment, matrix, logs - mean, weight, found, k) for k in range(folds)]
    fits = [np.array([_solve(*sums, penalty) for sums in without]) for penalty in PENALTIES]
    crossed = [np.einsum("pf,pf->p", matrix, each[found.fold]) for each in fits]
    errors = [float(weight @ (logs - mean - each) ** 2) for each in crossed]
    best = int(np.argmin(errors))
    power = min(POWERS, key=lambda each: _width(each * crossed[best], residual, weight))
    chosen = fits[best] if averaged else _solve(gram, moment, PENALTIES[best])[None]
    return power * chosen + constant, power * crossed[best] + mean


def _sums(matrix: np.ndarray, target: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    weighted = matrix * weight[:, None]
    return weighted.T @ matrix, weighted.T @ target


def _without(
    gram: np.ndarray, moment: np.ndarray, matrix: np.ndarray, target: np.ndarray, weight: np.ndarray,
    found: Residuals, k: int,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """The sums over all pairs whose row fold k did not hold out."""
    out = found.held_out[k][found.row]
    less, moved = _sums(matrix[out], target[out], weight[out])
    return gram - less, moment - moved


def _solve(gram: np.ndarray, moment: np.ndarray, penalty: float) -> np.ndarray:
    """Ridge regression; the constant, the last one, is not held back."""
    rows = max(gram[-1, -1], 1.0)
    held = np.full(len(gram), penalty * rows)
    held[-1] = 1e-9 * rows
    return np.linalg.solve(gram + np.diag(held), moment)


def _width(logs: np.ndarray, residual: np.ndarray, weight: np.ndarray) -> float:
    """Mean width of intervals with these spreads, to a factor."""
    spread = np.exp(np.clip(logs, *np.quantile(logs, EDGES)))
    order = np.argsort(residual / spread, kind="stable")
    place = np.searchsorted(np.cumsum(weight[order]), USUAL * weight.sum())
    return float((residual / spread)[order[min(place, len(order) - 1)]] * (spread @ weight))


def _moments(values: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each column; 1 where there is none."""
    share = (weight / weight.sum())[:, None]
    centre = (share * values).sum(axis=0)
    scale = np.sqrt((share * (values - centre) ** 2).sum(axis=0))
    return centre, np.where(scale > 1e-9 * (1.0 + np.abs(centre)), scale, 1.0)
