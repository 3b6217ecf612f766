"""Which few networks of an ensemble are about as good as all of them.

Networks are saved in two ways: fewer recipes, and the networks of fewer folds. Out-of-fold predictions tell the loss of
some recipes on one fold, and `averaging.py` what averaging over so many folds takes off it. Of all combinations the
one with the fewest networks is taken whose loss is at most one standard error above that of the whole ensemble.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from shoal.metrics.tasks import Task, weighted_mean
from shoal.models.compact import Compact
from shoal.search.averaging import FoldPredictions, loss_slope


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
