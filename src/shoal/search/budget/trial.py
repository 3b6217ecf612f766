"""Measures speed here and now: a trial on some rows before the search, and short ones while it runs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from shoal.metrics.tasks import CLASSIFICATION, Task
from shoal.population.layout import Layout
from shoal.search.budget.clock import Clock
from shoal.search.budget.shares import Pace, Passes
from shoal.search.problem.data import TrainingData
from shoal.search.problem.problem import Problem, has_texts, make_folds, make_problem
from shoal.search.rounds.loop import Search
from shoal.search.scoring.ensemble import weigh

TRIAL_ROWS, TRIAL_TEXTS = 2_000, 400
TRIAL_FOLDS = 2
WEIGHING_STEPS = 3
WEIGHED_CELLS = 16_000  # rows times recipes that a trial of weighing has at least
SURE_ROWS = 10  # of each class, however few are drawn
HASHED_BYTES = 1 << 23
SAVED_PARTS = 30  # recipes in an ensemble, about
FORWARD_ROWS = 500
FEW_INPUTS = 100_000  # that networks predict from in an instant
SAVING_SECONDS = 0.3  # however small the table and the networks are
SECONDS_A_COLUMN = 1e-4  # of a model's description and of its part of a report


@dataclass(frozen=True, eq=False)
class Trial:
    """The speed of this machine for these data, measured once."""

    problem: Problem  # the rows that were tried
    pace: Pace
    rate: float  # seconds of training for each unit of cost (see `epoch_cost`)


def encode_some(
    data: TrainingData, seed: int, encodings: Sequence[str], now: Callable[[], float]
) -> tuple[Problem, float, float]:
    """Encode some rows, and more where there are more: the smaller problem, and seconds of a fold and of each row."""
    most = TRIAL_TEXTS if has_texts(data.schema) else TRIAL_ROWS
    taken, problems = {}, []
    for count in (most // 4, most) if len(data.target) > most else (len(data.target),):
        rows = draw_rows(data.target, data.task, count, seed)
        begun = now()
        problems.append(_problem(data.take(rows), seed, encodings))
        taken[len(rows)] = (now() - begun) / TRIAL_FOLDS
    few, many = min(taken), max(taken)
    row = max(taken[many] - taken[few], 0.0) / max(many - few, 1)
    return problems[0], max(taken[many] - row * many, 0.0), row


def _problem(data: TrainingData, seed: int, encodings: Sequence[str]) -> Problem:
    """Some rows in two folds."""
    rows = len(data.target)
    pairs, _ = make_folds(TRIAL_FOLDS, Task("any", 1), np.empty((rows, 0)), data.target, None, seed)
    return make_problem(replace(data, weight=np.ones(rows), class_weight=None), pairs, encodings)


def draw_rows(y: np.ndarray, task: Task, count: int, seed: int) -> np.ndarray:
    """So many rows at random, in order; a few of every class are among them."""
    order = np.random.default_rng(seed).permutation(len(y))
    if task.kind == CLASSIFICATION and task.n_outputs * SURE_ROWS <= count:
        by_class = order[np.argsort(y[order], kind="stable")]
        ranks = np.arange(len(y)) - np.searchsorted(y[by_class], y[by_class])
        rank = np.empty(len(y), dtype=np.int64)
        rank[by_class] = ranks
        order = order[np.argsort(rank[order] >= SURE_ROWS, kind="stable")]
    return np.sort(order[:count])


# ---- while a search runs ----


def measure_passes(search: Search, report: bool, with_saving: bool = True) -> Passes | None:
    """From the recipes that have a result so far; None, while there are none."""
    problem, task = search.problem, search.problem.task
    most = max(4, WEIGHED_CELLS // problem.n)  # few cells would measure what calls take
    candidates = search.best_candidates()[:most]
    if not candidates:
        return None
    predictions = [candidate.prediction for candidate in candidates if candidate.prediction is not None]
    rows = np.flatnonzero(problem.loss_weight > 0)[:2_000]
    loss_inputs = np.array([task.loss_inputs(prediction[rows], problem.y[rows]) for prediction in predictions])

    def one_pass() -> None:
        search.metric.score(task, predictions[0], problem.y, problem.valid_weight)
        task.losses(predictions[0], problem.y, problem.loss_scale)

    def weighing() -> None:
        weigh(task, loss_inputs, problem.y[rows], problem.loss_weight[rows], problem.loss_scale, WEIGHING_STEPS)

    times = 1 if problem.n > WEIGHED_CELLS else 3
    whole = _least_seconds(one_pass, times, search.clock)
    cell = _least_seconds(weighing, times, search.clock) / (len(predictions) * len(rows) * WEIGHING_STEPS)
    wide = search.clock.busy * SECONDS_A_COLUMN * len(problem.schema.used)
    saving = _saving(search) + wide if report and with_saving else 0.0
    return Passes(problem.n, whole, cell, report, saving, _forward(search), wide)


def _least_seconds(work: Callable[[], None], times: int, clock: Clock) -> float:
    """Of several trials: other processes can only lengthen them. Never zero: clocks may be coarse."""
    return max(min(clock.timed(work) for _ in range(times)), 1e-9)


def _forward(search: Search) -> float:
    """Seconds that all networks of an ensemble take for a row; 0 where no networks are here."""
    candidates, problem = [one for one in search.best_candidates() if one.pool is not None][:4], search.problem
    rows = search.sample_rows[:FORWARD_ROWS]
    few = FORWARD_ROWS * max(matrix.shape[1] for matrix in problem.inputs.values()) < FEW_INPUTS

    def predict() -> None:
        for candidate in candidates:
            assert candidate.pool is not None
            candidate.pool.predict(candidate, 0, problem.inputs[candidate.recipe.encoding][rows], search.limits.threads)

    times = 3 if few else 1  # threads that wait for each other are held up by other processes at times
    each = _least_seconds(predict, times, search.clock) / max(len(candidates), 1) / len(rows)
    return each * len(problem.folds) * min(len(search.best_candidates()), SAVED_PARTS)


def _saving(search: Search) -> float:
    """Seconds of the report, of ending the process, and of writing the weights of an ensemble.

    The last takes about three times as long as their checksum.
    """
    each = search.clock.timed(lambda: hashlib.sha256(bytes(HASHED_BYTES)).digest()) / HASHED_BYTES
    candidates = search.best_candidates()[:SAVED_PARTS]
    widths = {encoding: matrix.shape[1] for encoding, matrix in search.problem.inputs.items()}
    outputs, folds = search.problem.task.n_outputs, len(search.problem.folds)
    counts = [int(Layout([one.recipe.member], widths[one.recipe.encoding], outputs).counts.sum()) for one in candidates]
    return SAVING_SECONDS * search.clock.busy + 3 * each * 4 * folds * SAVED_PARTS * float(np.mean(counts))
