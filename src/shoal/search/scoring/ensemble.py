"""Ensembles over out-of-fold predictions: greedy selection (Caruana et al., 2004), held back by how few rows there are.

On few rows the greedy choice follows luck, and an equal mix of all that may be the best is safer; on many rows it
finds what really complements what. The weights are a blend of both.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from shoal.metrics.tasks import Task, weighted_mean
from shoal.models.compact import Compact
from shoal.search.scoring.averaging import FoldPredictions, loss_slope

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


# ---- compact ensembles ----


def nested_picks(
    task: Task, loss_inputs: np.ndarray, y: np.ndarray, weight: np.ndarray, scale: np.ndarray | float, most: int
) -> list[int]:
    """Candidates in the order in which an average with equal shares gains most; the first m are the pick of m.

    loss_inputs (n_candidates, n, d) as given by `Task.loss_inputs`.
    """
    picked: list[int] = []
    total = np.zeros(loss_inputs.shape[1:], dtype=np.float64)
    share = weight / weight.sum()
    for count in range(1, min(most, len(loss_inputs)) + 1):
        losses = np.array([
            np.inf if k in picked else (task.losses_of_inputs((total + one) / count, y, scale) * share).sum()
            for k, one in enumerate(loss_inputs)
        ])  # fmt: skip
        picked.append(int(np.argmin(losses)))
        total += loss_inputs[picked[-1]]
    return picked


def equal_shares(candidates: int, picked: list[int]) -> np.ndarray:
    """(candidates,) weights that sum to one over those that were picked."""
    shares = np.zeros(candidates)
    shares[picked] = 1.0 / len(picked)
    return shares


def choose_compact(
    folds: FoldPredictions,
    parts: np.ndarray,
    shares: np.ndarray,
    losses: tuple[np.ndarray, np.ndarray, np.ndarray],
    seed: int,
) -> Compact:
    """The fewest networks that will do.

    folds   of the whole ensemble
    parts   (n_parts, n_folds, n, n_outputs) the same for each part alone
    shares  (n_parts,) of the ensemble
    losses  of all rows that count: loss_inputs (n_parts, n, d), y, weight
    """
    task, (inputs, y, weight) = folds.task, losses
    row_losses = task.losses_of_inputs(np.tensordot(shares, inputs, axes=1), y, folds.scale)
    delivered = len(folds.prediction) if folds.averaged else 1
    whole = len(parts) * delivered
    mean = float(weighted_mean(row_losses, weight)) - loss_slope(folds, seed) * folds.removed
    rows = weight.sum() ** 2 / (weight**2).sum()
    error = float(np.sqrt(weighted_mean((row_losses - weighted_mean(row_losses, weight)) ** 2, weight) / rows))
    best = Compact(tuple(range(len(parts))), delivered, 1.0, mean, mean, error, whole)
    picked = nested_picks(task, inputs, y, weight, folds.scale, len(parts))
    for count in range(1, len(picked) + 1):
        if count >= best.networks:
            break
        mine = picked[:count]
        few = replace(folds, prediction=parts[mine].mean(axis=0, dtype=np.float64))
        measured = task.losses_of_inputs(inputs[mine].mean(axis=0, dtype=np.float64), y, folds.scale)
        base, slope = float(weighted_mean(measured, weight)), loss_slope(few, seed)
        for kept in range(1, delivered + 1):
            loss = base - slope * replace(few, delivered=kept).removed
            if loss <= mean + error:
                if count * kept < best.networks:
                    best = Compact(tuple(sorted(mine)), kept, 1.0, loss, mean, error, whole)
                break
    return best
