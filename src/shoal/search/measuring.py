"""What things take here and now: short trials that the plan of a budget is made from (see `timing`)."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shoal.encoders.encoder import ENCODINGS
from shoal.layout import Layout
from shoal.metrics.metric import Metric
from shoal.metrics.tasks import CLASSIFICATION, Task
from shoal.search.data import TrainingData
from shoal.search.ensemble import weigh
from shoal.search.loop import Search, drain
from shoal.search.problem import Problem, has_texts, make_folds, make_problem
from shoal.search.schedule import Limits
from shoal.search.space import first_recipes
from shoal.search.strategies import TO_THE_END
from shoal.search.timing import SURPRISES, Clock, Effort, Pace, Passes, begin, needed

TRIAL_ROWS, TRIAL_TEXTS = 2_000, 400
TRIAL_FOLDS = 2
CHEAP_CELLS = 20_000  # that the slowest machine encodes in a second
TRIAL_STEPS = 3
WEIGHED_CELLS = 16_000  # rows times recipes that a trial of weighing has at least
SURE = 10  # classes keep so many rows, however few are drawn
HASHED = 1 << 23  # bytes
SAVED_PARTS = 30  # recipes in an ensemble, about
FORWARD_ROWS = 500
FEW_INPUTS = 100_000  # that networks predict from in an instant
SAVING = 0.3  # seconds, however small the table and the networks are
SECONDS_A_COLUMN = 1e-4  # of a model's description and of its part of a report
LEAST_SECONDS = 1e-9  # that anything takes


def what_to_leave_out(
    data: TrainingData,
    cv: Any,
    usual: tuple[int, int],
    metric: Metric,
    limits: Limits,
    clock: Clock,
    report: bool,
    encodings: Sequence[str] | None = None,
) -> tuple[Effort, str]:
    """Folds, encodings and rows that there is no time for; and that in words, with the budget that would be enough.

    `usual`: folds, and how often rows are dealt into them. Folds and `encodings` that the user has chosen stay as they
    are; so do rows, where other arguments speak of them by number.
    """
    rows, ours = len(data.target), cv is None or isinstance(cv, (int, np.integer))
    if cv is None:
        most = usual[0] * usual[1]
        folds = [most, *(k for k in dict.fromkeys((usual[0], 3, 2)) if k < most)]
    else:
        folds = [int(cv) if ours else usual[0]]
    cheap = not has_texts(data.schema)  # texts take long, and are as long as they please
    if cheap and rows * len(data.schema.used) * folds[0] < CHEAP_CELLS * clock.time_left():
        return Effort(), ""
    pace = measure_pace(data, metric, limits, report, encodings, clock.now)
    effort = begin(pace, clock.time_left(), rows, folds, ours)
    words = effort.describe(rows)
    if words:
        budget = max(needed(clock.elapsed(), pace, rows, folds[0]), clock.advised)
        words += f" (nothing is left out with a budget of about {budget:.0f} s)"
    return effort, words


def measure_pace(
    data: TrainingData,
    metric: Metric,
    limits: Limits,
    report: bool,
    encodings: Sequence[str] | None = None,
    now: Callable[[], float] = time.monotonic,
) -> Pace:
    """Encode some rows, and train the first recipes on them for an epoch; encode more, where there are more.

    `encodings` that the user has chosen.
    """
    task, y = data.task, data.target
    most = TRIAL_TEXTS if has_texts(data.schema) else TRIAL_ROWS
    seconds, problems = {}, []
    for count in (most // 4, most) if len(y) > most else (len(y),):
        rows = draw_rows(y, task, count, limits.seed)
        begun = now()
        problems.append(trial_problem(data.take(rows), limits.seed, encodings or ENCODINGS))
        seconds[len(rows)] = (now() - begun) / TRIAL_FOLDS
    problem = problems[0]
    few, many = min(seconds), max(seconds)
    row = max(seconds[many] - seconds[few], 0.0) / max(many - few, 1)
    fixed = max(seconds[many] - row * many, 0.0)
    search = Search(problem, metric, limits, Clock(start=now(), now=now))
    drain(search.warm_up(first_recipes(problem.n_rows, list(problem.inputs), limits.default_epochs)))
    passes = measure_passes(search, report=False)
    end = 0.0 if passes is None else passes.fixed(report) / problem.n
    spare = encodings is None and len(problem.inputs) > 1
    return Pace(fixed, row, search.costs.training_seconds / (TRIAL_FOLDS * problem.n), end, spare)


def trial_problem(data: TrainingData, seed: int, encodings: Sequence[str] = ENCODINGS) -> Problem:
    """Some rows in two folds: what encoding and training take is measured on them."""
    rows = len(data.target)
    pairs, _ = make_folds(TRIAL_FOLDS, Task("any", 1), np.empty((rows, 0)), data.target, None, seed)
    ones = np.ones(rows)
    return make_problem(data.task, data.schema, data.table, data.target, pairs, ones, ones, encodings)


def draw_rows(y: np.ndarray, task: Task, count: int, seed: int) -> np.ndarray:
    """So many rows at random, in order; a few of every class are among them."""
    order = np.random.default_rng(seed).permutation(len(y))
    if task.kind == CLASSIFICATION and task.n_outputs * SURE <= count:
        by_class = order[np.argsort(y[order], kind="stable")]
        ranks = np.arange(len(y)) - np.searchsorted(y[by_class], y[by_class])
        rank = np.empty(len(y), dtype=np.int64)
        rank[by_class] = ranks
        order = order[np.argsort(rank[order] >= SURE, kind="stable")]
    return np.sort(order[:count])


def measure_passes(search: Search, report: bool) -> Passes | None:
    """From the recipes that have a result so far; None, while there are none."""
    problem, task = search.problem, search.problem.task
    candidates = search.best_candidates()[
        : max(4, WEIGHED_CELLS // problem.n)
    ]  # few cells would measure what calls take
    if not candidates:
        return None
    predictions = [candidate.prediction for candidate in candidates if candidate.prediction is not None]
    rows = np.flatnonzero(problem.loss_weight > 0)[:2_000]
    loss_inputs = np.array([task.loss_inputs(prediction[rows], problem.y[rows]) for prediction in predictions])

    def one_pass() -> None:
        search.metric.score(task, predictions[0], problem.y, problem.valid_weight)
        task.losses(predictions[0], problem.y, problem.loss_scale)

    def weighing() -> None:
        weigh(task, loss_inputs, problem.y[rows], problem.loss_weight[rows], problem.loss_scale, TRIAL_STEPS)

    times = 1 if problem.n > WEIGHED_CELLS else 3
    whole = _least_seconds(one_pass, times, search.clock)
    cell = _least_seconds(weighing, times, search.clock) / (len(predictions) * len(rows) * TRIAL_STEPS)
    wide = search.clock.busy * SECONDS_A_COLUMN * len(problem.schema.used)
    return Passes(problem.n, whole, cell, _saving(search) + wide if report else 0.0, _forward(search), wide)


def _least_seconds(work: Callable[[], None], times: int, clock: Clock) -> float:
    """Of several trials: whatever else the machine does can only lengthen them. Never zero: clocks may be coarse."""
    return max(min(clock.timed(work) for _ in range(times)), LEAST_SECONDS)


def refit_seconds(search: Search, encoding: float) -> float:
    """To be kept back for encoding all rows and training an ensemble on them: at most what all folds took."""
    recipes = [candidate.recipe for candidate in search.best_candidates()[:SAVED_PARTS]]
    return SURPRISES * (encoding + search.costs.seconds(recipes, TO_THE_END))


def _forward(search: Search) -> float:
    """Seconds that all networks of an ensemble take for a row; 0 where no networks are here."""
    candidates, problem = [one for one in search.best_candidates() if one.pool is not None][:4], search.problem
    rows = search.sample_rows[:FORWARD_ROWS]

    def predict() -> None:
        for candidate in candidates:
            assert candidate.pool is not None
            candidate.pool.predict(candidate, 0, problem.inputs[candidate.recipe.encoding][rows], search.limits.threads)

    each = _least_seconds(predict, _trials(search), search.clock) / max(len(candidates), 1) / len(rows)
    return each * len(problem.folds) * min(len(search.best_candidates()), SAVED_PARTS)


def _trials(search: Search) -> int:
    """How often networks predict in a trial: threads that wait for each other are held up by others at times."""
    return 3 if FORWARD_ROWS * max(matrix.shape[1] for matrix in search.problem.inputs.values()) < FEW_INPUTS else 1


def _saving(search: Search) -> float:
    """Seconds to write the weights of an ensemble: about what it takes to add up their checksum three times.

    And those of the report, and of the end of the process.
    """
    each = search.clock.timed(lambda: hashlib.sha256(bytes(HASHED)).digest()) / HASHED
    candidates = search.best_candidates()[:SAVED_PARTS]
    widths = {encoding: matrix.shape[1] for encoding, matrix in search.problem.inputs.items()}
    outputs, folds = search.problem.task.n_outputs, len(search.problem.folds)
    counts = [int(Layout([one.recipe.member], widths[one.recipe.encoding], outputs).counts.sum()) for one in candidates]
    return SAVING * search.clock.busy + 3 * each * 4 * folds * SAVED_PARTS * float(np.mean(counts))
