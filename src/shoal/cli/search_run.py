"""The work of `shoal search`, from the request to the files, and everything it prints."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import shoal
from shoal.console.background import BackgroundThread
from shoal.console.interrupts import Interrupt, interruptible
from shoal.console.progress import started
from shoal.console.terminal import quoted, say
from shoal.errors import MissingFile, NothingTrained, UserError
from shoal.executors.find import find_workers
from shoal.live.options import LiveOptions
from shoal.live.recorders import SearchRecorder
from shoal.live.watching import live_server
from shoal.machine import available_memory, size_text, thread_count
from shoal.models.saving import DESCRIPTION, check_place
from shoal.report.shell.words import count, is_share, metric_name
from shoal.runs.folder import RunFolder, refuse_taken
from shoal.runs.journal import writing
from shoal.runs.kinds import BOARD, MODEL, REPORT, SEARCH, SETTINGS, Run, read_run
from shoal.runs.versions import different_versions, file_hash
from shoal.search.budget.clock import Clock, seconds_before
from shoal.search.budget.model import Forecast
from shoal.search.budget.shares import Effort
from shoal.search.events import Progress, Started
from shoal.search.options import COMPACT, SearchOptions
from shoal.search.problem.data import TrainingData
from shoal.search.problem.source import Request, Source, read_source
from shoal.search.remote.workplace import Workplace, look
from shoal.search.results.report_data import Context, honest_words
from shoal.search.results.result import Earlier, SearchResult
from shoal.search.results.run_files import (
    comparable_model,
    first_difference,
    options_in,
    read_settings,
    write_results,
)
from shoal.search.run import Design, design_search, run_search
from shoal.search.screen import SearchScreen, matter_words, skipped_words, time_words, top_table
from shoal.trackers.find import LogOptions

BUDGET, DEMO_BUDGET = 60.0, 20.0  # seconds
READING_SHARE = 0.5  # of the budget that reading may take
LEAST_SHARE = 0.35  # of the budget that is left to the search, however long reading took
NOTES_SHOWN = 20
DIFFERENT, SKIPPED, INTERRUPTED = 1, 3, 130  # exit codes
PAGE = "the live page"  # asked to stop, as Ctrl-C may
MAY_DIFFER = {"repeat", "check", "out", "threads", "executor", "file", "dry_run", "fresh", "log"}  # go with --repeat
MAY_DIFFER |= {"live", "address", "port"}


@dataclass(frozen=True, eq=False)
class Again:
    """A run to repeat."""

    path: Path  # its folder or its settings.json
    settings: dict[str, Any]
    earlier: Earlier
    model: Path | None  # to compare with


# ---- what is asked ----


def repeated(request: Request, path: Path, typed: dict[str, str], check: bool) -> tuple[Request, Again]:
    """The request of an earlier run, and that run. `typed`: the flags that were given."""
    for name, flag in typed.items():
        if name not in MAY_DIFFER:
            raise UserError(f"--repeat takes all settings from {path}; omit {flag}")
    settings = read_settings(path)
    reading, options = options_in(settings)
    for change in different_versions(settings["versions"]):
        say(f"note: {change}, so the last digits may differ", error=True)
    demo = settings["data"]["demo"]
    file = request.file or (None if demo else Path(settings["data"]["path"]))
    reading = replace(reading, target=None) if demo else reading
    options = replace(options, threads=request.search.threads, executor=request.search.executor)
    search, score = settings["search"], settings["result"]["score"]
    effort = Effort.from_dict(search["effort"])
    earlier = Earlier(settings["log"], search["repeats"], score["bootstraps"], effort)
    if file is not None:
        _check_unchanged(file, settings, path)
    model = comparable_model(path) if check else None
    return Request(file, demo, reading, options), Again(path, settings, earlier, model)


def _check_unchanged(file: Path, settings: dict[str, Any], path: Path) -> None:
    remedy = f"give its path: shoal search PATH --repeat {quoted(path)}"
    if not file.exists():
        raise MissingFile(
            f"--repeat needs the data of the earlier run, but there is no file {file}. If it was moved, {remedy}"
        )
    if file.is_file() and file_hash(file) != settings["data"]["sha256"]:
        raise UserError(
            f"--repeat needs the data of the earlier run, but {file} has changed since (its checksum differs). If you "
            f"have an unchanged copy, {remedy}"
        )


def complete(request: Request) -> Request:
    """Refuse options that contradict each other, and fill in the default budget."""
    options = request.search
    if request.demo:
        if request.file is not None or request.reading.target is not None:
            raise UserError("--demo brings its own data: omit the file and --target, or omit --demo")
    elif request.file is None:
        raise UserError("give the file to search, as in 'shoal search data.csv --target price', or try --demo")
    elif request.reading.target is None:
        raise UserError("name the column to predict: --target with a name or a number (-1 is the last column)")
    if options.executor is not None:
        find_workers(options.executor).check()
    if options.budget is None and options.recipes is None:
        return replace(request, search=replace(options, budget=DEMO_BUDGET if request.demo else BUDGET))
    return request


# ---- what is understood and planned ----


def understand(request: Request, again: Again | None, out: Path | None, fresh: bool) -> tuple[Source, Clock]:
    """Read the table, and print how it was read. The clock counts from the start of the process."""
    if out is not None:
        if read_run(out) is None:
            refuse_taken(out)
        elif fresh:
            check_place(out / MODEL)
    source = read_source(request, settled=again is not None)
    clock = _clock(None if again is not None else request.search.budget)
    if again is not None and again.settings["data"]["sha256"] != source.sha256:
        raise UserError(f"--repeat needs the data of the earlier run, but {source.name} of this scikit-learn differs")
    found = source.labelled
    say(f"{source.name}: {source.notes[0]}")
    for line in source.notes[1:]:
        say(f"  {line}")
    counts, *noted = found.schema.describe()
    say(f"  columns: {counts}")
    for line in noted[:NOTES_SHOWN]:
        say(f"    {line}")
    if len(noted) > NOTES_SHOWN:
        say(f"    and {len(noted) - NOTES_SHOWN} more")
    other = "regression" if found.kind == "classification" else "classification"
    say(f"  target: {found.describe()}")
    say(f"  task: {found.kind} ({found.why}; --task {other} to change)")
    return source, clock


def _clock(budget: float | None) -> Clock:
    """Of the whole process. Where reading takes more than half of the budget, the search gets more than was asked."""
    took = time.monotonic() - started()
    if budget is None or took <= READING_SHARE * budget:
        return Clock(budget, started(), computed=0.0)
    longer, advised = max(budget, took + LEAST_SHARE * budget), max(4 * took, budget)
    say(
        f"note: starting and reading took {took:.1f} s, more than half of the budget of {budget:g} s. The search will "
        f"end after about {longer:.0f} s. --budget {advised:.0f} would leave enough time for it"
    )
    return Clock(longer, started(), computed=0.0, advised=advised)


def show_plan(source: Source, again: Again | None, clock: Clock) -> None:
    """Print the plan; connects to the workers to count them."""
    data, options = source.training_data(), source.request.search
    _say_notes([note.for_command_line() for note in data.notes])
    if again is not None:
        _say_plan(again, None, options, clock)
        return
    expected = design_search(data, options, clock=clock, report=True, forecast=True).forecast
    _say_plan(again, expected, options, clock)
    if expected is not None and options.executor is not None:
        for line in _workers_words(look(options.executor), expected, options):
            say(line)


def _say_notes(notes: Sequence[str]) -> None:
    for line in notes:
        say(f"note: {line}")


def _say_plan(again: Again | None, expected: Forecast | None, options: SearchOptions, clock: Clock) -> None:
    if again is not None:
        say(f"plan: the earlier run again, {sum(len(entry['recipes']) for entry in again.settings['log']):,} "
            "recipes and seeds")  # fmt: skip
    if expected is None:
        return
    seconds = time_words(expected.seconds)
    if clock.budget is None:
        takes = f"about {seconds}" + (" in this process" if options.executor is not None else "")
    else:
        takes = f"{seconds}, as asked" if clock.budget == options.budget else f"about {time_words(clock.budget)}"
    about = "" if options.budget is None else "about "
    may_grow = options.epochs is None and options.space is None and str(options.strategy) == "halving"
    say(f"plan: {about}{count(expected.recipes, 'recipe')} x {count(expected.folds, 'fold')} ({expected.cv}) = "
        f"{expected.networks:,} networks, up to {expected.epochs} epochs{' at first' * may_grow}")  # fmt: skip
    say(f"  strategy: {options.strategy}; time: {takes}; memory: about {size_text(expected.memory)}")
    if expected.memory > available_memory():
        say(f"  note: only {size_text(available_memory())} of memory are free; use fewer --folds or rows")


def _workers_words(workplace: Workplace, expected: Forecast, options: SearchOptions) -> list[str]:
    """The workers, and what the search will take there."""
    faster = workplace.times_faster(thread_count(options.threads))
    if options.budget is None:
        takes = f"time there: about {time_words(expected.seconds_there(faster))}"
    else:
        takes = f"there: about {faster * expected.recipes:,.0f} recipes in that time"
    return [f"  workers: {workplace.describe()}", f"  {takes}, if their cores are as fast as those here"]


# ---- the search ----


def folder_of(source: Source, again: Again | None, out: Path | None, fresh: bool) -> RunFolder:
    """A repetition is computed, even if it was before."""
    marks = source.fingerprint(None if again is None else again.settings)
    file = source.path or source.name
    return RunFolder(SEARCH, out, source.stem, marks, fresh=fresh, again=again is not None, file=file)


class Watching:
    """Shows progress on the screen and in the folder, and ends the search when the user has asked for that."""

    def __init__(
        self, screen: SearchScreen, folder: RunFolder, expected: Forecast | None, options: SearchOptions
    ) -> None:
        self.screen, self.folder, self.expected, self.options = screen, folder, expected, options
        self.note, self.stop = screen.say, Interrupt()

    def started(self, event: Started) -> None:
        if event.workplace is not None and self.expected is not None:
            for line in _workers_words(event.workplace, self.expected, self.options):
                self.screen.say(line)

    def progress(self, event: Progress) -> bool:
        self.screen.watch(event)
        best = None if event.best is None else event.best.score
        self.folder.progress(self.screen.share(), recipes=event.recipes, metric=self.screen.metric, best=best)
        return bool(self.stop.requested)


@dataclass(frozen=True, eq=False)
class Place:
    """Where a search works: its folder, its clock, its page and logs, and whether results are kept or only compared."""

    folder: RunFolder
    clock: Clock
    page: LiveOptions
    logs: LogOptions
    keep: bool


@dataclass(frozen=True, eq=False)
class Work:
    """What is to be searched, and how."""

    source: Source
    data: TrainingData
    notes: list[str]
    design: Design
    took: float  # seconds of reading and planning
    again: Again | None


def search_in(place: Place, source: Source, again: Again | None) -> int:
    """Plan, search, save; with a page that shows it, if that was asked for."""
    folder, clock, options = place.folder, place.clock, source.request.search
    if folder.resumes:
        check_place(folder.path / MODEL)
        say(f"resuming {folder.path}, begun {folder.begun} (--fresh starts over)")
    data = source.training_data()
    notes = [note.for_command_line() for note in data.notes]
    _say_notes(notes)
    journal = folder.journal(partial(say, error=True))
    earlier = None if again is None else again.earlier
    design = design_search(
        data, options, clock=clock, journal=journal, earlier=earlier, report=True, forecast=again is None
    )
    _say_plan(again, design.forecast, options, clock)
    if design.note:
        say(design.note, error=True)
    took = time.monotonic() - started()
    screen = SearchScreen(design.metric.label, None if clock.budget is None else clock.budget - took)
    screen.begun -= seconds_before(journal)
    watching = Watching(screen, folder, design.forecast, options)
    work = Work(source, data, notes, design, took, again)
    with (
        SearchRecorder(folder.path, _about(source, design, screen.budget), screen.say) as recorder,
        live_server(folder.path, place.page),
    ):
        for text in notes:
            recorder.note(text)
        return _search_and_save(place, work, watching, recorder)


def _about(source: Source, design: Design, budget: float | None) -> dict[str, Any]:
    """What the heading of the live page says."""
    options, label = source.request.search, source.labelled
    return {
        "title": source.name, "target": label.target, "task": label.kind, "metric": metric_name(design.metric.name),
        "percent": is_share(design.metric.name), "folds": design.cv, "budget": budget, "reduced": design.note,
        "threads": None if options.executor is not None else thread_count(options.threads),
    }  # fmt: skip


def _search_and_save(place: Place, work: Work, watching: Watching, recorder: SearchRecorder) -> int:
    """Search in another thread, so that this one hears Ctrl-C at once; then save, for good or to compare."""
    folder, clock, screen, source, again = place.folder, place.clock, watching.screen, work.source, work.again

    def hurry() -> None:
        if screen.latest is None:  # nothing was trained yet: there is nothing to keep
            raise KeyboardInterrupt
        clock.hurry()
        screen.say("ending the search, keeping the best so far (Ctrl-C again quits at once)")

    def meanwhile() -> None:
        screen.draw()
        if not watching.stop.requested and recorder.recording.stop_requested():
            watching.stop.requested = PAGE
            hurry()

    try:
        with interruptible(hurry) as watching.stop, screen, place.logs.trackers(screen.say) as trackers:
            listeners, options = [watching, recorder, trackers], source.request.search
            thread = BackgroundThread(partial(run_search, work.data, options, listeners, design=work.design))
            result: SearchResult = thread.result(meanwhile)
            if again is not None and again.model is not None and watching.stop.requested:
                raise KeyboardInterrupt
            screen.say("saving")
            folder.check()
            before = {"reading and planning": work.took}
            context = Context(source.name, [*source.notes, *work.notes], time.monotonic() - started(), before)
            with writing(folder.path, what="the results"):
                page = write_results(folder.path, result, source, context)
            same = _compare(again, folder.path)
            trackers.finish(result, folder.path)
            folder.finish() if place.keep else folder.discard()
    except (KeyboardInterrupt, NothingTrained):
        kept = f"the same command resumes {folder.path}" if folder.has_work else "nothing was saved"
        say(f"interrupted: {kept}", error=True)
        raise SystemExit(INTERRUPTED) from None
    skipped = _conclude(folder.path, result, page, watching.stop.requested, again) if place.keep else False
    if same:
        say(same)
    return DIFFERENT if same.startswith("different") else SKIPPED if skipped else 0


def _compare(again: Again | None, path: Path) -> str:
    """Whether the model is that of the earlier run, in words; empty where nobody asked."""
    if again is None or again.model is None:
        return ""
    name = first_difference(again.model, path / MODEL)
    if name is None:
        return f"the same: every byte of {again.model} (explanations are not compared)"
    return f"different: {name} of the repetition is not that of {again.model}"


# ---- results ----


def _conclude(place: Path, result: SearchResult, page: dict[str, Any], ended_by: str, again: Again | None) -> bool:
    """Print the best recipes, the honest score, and where everything is; whether recipes were skipped."""
    search, score, outcome = page["search"], page["score"], result.outcome
    early = f", ended early by {ended_by}" if search["interrupted"] else ""
    say()
    trained = f"{count(search['recipes'], 'recipe')}, {count(search['networks'], 'network')}"
    say(f"{trained} in {search['seconds']:.1f} s{early}")
    say()
    for line in top_table(outcome.board, score["metric"]):
        say(line)
    say()
    compact, target, folds = result.options.model == COMPACT, result.data.target_name, len(outcome.model.folds)
    averaged = f"{folds} fold{'s' * (folds > 1)}" if compact else "all folds"
    for line in honest_words(outcome.honest, score["chance"], target, search["recipes"], averaged):
        say(line)
    if compact:
        say(outcome.compact.describe())
    for line in matter_words(result.explanation, target):
        say(line)
    if search["interrupted"] and again is None:
        say()
        say("The same command resumes the search.")
    _say_files(place, search["skipped"])
    return bool(search["skipped"])


def show_finished(run: Run, source: Source) -> int:
    """Print a run that need not be computed again: its best recipes, its honest score, and where everything is."""
    estimator, result = shoal.load(run.path / MODEL), read_settings(run.path)["result"]
    if result.get("model_sha256") != file_hash(run.path / MODEL / DESCRIPTION):
        raise UserError(
            f"{run.path / MODEL} is not the model of this run: its checksum is not that in {run.path / SETTINGS}. "
            "Restore it from a copy, or give --fresh to search again"
        )
    score, skipped = estimator.honest_score_, result["skipped"]
    say()
    say(f"This search is already finished; it began {run.begun} (--fresh repeats it)")
    say()
    for line in top_table(estimator.board_, score.metric):
        say(line)
    for line in ("", f"honest score: {score}", *matter_words(estimator.explanation_, source.labelled.target)):
        say(line)
    _say_files(run.path, skipped)
    return SKIPPED if skipped else 0


def _say_files(place: Path, skipped: Sequence[dict[str, Any]]) -> None:
    """Recipes that were skipped, and where everything is. The last line is the report's path."""
    for line in skipped_words(skipped):
        say(line)
    run = quoted(place)
    say()
    say(f"saved in {place}")
    say(f"  {MODEL}/           predict with: shoal predict {run} new.csv")
    say(f"                   explain with: shoal explain {run} new.csv --out why.html")
    say(f"  {BOARD}  every recipe")
    say(f"  {SETTINGS}    repeat with: shoal search --repeat {quoted(place / SETTINGS)}")
    say(f"  {REPORT}      open it in a browser:")
    say(str(place / REPORT))
