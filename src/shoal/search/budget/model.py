"""One model of time: what fits into a budget, what is reduced, and when training has to end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from shoal.encoders.texts import most_directions
from shoal.machine import peak_memory
from shoal.metrics.metric import Metric
from shoal.metrics.tasks import CLASSIFICATION
from shoal.population.layout import Layout
from shoal.search.budget.clock import Clock
from shoal.search.budget.costs import (
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
from shoal.search.budget.shares import SAFETY_FACTOR, Effort, Pace
from shoal.search.budget.trial import SAVED_PARTS, Trial, encode_some, measure_passes
from shoal.search.options import DEFAULT_RECIPES, SearchOptions
from shoal.search.problem.data import TrainingData
from shoal.search.problem.problem import LARGEST_INPUTS, Problem, default_epochs, has_texts
from shoal.search.results.explaining import useful_seconds
from shoal.search.rounds.candidates import candidate_cost, epoch_cost
from shoal.search.rounds.loop import Search
from shoal.search.scoring.honest import BOOTSTRAPS, FEWEST_BOOTSTRAPS
from shoal.search.space import Recipe, default_space, encodings_of, first_recipes
from shoal.search.strategies import HALVING, TO_THE_END, InOrder, find_strategy

CHEAP_CELLS = 20_000  # that the slowest machine encodes in a second
TRIAL_SECONDS, TRIAL_SHARE = 0.4, 0.02  # of training in a trial; of the time left, at most
TYPICAL_RECIPES = 60  # drawn to see what they cost
SCORED_CELLS = 1_000_000  # rows times bootstrap samples, where no clock decides


@dataclass(frozen=True)
class KeptBack:
    """Seconds of a budget for what follows the search, before anything is measured."""

    most_share: float = 0.25
    seconds: float = 0.5
    share: float = 0.025  # beside the seconds
    refit_share: float = 0.2
    explain_share: float = 0.1
    most_explain_share: float = 0.5  # where the user asks for more
    explain_seconds: float = 6.0
    most_explain_seconds: float = 15.0  # of what is left in the end


KEPT_BACK = KeptBack()


@dataclass(frozen=True)
class Forecast:
    """About what a search will do and take. Caches, other programs and luck make it wrong by ten to fifty percent."""

    recipes: int
    folds: int
    cv: str
    epochs: int  # of the longest recipe
    networks: int
    seconds: float
    memory: int
    training: float = 0.0  # of the seconds, those that workers can take over

    def seconds_there(self, times_faster: float) -> float:
        """With workers that train so many times faster than this process."""
        return self.seconds - self.training * (1 - 1 / times_faster)


@dataclass(frozen=True, eq=False)
class Ending:
    """How much time and effort the end of a search may take."""

    effort: Effort = field(default_factory=Effort)
    seconds: float = 0.0  # for the honest score, roughly
    bootstraps: int | None = None  # of the honest score, whatever time they take; for the same bits every time
    hurry: Callable[[], bool] = lambda: False  # whether the user has asked for an end since this was decided


def limits_of(options: SearchOptions, epochs: int) -> Limits:
    """How much is to be done. With a budget the clock decides, not the number of recipes."""
    recipes = options.recipes or (DEFAULT_RECIPES if options.budget is None else 1)
    return Limits(recipes, options.seeds, FINALISTS, epochs, options.threads, options.seed)


class TimeModel:
    """What fits into the time of a search, what is reduced, and when training has to end.

    timed   whether the clock decides: there is a budget, and no earlier run is repeated
    report  whether files are written after the search, within the budget
    trial   the measured speed; None while nobody had to know it
    """

    def __init__(self, clock: Clock, options: SearchOptions, report: bool = False, repeated: bool = False) -> None:
        self.clock, self.options, self.report = clock, options, report
        self.timed = clock.budget is not None and not repeated
        self.trial: Trial | None = None
        self._saving = 0.0  # seconds that writing the results will take
        self._refits, self._encoded, self._budget = False, 0.0, clock.budget or 0.0

    def measured(self, data: TrainingData, metric: Metric) -> Trial:
        """The speed of encoding some rows and of training the first recipes on them; measured once."""
        if self.trial is not None:
            return self.trial
        limits, now = limits_of(self.options, default_epochs(len(data.target))), self.clock.now
        ours = self.options.space is None
        seconds = min(TRIAL_SECONDS, TRIAL_SHARE * self.clock.time_left())
        problem, fixed, row = encode_some(data, limits.seed, encodings_of(self.options.space), now)
        search = Search(problem, metric, limits, Clock(seconds, start=now(), now=now))
        first = first_recipes(problem.n_rows, list(problem.inputs), limits.default_epochs)
        deque(search.run(InOrder(first)), maxlen=0)
        rate = max(search.costs.training_seconds, 1e-6) / max(search.costs.spent, 1.0)
        passes = measure_passes(search, self.report, with_saving=False)
        end = 0.0 if passes is None else passes.fixed / problem.n
        cost = sum(candidate_cost(problem, recipe) for recipe in first) / (len(problem.folds) * problem.n)
        pace = Pace(fixed, row, rate * cost, end, spare=ours and len(problem.inputs) > 1)
        self.trial = Trial(problem, pace, rate)
        return self.trial

    # ---- what fits, what is reduced ----

    def reduce(self, data: TrainingData, metric: Metric, usual: tuple[int, int]) -> tuple[Effort, str]:
        """Folds, encodings and rows that there is no time for; and that in words, with a budget that would be enough.

        `usual`: folds, and how often rows are dealt into them. Folds and encodings that the user has chosen stay as
        they are; so do rows, where a splitter knows them by number.
        """
        cv, rows = self.options.folds, len(data.target)
        ours = cv is None or isinstance(cv, (int, np.integer))
        if cv is None:
            most = usual[0] * usual[1]
            folds = [most, *(k for k in dict.fromkeys((usual[0], 3, 2)) if k < most)]
        else:
            folds = [int(cv) if ours else usual[0]]
        cheap = not has_texts(data.schema)  # texts may be of any length
        if cheap and rows * len(data.schema.used) * folds[0] < CHEAP_CELLS * self.clock.time_left():
            return Effort(), ""
        pace = self.measured(data, metric).pace
        effort = pace.reduced(self.clock.time_left(), rows, folds, ours)
        words = effort.describe(rows)
        if words:
            budget = max(self.clock.elapsed() + pace.enough(rows, folds[0]), self.clock.advised)
            words += f" (a budget of about {budget:.0f} s needs no reductions)"
        return effort, words

    def forecast(self, data: TrainingData, metric: Metric, folds: int, cv: str) -> Forecast:
        """What a search of these rows in so many folds will do and take. `cv`: the folds in words."""
        options, trial = self.options, self.measured(data, metric)
        problem, rate, total = trial.problem, trial.rate, len(data.target)
        rows = int(total * (folds - 1) / folds)
        epochs = options.epochs or default_epochs(rows)
        encoding = trial.pace.encoding(total, folds, 1.0)
        left = 0.0 if options.budget is None else max(0.95 * options.budget - 0.3 - encoding, 0.0)
        if options.budget is not None:
            first = first_recipes(problem.n_rows, list(problem.inputs), epochs)
            cost = float(np.mean([_cost(problem, recipe, rows) for recipe in first]))
            epochs = shortened(epochs, HALVING, left / (rate * folds * cost))
        space = default_space(rows, problem.task.kind == CLASSIFICATION, list(problem.inputs), epochs)
        share = work_share(find_strategy(options.strategy, space, options.seed, [], rows).rungs)
        recipes = space.sample(TYPICAL_RECIPES, np.random.default_rng(0))
        each = [_cost(problem, recipe, rows) * (recipe.member.epochs or 1) for recipe in recipes]
        full = rate * folds * float(np.mean(each))  # seconds of a recipe that is trained to its end
        if options.budget is None:
            count = limits_of(options, epochs).recipes
            training = full * (share * count + min(FINALISTS, count) * (options.seeds - 1))
            seconds = encoding + training + 1.0
        else:
            seconds, training = options.budget, 0.0
            kept = SEEDS_SHARE if options.seeds > 1 else 0.0
            count = max(FEWEST_PER_ROUND, int(left * (1 - kept) / (share * full)))
        memory = _memory(problem, recipes, total, folds, count)
        return Forecast(count, folds, cv, epochs, count * folds, seconds, memory, training)

    # ---- when training ends ----

    def begin(self, refits: bool) -> None:
        """Training begins: keep back time for what follows it. `refits`: the model is trained again on all rows."""
        budget, kept = self._budget, KEPT_BACK
        self._refits, self._encoded = refits, self.clock.elapsed()
        reserve = min(kept.most_share * budget, kept.seconds + kept.share * budget)
        self.clock.reserve = reserve + refits * kept.refit_share * budget + self._explaining()

    def keep_back(self, search: Search) -> None:
        """After a round: set the reserve to what the end will take, as measured by now."""
        passes = measure_passes(search, self.report)
        if passes is None:
            return
        best = [candidate.recipe for candidate in search.best_candidates()]
        reserve = passes.reserve(self.clock.budget or 0.0, len(best), len(search.sample_rows))
        if self._refits:  # at most what encoding and training all folds took
            again = self._encoded + search.costs.seconds(best[:SAVED_PARTS], TO_THE_END)
            reserve += min(KEPT_BACK.refit_share * self._budget, SAFETY_FACTOR * again)
        explaining = self._explaining()
        if explaining:  # on small tables it makes use of far less than its share
            parts = best[:SAVED_PARTS]
            pace = search.trainer.slots() * SAVED_PARTS / len(parts) * search.costs.predicting_seconds(parts)
            reserve += min(explaining, SAFETY_FACTOR * useful_seconds(search.problem, pace))
        self.clock.reserve = reserve

    def _explaining(self) -> float:
        """Seconds of the budget for finding out which columns matter."""
        budget, wish = self._budget, self.options.explain_seconds
        if wish is None:
            return min(KEPT_BACK.explain_share * budget, KEPT_BACK.explain_seconds)
        return min(wish, KEPT_BACK.most_explain_share * budget)

    def finish(self, search: Search, effort: Effort, bootstraps: int | None) -> Ending:
        """How much effort the end may take. `bootstraps`: of the run that is repeated."""
        clock, seconds, hurried = self.clock, 0.0, self.clock.hurried
        bootstraps = None if hurried else bootstraps
        passes = measure_passes(search, self.report) if hurried or self.timed else None
        if passes is not None:
            self._saving = SAFETY_FACTOR * passes.fixed
            rows, sampled = int((search.problem.loss_weight > 0).sum()), len(search.sample_rows)
            last, seconds = passes.finish(clock.time_left(), len(search.best_candidates()), rows, sampled)
            effort = replace(effort, candidates=last.candidates, ensemble_rows=last.ensemble_rows, sampled=last.sampled)
        elif bootstraps is None:  # no clock may decide here: the same call gives the same bits
            bootstraps = int(np.clip(SCORED_CELLS / len(search.sample_rows), FEWEST_BOOTSTRAPS, BOOTSTRAPS))
        return Ending(effort, seconds, bootstraps, lambda: clock.hurried and not hurried)

    def explain_seconds(self) -> float | None:
        """Seconds that finding out which columns matter may take; None: no clock decides."""
        wish = self.options.explain_seconds
        if wish is None and not self.clock.hurried and not self.timed:
            return None
        left = self.clock.time_left() - self._saving
        return max(min(left, KEPT_BACK.most_explain_seconds if wish is None else wish), 0.0)


# ---- predicted work and memory ----


def _cost(problem: Problem, recipe: Recipe, rows: int) -> float:
    """Work of an epoch on one fold."""
    return epoch_cost(recipe.member, rows, _width(problem, recipe.encoding, rows), problem.task.n_outputs)


def _width(problem: Problem, encoding: str, rows: int) -> int:
    """Columns of the inputs, if there were so many training rows: more texts have more directions."""
    texts = sum(column.kind == "text" for column in problem.schema.used)
    return problem.inputs[encoding].shape[1] + texts * (most_directions(rows) - most_directions(problem.n_rows))


def _memory(problem: Problem, recipes: Sequence[Recipe], rows: int, folds: int, count: int) -> int:
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
