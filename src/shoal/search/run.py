"""The one way in: `run_search`, for the estimators and the command line.

`design_search` decides once what a search is: its metric, its folds, and what it reduces to fit into the time.
`run_search` then encodes each fold, searches, combines the best, estimates the honest score, and explains the model.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from shoal.callbacks import Callbacks
from shoal.encoders.encoder import ENCODINGS
from shoal.explain.results import Explanation
from shoal.metrics.find import find_metric
from shoal.metrics.metric import Metric, forward_metric
from shoal.metrics.tasks import CLASSIFICATION
from shoal.runs.journal import Journal
from shoal.search.budget.clock import Clock, Decisions, seconds_before
from shoal.search.budget.model import Forecast, TimeModel, limits_of
from shoal.search.budget.shares import Effort
from shoal.search.budget.trial import draw_rows
from shoal.search.events import RungEnded, Started
from shoal.search.options import SearchOptions
from shoal.search.problem.data import TrainingData
from shoal.search.problem.dealing import Pair
from shoal.search.problem.problem import (
    Problem,
    default_epochs,
    default_folds,
    default_repeats,
    folds_with_every_class,
    group_of_rows,
    make_folds,
    make_problem,
)
from shoal.search.remote.journaled import open_trainer, results_in, workers_beside
from shoal.search.results.conclude import conclude, make_model
from shoal.search.results.explaining import Subject, Time, background_rows, explain_search, output_names
from shoal.search.results.result import Conclusion, Earlier, SearchResult
from shoal.search.rounds.candidates import Trainer
from shoal.search.rounds.loop import Search
from shoal.search.space import check_space, default_space, encodings_of, first_recipes, values_tried
from shoal.search.strategies import HALVING, find_strategy


@dataclass(frozen=True, eq=False)
class Design:
    """A search as it is decided before anything is trained."""

    data: TrainingData  # the rows to search on
    metric: Metric
    pairs: list[Pair]  # the folds
    cv: str  # the folds in words
    repeats: int  # how often rows are dealt into folds
    encodings: tuple[str, ...]  # of numbers
    effort: Effort  # what is reduced to save time
    refits: bool  # whether what is chosen is trained again on all rows
    time: TimeModel
    decisions: Decisions
    journal: Journal | None = None
    earlier: Earlier | None = None  # the run to repeat
    note: str = ""  # what is reduced, in words
    forecast: Forecast | None = None  # where it was asked for


def design_search(
    data: TrainingData,
    options: SearchOptions,
    *,
    clock: Clock | None = None,
    journal: Journal | None = None,
    earlier: Earlier | None = None,
    report: bool = False,
    forecast: bool = False,
) -> Design:
    """Decide what to do, once.

    clock     started earlier; its budget counts
    journal   of this search, from which it resumes; the time of earlier attempts counts
    earlier   a run to repeat to the bit
    report    files are written after the search, within the budget
    forecast  also predict what the search takes
    """
    clock = clock or Clock(options.budget)
    clock.watch(clock.elapsed(), time.process_time() - clock.computed)
    clock.start -= seconds_before(journal)
    model, decisions = TimeModel(clock, options, report, repeated=earlier is not None), Decisions(journal)
    metric, rows = find_metric(options.scoring, data.task, data.classes), len(data.target)
    folds = folds_with_every_class(default_folds(rows, data.schema), data.task, data.target, metric)
    repeats = 1 if data.time is not None else default_repeats(rows, clock.budget, data.schema)
    effort, note = Effort(), ""
    if earlier is not None:
        effort, repeats = earlier.effort, earlier.repeats or repeats
    elif model.timed and (known := decisions.earlier("effort")) is not None:
        effort, repeats = Effort.from_dict(known["effort"]), known["repeats"]
    elif model.timed:
        effort, note = model.reduce(data, metric, (folds, repeats))
        decisions.note("effort", {"effort": effort.as_dict(), "repeats": repeats})
    if effort.rows is not None:
        data = data.take(draw_rows(data.target, data.task, effort.rows, options.seed))
    if effort.folds is not None:
        folds, repeats = effort.folds, 1
    pairs, cv = make_folds(
        options.folds, data.task, data.X, data.target, data.groups, options.seed, (folds, repeats), data.time
    )
    valid = [scored for _, scored in pairs]
    if data.time is not None:
        metric = forward_metric(metric, data.target, data.weight, valid)
    metric.check(data.task, data.target, data.weight, valid)
    encodings = effort.encodings or (ENCODINGS if clock.budget is None else encodings_of(options.space))
    refits = _wants_refit(options.refit, pairs, data.time is not None)
    expected = model.forecast(data, metric, len(pairs), cv) if forecast else None
    return Design(
        data, metric, pairs, cv, repeats, encodings, effort, refits, model, decisions, journal, earlier, note, expected
    )


def _wants_refit(refit: Any, pairs: list[Pair], forward: bool) -> bool:
    """By default only where folds train on very different parts of the data, as those of time series do."""
    if refit != "auto":
        return bool(refit)
    sizes = [len(train) for train, _ in pairs]
    return forward or min(sizes) < 0.5 * max(sizes)


def run_search(
    data: TrainingData, options: SearchOptions, callbacks: Any = None, *, design: Design | None = None
) -> SearchResult:
    """Search, combine, score, explain. `design`: where it was made before, with a clock or a journal."""
    callbacks, design = Callbacks(callbacks), design or design_search(data, options)
    clock, begun = design.time.clock, design.time.clock.elapsed()
    with workers_beside(options.executor) as workers:
        seen = time.monotonic(), time.process_time()
        problem = make_problem(design.data, design.pairs, design.encodings)
        if workers is None:
            clock.watch(time.monotonic() - seen[0], time.process_time() - seen[1])
    encoded = clock.elapsed()
    with open_trainer(problem, design.metric, options, design.journal, clock, workers) as trainer:
        search = _begin(design, options, problem, trainer, callbacks)
        for rung in _warm_up(search, design, options):
            if callbacks.notify("step_ended", rung):
                search.end()
        for rung in _rungs(search, design, options):
            if callbacks.notify("step_ended", rung):
                search.end()
        trained = clock.elapsed()
        group, whole = group_of_rows(design.data.units, problem), _all_rows(design, problem)
        bootstraps = None if design.earlier is None else design.earlier.bootstraps
        ending = design.time.finish(search, design.effort, bootstraps)
        with threadpool_limits(1, "blas"):  # several threads would sum in another order: their number would change bits
            outcome = conclude(search, options.model, ending, design.data, whole, group)
            concluded = clock.elapsed()
            explanation = _explain(search, outcome, design, group)
    tried = values_tried([candidate.recipe for candidate in search.candidates])
    phases = {
        "encoding": encoded - begun, "search": trained - encoded, "ensemble and honest score": concluded - trained,
        "which columns matter": clock.elapsed() - concluded,
    }  # fmt: skip
    result = SearchResult(
        search, outcome, options, data, design.data, design.cv, tried, phases, design.repeats, ending.effort,
        trainer.describe(), explanation, background_rows(design.data.table, design.data.weight, options.seed),
    )  # fmt: skip
    callbacks.notify("finished", result)
    return result


def _all_rows(design: Design, problem: Problem) -> Problem | None:
    """All rows as one fold, to train what was chosen on once more, in the same encodings; None: it is not."""
    if not design.refits:
        return None
    everything = np.arange(len(design.data.target))
    return make_problem(design.data, [(everything, everything)], tuple(problem.inputs), problem.inputs)


# ---- searching ----


def _begin(design: Design, options: SearchOptions, problem: Problem, trainer: Trainer, callbacks: Callbacks) -> Search:
    """A search in which nothing has been tried yet."""
    model, journal = design.time, design.journal
    limits = limits_of(options, options.epochs or default_epochs(problem.n_rows))
    after_round = model.keep_back if model.timed else None
    search = Search(problem, design.metric, limits, model.clock, callbacks, trainer, design.decisions, after_round)
    if journal is not None:
        search.samples.folder = journal.folder
        if results_in(journal):
            callbacks.notify("note", f"resuming: {results_in(journal):,} results were found in the journal")
    budget, workplace = model.clock.budget, trainer.workplace
    folds, metric = len(problem.folds), design.metric.name
    callbacks.notify("started", Started(problem.n, folds, metric, budget, workplace, options, journal))
    if model.timed:
        model.begin(design.refits)
    return search


def _warm_up(search: Search, design: Design, options: SearchOptions) -> Iterable[RungEnded]:
    """An epoch of the first recipes: from then on something can be delivered, and the speed on all folds is known."""
    problem, epochs = search.problem, search.limits.default_epochs
    if options.space is not None or not design.time.timed:
        return ()
    return search.warm_up(first_recipes(problem.n_rows, list(problem.inputs), epochs))


def _rungs(search: Search, design: Design, options: SearchOptions) -> Iterable[RungEnded]:
    """What there is to train, a rung at a time."""
    if design.earlier is not None:
        return search.repeat(design.earlier.log)
    problem, epochs = search.problem, search.limits.default_epochs
    encodings, space, first = list(problem.inputs), None, []
    if options.space is not None:
        space = check_space(options.space, encodings)
    else:
        epochs = search.fitting_epochs(epochs, HALVING) if design.time.timed else epochs
        space = default_space(problem.n_rows, problem.task.kind == CLASSIFICATION, encodings, epochs)
        if options.epochs is not None:
            space = replace(space, most_epochs=options.epochs)
        first = first_recipes(problem.n_rows, encodings, epochs)
    return search.run(find_strategy(options.strategy, space, options.seed, first, problem.n_rows))


# ---- explaining ----


def _explain(search: Search, outcome: Conclusion, design: Design, group: np.ndarray | None) -> Explanation | None:
    """Which columns matter, in the time left; None: not asked for, or no time."""
    seconds, data = design.time.explain_seconds(), design.data
    if design.time.options.explain_seconds == 0:
        return None
    model, problem = outcome.model, search.problem
    if outcome.refit or len(model.folds) != len(problem.folds):  # only networks of folds have rows left out
        numbers = {one.number: one.number for one in outcome.chosen}
        model = make_model(problem, outcome.chosen, outcome.shares.tolist(), numbers, model.temperature)
    subject = Subject(
        model, problem, data.table, search.metric, output_names(model, data.classes), group, search.limits.threads,
        search.limits.seed,
    )  # fmt: skip
    return explain_search(subject, Time(seconds, design.time.clock))
