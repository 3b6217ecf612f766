"""From data to a result: what the estimators and the command line do, in the order in which it is done.

Plan what the time allows, encode each fold, search, combine the best, estimate the honest score.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from shoal.encoders.encoder import ENCODINGS
from shoal.explain.results import Explanation
from shoal.metrics.find import find_metric
from shoal.metrics.forward import forward_metric
from shoal.metrics.metric import Metric
from shoal.metrics.tasks import CLASSIFICATION
from shoal.runs.journal import Journal
from shoal.search.callbacks import Callbacks, RungEnded, Started
from shoal.search.conclude import Ending, conclude
from shoal.search.data import TrainingData
from shoal.search.decisions import Decisions, seconds_before
from shoal.search.explaining import Subject, Time, background_rows, explain_search, output_names, useful_seconds
from shoal.search.final_model import make_model
from shoal.search.honest import BOOTSTRAPS, FEWEST_BOOTSTRAPS
from shoal.search.journaled import results_in
from shoal.search.loop import Search
from shoal.search.measuring import SAVED_PARTS, draw_rows, measure_passes, refit_seconds, what_to_leave_out
from shoal.search.options import SearchOptions
from shoal.search.place import training_place, workers_beside
from shoal.search.problem import (
    Problem,
    default_epochs,
    default_folds,
    default_repeats,
    folds_with_every_class,
    group_of_rows,
    make_folds,
    make_problem,
)
from shoal.search.result import Earlier, Outcome, SearchResult
from shoal.search.schedule import FINALISTS, Limits
from shoal.search.space import Recipe, Space, check_space, default_space, encodings_of, first_recipes
from shoal.search.strategies import HALVING, find_strategy
from shoal.search.timing import SURPRISES, Clock, Effort, finish
from shoal.search.trainers import Trainer

Pair = tuple[np.ndarray, np.ndarray]  # rows to train and to score on
FIRST_RESERVE = 0.25, 0.5, 0.025  # kept back before anything is measured: at most this share; so many seconds + share
EXPLAINING = 0.5, 0.1, 6.0  # of a budget: at most this share; if nobody says otherwise, this share and so many seconds
MOST_EXPLAINING = 15.0  # seconds of what is left
REFIT_SHARE = 0.2  # of a budget, for training what was chosen on all rows


def fit_search(
    data: TrainingData,
    options: SearchOptions,
    callbacks: Callbacks | None = None,
    *,
    clock: Clock | None = None,
    earlier: Earlier | None = None,
    report: bool = False,
    journal: Journal | None = None,
    stacklevel: int = 2,
) -> SearchResult:
    """Search, combine and score.

    clock       that began before; its budget counts
    earlier     a run to be done again, to the bit
    report      files will be written after it, within the budget
    journal     of this search, where what was done before goes on
    stacklevel  of warnings: 2 is the line that calls this function
    """
    fit = _Fit(data, options, callbacks or Callbacks(), clock or Clock(options.budget), earlier)
    fit.report = report
    fit.go_on(journal)
    effort = fit.plan(stacklevel + 1)
    return fit.run(effort)


class _Fit:
    """One fit under way: what all its steps look at."""

    report = False
    journal: Journal | None = None
    files = 0.0  # seconds that writing the results will take

    def __init__(
        self, data: TrainingData, options: SearchOptions, callbacks: Callbacks, clock: Clock, earlier: Earlier | None
    ) -> None:
        self.data, self.options, self.callbacks, self.clock, self.earlier = data, options, callbacks, clock, earlier
        self.begun, self.seen = clock.elapsed(), (time.monotonic(), time.process_time())
        clock.watch(self.begun, self.seen[1] - clock.computed)
        self.decisions = Decisions()
        self.metric: Metric = find_metric(options.scoring, data.task, data.classes)
        rows = len(data.target)
        self.folds = folds_with_every_class(default_folds(rows, data.schema), data.task, data.target, self.metric)
        dealt = 1 if data.time is not None else default_repeats(rows, clock.budget, data.schema)
        self.repeats = (earlier and earlier.repeats) or dealt

    def go_on(self, journal: Journal | None) -> None:
        """Take up a search where earlier attempts have ended. The time that they took counts."""
        self.journal, self.decisions = journal, Decisions(journal)
        self.clock.start -= seconds_before(journal)

    def plan(self, stacklevel: int) -> Effort:
        """What to go without, where the time is short; as an earlier run did, if that is repeated."""
        if self.earlier is not None or self.clock.budget is None:
            return Effort() if self.earlier is None else self.earlier.effort
        known = self.decisions.earlier("effort")
        if known is not None:
            self.repeats = known["repeats"]
            return Effort.from_dict(known["effort"])
        effort = self._measured_effort(stacklevel + 1)
        self.decisions.note("effort", {"effort": effort.as_dict(), "repeats": self.repeats})
        return effort

    def _measured_effort(self, stacklevel: int) -> Effort:
        encodings = None if self.options.space is None else encodings_of(self.options.space)
        effort, words = what_to_leave_out(
            self.data, self.options.folds, (self.folds, self.repeats), self.metric,
            self._limits(default_epochs(len(self.data.target))), self.clock, self.report, encodings,
        )  # fmt: skip
        if words and self.callbacks.hear("note"):
            self.callbacks.tell("note", words)
        elif words:
            warnings.warn(words, stacklevel=stacklevel + 1)
        return effort

    def run(self, effort: Effort) -> SearchResult:
        options, clock, seed = self.options, self.clock, self.options.seed
        data = self.data
        if effort.rows is not None:
            data = data.take(draw_rows(data.target, data.task, effort.rows, seed))
        if effort.folds is not None:
            self.folds, self.repeats = effort.folds, 1
        pairs, cv = make_folds(
            options.folds, data.task, data.X, data.target, data.groups, seed % (1 << 32), self.folds, self.repeats,
            data.time,
        )  # fmt: skip
        if data.time is not None:
            self.metric = forward_metric(self.metric, data.target, data.weight, [valid for _, valid in pairs])
        self.metric.check(data.task, data.target, data.weight, [valid for _, valid in pairs])
        encodings = effort.encodings or (ENCODINGS if clock.budget is None else encodings_of(options.space))
        with workers_beside(options.executor) as workers:
            problem = _problem(data, pairs, encodings)
        encoded = clock.elapsed()
        if workers is None:
            clock.watch(time.monotonic() - self.seen[0], time.process_time() - self.seen[1])
        refits = _wants_refit(options.refit, pairs, data.time is not None)
        with training_place(problem, self.metric, options, self.journal, clock, workers) as trainer:
            search, space = self._search(problem, refits, trainer)
            trained = clock.elapsed()
            everything = np.arange(len(data.target))
            whole_data = _problem(data, [(everything, everything)], encodings) if refits else None
            group = group_of_rows(data.units, problem)
            outcome, effort = self._conclude(search, effort, data, whole_data, group)
            concluded = clock.elapsed()
            explanation = self._explain(search, outcome, data, group)
        phases = {
            "encoding": encoded - self.begun, "search": trained - encoded,
            "ensemble and honest score": concluded - trained, "which columns matter": clock.elapsed() - concluded,
        }  # fmt: skip
        given = self.data.table if self.data.given is None else self.data.given
        result = SearchResult(
            search, outcome, options, cv, space, phases, self.repeats, given, self.data.target_name, effort, data.table,
            trainer.describe(), explanation, background_rows(data.table, data.weight, options.seed),
        )  # fmt: skip
        self.callbacks.tell("finished", result)
        return result

    def _limits(self, epochs: int) -> Limits:
        options = self.options
        return Limits(
            recipes=options.recipes or 1, seeds=options.seeds, finalists=FINALISTS,
            default_epochs=epochs, threads=options.threads, seed=options.seed,
        )  # fmt: skip

    # ---- searching ----

    def _search(self, problem: Problem, refits: bool, trainer: Trainer) -> tuple[Search, dict[str, str]]:
        """Run the strategy, or an earlier run again; and the space in words."""
        options, clock = self.options, self.clock
        epochs = options.epochs or default_epochs(problem.n_rows)
        limits = self._limits(epochs)
        search = Search(problem, self.metric, limits, clock, self.callbacks, trainer, self.decisions)
        if self.journal is not None:
            search.samples.folder = self.journal.folder
        if self.journal is not None and results_in(self.journal):
            found = f"going on: {results_in(self.journal):,} results were found in the journal"
            self.callbacks.tell("note", found)
        begun = Started(problem.n, len(problem.folds), self.metric.name, clock.budget, trainer.workplace)
        self.callbacks.tell("started", begun)
        timed = clock.budget is not None and self.earlier is None
        if clock.budget is not None:
            search.after_round = self._keep_back(search, refits) if timed else None
        space, first = self._space(search, epochs, warm_up=timed)
        if self.earlier is not None:
            self._drain(search, search.repeat(self.earlier.log))
        else:
            strategy = find_strategy(options.strategy, space, options.seed, first, problem.n_rows)
            self._drain(search, search.run(strategy))
        tried = [candidate.recipe for candidate in search.candidates]
        words = space.describe(tried) if isinstance(space, Space) else {"members": f"{len(space)} given"}
        return search, words

    def _drain(self, search: Search, rungs: Any) -> None:
        """Run the search; callbacks are told of each rung, and may end it."""
        rung: RungEnded
        for rung in rungs:
            if self.callbacks.tell("rung_ended", rung):
                search.end()

    def _keep_back(self, search: Search, refits: bool) -> Callable[[], None]:
        """Set the clock's reserve for what comes after the search; how to do so again after each round."""
        clock, before = self.clock, self.clock.elapsed()
        budget = clock.budget or 0.0
        again = REFIT_SHARE * budget if refits else 0.0
        most, seconds, share = FIRST_RESERVE
        explaining = self._explain_seconds(budget)
        clock.reserve = min(most * budget, seconds + share * budget) + again + explaining

        def after_round() -> None:
            passes = measure_passes(search, self.report)
            if passes is not None:
                known, rows = len(search.best_candidates()), len(search.sample_rows)
                last = min(again, refit_seconds(search, before)) if refits else 0.0
                clock.reserve = last + passes.reserve(clock.budget or 0.0, self.report, known, rows)
                clock.reserve += min(explaining, _useful_explaining(search)) if explaining else 0.0

        return after_round

    def _space(self, search: Search, epochs: int, warm_up: bool) -> tuple[Space | list[Recipe], list[Recipe]]:
        """Where recipes come from, and those to be tried first."""
        problem, encodings = search.problem, list(search.problem.inputs)
        if self.options.space is not None:
            return check_space(self.options.space, encodings), []
        if warm_up:
            self._drain(search, search.warm_up(first_recipes(problem.n_rows, encodings, epochs)))
            epochs = search.fitting_epochs(epochs, HALVING)
        space = default_space(problem.n_rows, problem.task.kind == CLASSIFICATION, encodings, epochs)
        return space, first_recipes(problem.n_rows, encodings, epochs)

    # ---- combining ----

    def _conclude(
        self, search: Search, effort: Effort, data: TrainingData, refit: Problem | None, group: np.ndarray | None
    ) -> tuple[Outcome, Effort]:
        """Ensemble and honest score, with as much effort as there is time for; and that effort."""
        clock, seconds, hurried = search.clock, 0.0, search.clock.hurried
        bootstraps = None if self.earlier is None or hurried else self.earlier.bootstraps
        timed = hurried or (clock.budget is not None and self.earlier is None)
        passes = measure_passes(search, self.report) if timed else None
        if passes is not None:
            self.files = SURPRISES * passes.fixed(self.report)
            rows, sampled = int((search.problem.loss_weight > 0).sum()), len(search.sample_rows)
            last, seconds = finish(passes, clock.time_left(), self.report, len(search.best_candidates()), rows, sampled)
            effort = replace(effort, candidates=last.candidates, ensemble_rows=last.ensemble_rows, sampled=last.sampled)
        elif bootstraps is None:  # no clock may decide here: the same call gives the same bits
            bootstraps = int(np.clip(1_000_000 / len(search.sample_rows), FEWEST_BOOTSTRAPS, BOOTSTRAPS))
        ending = Ending(effort, seconds, bootstraps, lambda: clock.hurried and not hurried)
        # Several threads would sum in another order: bits would depend on their number.
        with threadpool_limits(1, "blas"):
            return conclude(search, self.options.ensemble, ending, data, refit, group, self.options.compact), effort

    # ---- explaining ----

    def _explain_seconds(self, budget: float) -> float:
        """To be kept back of a budget for finding out which columns matter."""
        most, share, seconds = EXPLAINING
        return min(share * budget, seconds) if self.options.explain_seconds is None else min(
            self.options.explain_seconds, most * budget
        )  # fmt: skip

    def _explain(
        self, search: Search, outcome: Outcome, data: TrainingData, group: np.ndarray | None
    ) -> Explanation | None:
        """Which columns matter, in the time left; None: not asked for, or no time."""
        wish, clock = self.options.explain_seconds, self.clock
        if wish == 0:
            return None
        timed = wish is not None or clock.hurried or (clock.budget is not None and self.earlier is None)
        left = clock.time_left() - self.files
        model, problem = outcome.model, search.problem
        if outcome.refit or len(model.folds) != len(problem.folds):  # only networks of folds have rows left out
            numbers = {one.number: one.number for one in outcome.chosen}
            model = make_model(problem, outcome.chosen, outcome.shares.tolist(), numbers, model.temperature)
        subject = Subject(
            model, problem, data.table, search.metric, output_names(model, data.classes), group,
            search.limits.threads, self.options.seed,
        )  # fmt: skip
        seconds = max(min(left, MOST_EXPLAINING if wish is None else wish), 0.0) if timed else None
        with threadpool_limits(1, "blas"):
            return explain_search(subject, Time(seconds, clock))


def _problem(data: TrainingData, pairs: list[Pair], encodings: Sequence[str]) -> Problem:
    return make_problem(
        data.task, data.schema, data.table, data.target, pairs, data.weight, data.class_weights(), encodings
    )


def _useful_explaining(search: Search) -> float:
    """What an explanation makes use of, with some to spare: on small tables far less than its share."""
    best = [candidate.recipe for candidate in search.best_candidates()[:SAVED_PARTS]]
    pace = search.trainer.slots() * SAVED_PARTS / len(best) * search.costs.predicting_seconds(best)
    return SURPRISES * useful_seconds(search.problem, pace)


def _wants_refit(refit: Any, pairs: list[Pair], forward: bool) -> bool:
    """By default only where folds train on very different parts of the data, as those of time series do."""
    if refit != "auto":
        return bool(refit)
    sizes = [len(train) for train, _ in pairs]
    return forward or min(sizes) < 0.5 * max(sizes)
