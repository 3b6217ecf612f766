"""Calibrates certainty for single rows, from networks and their held-out rows, which a search has already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from shoal.conformal.calibration import Calibration
from shoal.conformal.spread import Residuals, Spread, fit_spread
from shoal.conformal.strangeness import Strangeness
from shoal.metrics.tasks import CLASSIFICATION, MULTILABEL
from shoal.models.certainty import Certainty
from shoal.models.model import Model
from shoal.search.problem.data import TrainingData
from shoal.search.problem.problem import Problem, evenly, group_of_rows
from shoal.search.rounds.candidates import Candidate
from shoal.search.rounds.loop import Search
from shoal.search.scoring.evidence import effective_rows

MOST_PAIRS = 1 << 13  # of a row and a fold that held it out
MOST_JUDGED = 1 << 13  # rows that tell how strange is usual


@dataclass(frozen=True, eq=False)
class HeldOutPredictions:
    """What the chosen networks said of rows that they did not train on: pairs of a row and a fold."""

    rows: np.ndarray  # (r,) distinct rows
    row: np.ndarray  # (pairs,) place among these
    fold: np.ndarray  # (pairs,) ascending
    weight: np.ndarray  # (pairs,)
    prediction: np.ndarray  # (pairs, n_outputs), tempered
    held_out: np.ndarray  # (n_folds, r) whether a fold held out a row
    count: float  # how many rows of the table they stand for
    effective: float  # how many rows of equal weight would tell as much
    spread: np.ndarray | None = None  # (pairs, n_outputs) of numbers


def calibrate(
    search: Search,
    found: HeldOutPredictions,
    model: Model,
    data: TrainingData,
    folds: int | None = None,
) -> tuple[Certainty, HeldOutPredictions]:
    """What a model needs to know of its own certainty; and the pairs that it was found from, with their spread.

    folds  a compact model has the networks of so many folds only, the first ones
    """
    problem, task = search.problem, search.problem.task
    first = problem.first_of
    encoder = model.folds[0].encoder
    mine = found if folds is None else of_first_folds(found, folds)
    calibration, spread = None, None
    if task.kind == CLASSIFICATION:
        calibration = of_classes(mine, problem.y[mine.rows], len(model.folds))
    elif task.kind != MULTILABEL:
        inputs = encoder.transform(data.table.take(first[found.rows]), ["plain"])["plain"].astype(np.float64)
        residual = np.abs(problem.y[found.rows][found.row] - found.prediction)
        spread, each = _spread(found, residual, inputs, model, folds)
        kept = slice(None) if folds is None else found.fold < folds
        calibration = _calibration(mine, residual[kept] / each[kept], len(model.folds))
        mine = replace(mine, spread=each[kept])
    weight = row_weights(problem, data)
    judged = evenly(np.flatnonzero(weight > 0), MOST_JUDGED)
    kinds = {column.name: column.kind for column in model.schema.used}
    scaled = encoder.numbers(data.table.take(first[judged]))
    strangeness = Strangeness.fit(data.table, data.weight, kinds, first[judged], weight[judged], scaled)
    return Certainty(calibration, spread, strangeness), mine


def of_classes(found: HeldOutPredictions, y: np.ndarray, folds: int) -> Calibration:
    """y: classes of the rows; folds: of the model."""
    scores = 1.0 - found.prediction[np.arange(len(found.row)), y[found.row]]
    return _calibration(found, scores[:, None], folds)


def _calibration(found: HeldOutPredictions, scores: np.ndarray, folds: int) -> Calibration:
    return Calibration(scores, found.weight, _counts(found, folds), found.count, found.effective)


def _spread(
    found: HeldOutPredictions, residual: np.ndarray, inputs: np.ndarray, model: Model, folds: int | None
) -> tuple[Spread, np.ndarray]:
    """The spread of numbers, and that of each pair. It is learnt from the rows of all folds, kept or not."""
    pairs = Residuals(inputs, found.row, found.fold, found.prediction, residual, found.weight, found.held_out)
    averaged = folds is not None or len(model.folds) == len(found.held_out)
    spread, each = fit_spread(pairs, averaged)
    return replace(spread, coefficients=spread.coefficients[:folds]), each


def _counts(found: HeldOutPredictions, folds: int) -> np.ndarray:
    """Pairs of each fold of the model; all are of the only one, where that was trained again on all rows."""
    if folds != len(found.held_out):
        return np.array([len(found.fold)])
    return np.bincount(found.fold, minlength=folds)


def held_out(
    search: Search,
    chosen: Sequence[Candidate],
    shares: np.ndarray,
    temperature: float,
    data: TrainingData,
    most: int | None = None,
) -> HeldOutPredictions:
    """Predictions of some rows by the folds that held them out, weighed as in the model; `most`: rows, at most."""
    problem, task = search.problem, search.problem.task
    scored = np.flatnonzero(problem.valid_weight > 0)
    times = sum(int((fold.valid > 0).sum()) for fold in problem.folds) / len(scored)
    rows = evenly(scored, min(most or MOST_PAIRS, int(MOST_PAIRS / times)))
    out = np.array([fold.valid[rows] > 0 for fold in problem.folds])
    pieces = []
    for k, fold in enumerate(problem.folds):
        mine = rows[out[k]]
        total = np.zeros((len(mine), task.n_outputs))
        for candidate, share in zip(chosen, shares, strict=True):
            assert candidate.pool is not None
            inputs = problem.inputs[candidate.recipe.encoding][mine + k * problem.n]
            total += share * candidate.pool.predict(candidate, k, inputs, search.limits.threads)
        pieces.append((np.flatnonzero(out[k]), np.full(len(mine), k), fold.valid[mine], total))
    row, fold_of, weight, prediction = (np.concatenate(parts) for parts in zip(*pieces, strict=True))
    if task.kind == CLASSIFICATION:
        prediction /= prediction.sum(axis=-1, keepdims=True)
    # A weight of two is the row twice; weights in a small unit count as one row each. Rows of a group count once.
    count = max(float(row_weights(problem, data)[rows].sum()), float(len(rows)))
    group = group_of_rows(data.groups, problem)
    count = count if group is None else float(len(np.unique(group[rows])))
    mine = np.isin(problem.row_of, rows)
    effective = effective_rows(data.weight[mine], None if data.groups is None else np.asarray(data.groups)[mine])
    return HeldOutPredictions(rows, row, fold_of, weight, task.temper(prediction, temperature), out, count, effective)


def of_first_folds(found: HeldOutPredictions, folds: int) -> HeldOutPredictions:
    """The same for a model that has kept the networks of the first folds only."""
    kept = found.fold < folds
    used, row = np.unique(found.row[kept], return_inverse=True)
    times = len(found.row) / len(found.rows)  # that rows were dealt into folds
    share = min(1.0, times * found.weight[kept].sum() / found.weight.sum())
    return HeldOutPredictions(
        found.rows[used], row, found.fold[kept], found.weight[kept], found.prediction[kept],
        found.held_out[:folds][:, used], share * found.count, share * found.effective,
    )  # fmt: skip


def row_weights(problem: Problem, data: TrainingData) -> np.ndarray:
    """(n,) of the distinct rows."""
    return np.bincount(problem.row_of, data.weight, problem.n)
