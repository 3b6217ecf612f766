"""Ensembles over out-of-fold predictions: greedy selection (Caruana et al., 2004), held back by how few rows there are.

On few rows the greedy choice follows luck, and an equal mix of all that may be the best is safer; on many rows it
finds what really complements what. The weights are a blend of both.
"""

from __future__ import annotations

import numpy as np

from shoal.metrics.tasks import Task

STEPS = 24
EQUAL = 20  # candidates in the equal mix, at most
TRUST = 1000.0  # rows at which both halves of the blend have the same weight
NEAR_ERRORS = 2.0  # standard errors within which a candidate may as well be the best


def weigh(
    task: Task,
    loss_inputs: np.ndarray,
    y: np.ndarray,
    weight: np.ndarray,
    scale: np.ndarray | float = 1.0,
    steps: int = STEPS,
) -> np.ndarray:
    """Weights of the candidates, (n_candidates,), which sum to one. Candidates come best first.

    loss_inputs (n_candidates, n, d) as given by `Task.loss_inputs`.
    """
    counts = greedy(task, loss_inputs, y, weight, steps, scale)
    near = as_good_as_the_best(task, loss_inputs, y, weight, scale)
    equal = np.zeros(len(loss_inputs))
    equal[near[np.unique(np.linspace(0, len(near) - 1, EQUAL).astype(np.int64))]] = 1.0
    caution = TRUST / (TRUST + len(y))
    return np.asarray(caution * equal / equal.sum() + (1 - caution) * counts / counts.sum())


def as_good_as_the_best(
    task: Task, loss_inputs: np.ndarray, y: np.ndarray, weight: np.ndarray, scale: np.ndarray | float = 1.0
) -> np.ndarray:
    """Candidates whose loss is within two standard errors of the lowest one, row by row compared; best first.

    The very best of thousands are those that luck has favoured most. Any of these may be as good on new rows, and those
    that differ much from the best row by row are worth most in an average with it.
    """
    losses = task.losses_of_inputs(loss_inputs, y, scale)
    share = weight / weight.sum()
    mean = losses @ share
    order = np.argsort(mean, kind="stable")
    behind = losses - losses[order[0]]
    error = np.sqrt(np.maximum(((behind - (mean - mean[order[0]])[:, None]) ** 2) @ share, 0.0) / len(y))
    return np.asarray([k for k in order if mean[k] - mean[order[0]] <= NEAR_ERRORS * error[k]])


def greedy(
    task: Task, loss_inputs: np.ndarray, y: np.ndarray, weight: np.ndarray, steps: int, scale: np.ndarray | float = 1.0
) -> np.ndarray:
    """How often each of the candidates is taken, (n_candidates,): at each step the one that helps the average most.

    Candidates may be taken again, which makes weights. The counts returned are those of the step with the lowest loss.
    """
    counts = np.zeros(len(loss_inputs), dtype=np.int64)
    best_counts, best_loss = counts, np.inf
    total = np.zeros(loss_inputs.shape[1:], dtype=loss_inputs.dtype)
    share = (weight / weight.sum()).astype(loss_inputs.dtype)
    for step in range(1, steps + 1):
        losses = task.losses_of_inputs((total + loss_inputs) / np.float32(step), y, scale) @ share
        chosen = int(np.argmin(losses))
        counts = counts.copy()
        counts[chosen] += 1
        total = total + loss_inputs[chosen]
        if losses[chosen] < best_loss - 1e-9:
            best_counts, best_loss = counts, losses[chosen]
    return best_counts
