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
from shoal.metrics.tasks import CLASSIFICATION
from shoal.search.candidates import epoch_cost
from shoal.search.data import TrainingData
from shoal.search.loop import Search, drain
from shoal.search.measuring import TRIAL_FOLDS, TRIAL_TEXTS, draw_rows, trial_problem
from shoal.search.options import SearchOptions
from shoal.search.problem import (
    LARGEST_INPUTS,
    Problem,
    default_epochs,
    default_folds,
    default_repeats,
    folds_with_every_class,
    has_texts,
    make_folds,
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
from shoal.search.space import Recipe, default_space, first_recipes
from shoal.search.strategies import HALVING, Listed, find_strategy
from shoal.search.timing import Clock

TRIAL_ROWS = 1_000
TRIAL_SECONDS = 0.4
TRIAL_EPOCHS = 60
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
    training: float = 0.0  # of the seconds, those that workers can take over

    def seconds_there(self, times_faster: float) -> float:
        """With workers that train so many times faster than this process."""
        return self.seconds - self.training * (1 - 1 / times_faster)


def forecast(data: TrainingData, options: SearchOptions) -> Forecast:
    """Checks the options on the way, so that a mistyped strategy does not wait for the data to be encoded."""
    task, y = data.task, data.target
    metric = find_metric(options.scoring, task, data.classes)
    problem, encoding = _trial(data, options.seed)
    folds, cv = _folds(data, options, metric)
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
        training = full * (work_share * count + again)
        seconds = encoding + training + 1.0
    else:
        seconds, training = options.budget, 0.0
        kept = SEEDS_SHARE if options.seeds > 1 else 0.0
        count = max(FEWEST_PER_ROUND, int(left * (1 - kept) / (work_share * full)))
    memory = _memory(problem, recipes, len(y), folds, count)
    return Forecast(count, folds, cv, epochs, count * folds, seconds, memory, metric.label, training)


def _folds(data: TrainingData, options: SearchOptions, metric: Metric) -> tuple[int, str]:
    rows = len(data.target)
    if options.folds is not None and options.folds > rows:
        raise UserError(f"--folds must be at most the number of rows, {rows}; got {options.folds}")
    usual = folds_with_every_class(default_folds(rows, data.schema), data.task, data.target, metric)
    pairs, name = make_folds(
        options.folds, data.task, np.empty((rows, 0)), data.target, data.groups, options.seed,
        usual, default_repeats(rows, options.budget, data.schema), data.time,
    )  # fmt: skip
    return len(pairs), name


def _trial(data: TrainingData, seed: int) -> tuple[Problem, float]:
    """Some rows, and the seconds that encoding them took."""
    count = min(TRIAL_TEXTS if has_texts(data.schema) else TRIAL_ROWS, len(data.target))
    part = data.take(draw_rows(data.target, data.task, count, seed))
    begun = time.monotonic()
    return trial_problem(part, seed), time.monotonic() - begun


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
    return first_recipes(problem.n_rows, list(problem.inputs), epochs)


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
