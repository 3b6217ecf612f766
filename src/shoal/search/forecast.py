"""What a search will take, told beforehand: recipes, networks, seconds and memory, from a short trial on some rows.

The trial trains a few recipes for a fraction of a second and takes their speed for that of all. Numbers from here are
shown with the word "about": caches, other programs and what the search finds worth following make them wrong by some
ten per cent, at times by half.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from shoal.encoders.texts import most_directions
from shoal.errors import UserError
from shoal.layout import Layout
from shoal.machine import peak_memory, thread_count
from shoal.metrics.find import find_metric
from shoal.metrics.metric import Metric
from shoal.metrics.tasks import CLASSIFICATION, Task
from shoal.search.candidates import epoch_cost
from shoal.search.loop import Search, drain
from shoal.search.options import SearchOptions
from shoal.search.problem import (
    LARGEST_INPUTS,
    Problem,
    default_epochs,
    default_folds,
    default_repeats,
    has_texts,
    make_folds,
    make_problem,
)
from shoal.search.schedule import (
    FEWEST_PER_ROUND,
    FINALISTS,
    MOST_PER_ROUND,
    SEEDS_SHARE,
    Limits,
    fitting_recipes,
    most_sampled,
    shortened,
    work_share,
)
from shoal.search.space import Recipe, default_space
from shoal.search.strategies import HALVING, Listed, anchors, find_strategy
from shoal.search.timing import Clock
from shoal.tables.schema import Schema
from shoal.tables.target import LabelledTable

TRIAL_ROWS = 1_000
TRIAL_TEXTS = 400  # rows, where there are texts: they take long
TRIAL_SECONDS = 0.4
TRIAL_EPOCHS = 60
TRIAL_FOLDS = 2
TYPICAL = 60  # recipes drawn to see what they cost


@dataclass(frozen=True)
class Forecast:
    """About what will happen."""

    recipes: int
    folds: int
    cv: str
    epochs: int  # of the longest recipe
    networks: int
    seconds: float
    memory: int
    metric: str


def forecast(question: LabelledTable, schema: Schema, options: SearchOptions) -> Forecast:
    """Checks the options on the way, so that a mistyped strategy does not wait for the data to be encoded."""
    task, y = encode(question)
    metric = find_metric(options.scoring, task)
    problem, encoding = _trial_problem(question, schema, task, y, options.seed)
    folds, cv = _folds(y, task, options, schema)
    rows = int(len(y) * (folds - 1) / folds)
    epochs = options.epochs or default_epochs(rows)
    rate = _rate(problem, metric, options)
    encoding *= folds / TRIAL_FOLDS * len(y) / problem.n
    left = 0.0 if options.budget is None else max(0.95 * options.budget - 0.3 - encoding, 0.0)
    if options.budget is not None:
        cost = float(np.mean([_cost(problem, recipe, rows) for recipe in _first(problem, epochs)]))
        epochs = shortened(epochs, HALVING, left / (rate * folds * cost))
    recipes, work_share = _typical(problem, rows, epochs, options)
    full = rate * folds * _mean_cost(problem, recipes, rows)
    if options.budget is None:
        count = options.recipes or 0
        again = min(FINALISTS, count) * (options.seeds - 1)
        seconds = encoding + full * (work_share * count + again) + 1.0
    else:
        seconds = options.budget
        kept = SEEDS_SHARE if options.seeds > 1 else 0.0
        count = max(FEWEST_PER_ROUND, int(left * (1 - kept) / (work_share * full)))
    memory = _memory(problem, recipes, len(y), folds, count)
    return Forecast(count, folds, cv, epochs, count * folds, seconds, memory, metric.label)


def encode(question: LabelledTable) -> tuple[Task, np.ndarray]:
    """The task, and classes as numbers."""
    if question.kind != CLASSIFICATION:
        return Task(question.kind, 1), question.y.reshape(-1, 1)
    names, codes = np.unique(question.y, return_inverse=True)
    return Task(CLASSIFICATION, len(names)), codes


def _folds(y: np.ndarray, task: Task, options: SearchOptions, schema: Schema) -> tuple[int, str]:
    if options.folds is not None and options.folds > len(y):
        raise UserError(f"--folds must be at most the number of rows, {len(y)}; got {options.folds}")
    pairs, name = make_folds(
        options.folds, task, np.empty((len(y), 0)), y, None, options.seed, default_folds(len(y), schema),
        default_repeats(len(y), options.budget, schema),
    )  # fmt: skip
    return len(pairs), name


def _trial_problem(
    question: LabelledTable, schema: Schema, task: Task, y: np.ndarray, seed: int
) -> tuple[Problem, float]:
    """Some rows, evenly taken, in two folds; and the seconds that encoding them took."""
    count = TRIAL_TEXTS if has_texts(schema) else TRIAL_ROWS
    rows = np.unique(np.linspace(0, len(y) - 1, count).astype(np.int64))
    table, some = question.X.take(rows), y[rows]
    begun = time.monotonic()
    ones = np.ones(len(rows))
    pairs, _ = make_folds(TRIAL_FOLDS, Task("any", 1), np.empty((len(rows), 0)), some, None, seed)
    problem = make_problem(task, schema, schema.check(table), some, pairs, ones, ones)
    return problem, time.monotonic() - begun


def _typical(problem: Problem, rows: int, epochs: int, options: SearchOptions) -> tuple[list[Recipe], float]:
    """Recipes as the search draws them, and how much of a whole training the strategy gives one on average."""
    space = default_space(rows, problem.task.kind == CLASSIFICATION, list(problem.inputs), epochs)
    rungs = find_strategy(options.strategy, space, options.seed, [], rows).rungs
    return space.sample(TYPICAL, np.random.default_rng(0)), work_share(rungs)


def _rate(problem: Problem, metric: Metric, options: SearchOptions) -> float:
    """Seconds per unit of cost, measured on a few recipes."""
    limits = Limits(
        recipes=1, seeds=1, finalists=1, default_epochs=TRIAL_EPOCHS, threads=thread_count(options.threads),
        seed=options.seed,
    )  # fmt: skip
    search = Search(problem, metric, limits, Clock(TRIAL_SECONDS))
    drain(search.run(Listed(_first(problem, TRIAL_EPOCHS))))
    return max(search.costs.training_seconds, 1e-6) / max(search.costs.spent, 1.0)


def _first(problem: Problem, epochs: int) -> list[Recipe]:
    return anchors(epochs, min(32, max(8, problem.n_rows // 8)), list(problem.inputs))


def _cost(problem: Problem, recipe: Recipe, rows: int) -> float:
    """Work of an epoch on one fold."""
    return epoch_cost(recipe.member, rows, _width(problem, recipe.encoding, rows), problem.task.n_outputs)


def _width(problem: Problem, encoding: str, rows: int) -> int:
    """Columns of the inputs, if there were so many training rows: more texts have more directions."""
    texts = sum(column.kind == "text" for column in problem.schema.used)
    return problem.inputs[encoding].shape[1] + texts * (most_directions(rows) - most_directions(problem.n_rows))


def _mean_cost(problem: Problem, recipes: list[Recipe], rows: int) -> float:
    """Work of a recipe's whole training on one fold."""
    return float(np.mean([_cost(problem, recipe, rows) * (recipe.member.epochs or 1) for recipe in recipes]))


def _memory(problem: Problem, recipes: list[Recipe], rows: int, folds: int, count: int) -> int:
    """What is in use now, the encoded folds, the largest round of networks with moments, and their predictions."""
    widths = {encoding: _width(problem, encoding, rows) for encoding in problem.inputs}
    outputs = problem.task.n_outputs
    matrices = sum(min(4 * width * rows * folds, LARGEST_INPUTS) for width in widths.values())
    parameters = [int(Layout([r.member], widths[r.encoding], outputs).counts.sum()) for r in recipes]
    together = min(count, MOST_PER_ROUND, fitting_recipes(max(widths.values()), outputs, folds))
    networks = together * folds * float(np.mean(parameters)) * 12
    sample = min(rows, most_sampled(outputs)) * outputs
    predictions = together * rows * outputs * 12 + count * sample * 12
    return int(peak_memory() + 2 * 8 * rows * len(problem.schema.columns) + matrices + networks + predictions)
