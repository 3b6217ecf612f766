"""One run of `shoal search`, from the file to the folder with the results.

Libraries are imported inside the functions, so that `shoal --help` does not wait for them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.cli.search_watching import Watching
from shoal.errors import MissingFile, UserError
from shoal.interrupts import Interrupt, interruptible, sigterm_is_interrupt
from shoal.progress import started, steady_output
from shoal.terminal import quoted, say

if TYPE_CHECKING:
    from shoal.cli.search_plan import Plan
    from shoal.runs.folder import RunFolder
    from shoal.runs.journal import Journal
    from shoal.runs.kinds import Run
    from shoal.search.options import SearchOptions
    from shoal.search.result import Earlier
    from shoal.search.screen import SearchScreen
    from shoal.search.timing import Effort
    from shoal.tables.options import RowOptions
    from shoal.tables.reading import Reading
    from shoal.tables.table import Table
    from shoal.tables.target import LabelledTable

DEMO = "breast-cancer-wisconsin"
READING_SHARE = 0.5  # of the budget that reading may take
LEAST_SHARE = 0.35  # of the budget that is left to the search, however long reading took
NOTES_SHOWN = 20
INTERRUPTED = 130  # exit code


@dataclass(frozen=True)
class Request:
    """What the user asked of `shoal search`: what to read, and how to search."""

    file: Path | None
    demo: bool
    reading: RowOptions
    search: SearchOptions


@dataclass(frozen=True, eq=False)
class Source:
    """A table and where it is from."""

    name: str
    stem: str
    table: Table
    target: str
    sha256: str
    described: list[str]
    header: bool | None = None
    separator: str | None = None
    quote: str | None = None
    ambiguous: tuple[str, ...] = ()  # names that several columns had


def _read(request: Request) -> Source:
    """The table that the request names."""
    from shoal.runs.versions import file_hash
    from shoal.tables.files import read_table, strings_of

    if request.demo:
        return _demo()
    assert request.file is not None
    reading = request.reading
    assert reading.target is not None
    table, found = read_table(
        request.file, sep=reading.sep, header=reading.header, missing=reading.missing, named=reading.named(),
        strings=strings_of(reading.kind_of_columns()),
    )  # fmt: skip
    stem = request.file.name.split(".")[0] or "run"
    return Source(
        request.file.name, stem, table, reading.target, file_hash(request.file), found.describe(), found.header,
        found.separator, found.quote, found.ambiguous(table),
    )  # fmt: skip


def _demo() -> Source:
    import hashlib

    import numpy as np
    from sklearn.datasets import load_breast_cancer

    from shoal.tables.table import Table

    found = load_breast_cancer()
    columns = [*found.data.T, found.target_names[found.target].astype(object)]
    table = Table([*map(str, found.feature_names), "diagnosis"], columns)
    digest = hashlib.sha256(np.ascontiguousarray(found.data).tobytes() + found.target.tobytes()).hexdigest()
    words = [
        f"{len(table)} rows, {len(table.names)} columns, from scikit-learn: breast tumours in Wisconsin, measured "
        "under a microscope; are they malignant or benign?"
    ]
    return Source(DEMO, DEMO, table, "diagnosis", digest, words)


class Session:
    """One run of `shoal search`, from the file to the folder with the results."""

    stop: Interrupt
    effort: Effort  # of the run to be repeated
    plan: Plan | None = None  # what it will take; not known of a repetition
    skipped = False  # whether recipes were, which nobody could train

    def __init__(
        self, request: Request, earlier: dict[str, Any] | None, settings: Path | None = None, check: bool = False
    ) -> None:
        """`earlier`: the run to be repeated, as read from `settings`; with `check`, models are compared."""
        self.request, self.earlier, self.settings, self.check = request, earlier, settings, check
        self.different: str | None = None  # what of a repeated model is not as it was
        self.advised = 0.0  # a budget that the user was told would be enough
        self.begun = started()

    def elapsed(self) -> float:
        return time.monotonic() - self.begun

    def run(self, out: Path | None, dry_run: bool, fresh: bool = False) -> bool:
        """Whether the model is the one that it should be. Until there is something to keep, Ctrl-C ends it at once."""
        steady_output()
        with sigterm_is_interrupt():
            return self._run(out, dry_run, fresh)

    def _run(self, out: Path | None, dry_run: bool, fresh: bool) -> bool:
        from shoal.models.saving import check_place
        from shoal.runs.folder import RunFolder, refuse_taken
        from shoal.runs.kinds import MODEL, SEARCH, read_run
        from shoal.search.settings import comparable_model

        if out is not None:
            if read_run(out) is None:
                refuse_taken(out)
            elif fresh:
                check_place(out / MODEL)
        self.model = comparable_model(self.settings) if self.check and self.settings is not None else None
        self._find_data()
        self.source = _read(self.request)
        self._check_budget()
        if self.earlier is not None and self.earlier["data"]["sha256"] != self.source.sha256:
            raise UserError(
                f"--repeat needs the data of the earlier run, and {self.source.name} of this scikit-learn is another"
            )
        self._understand()
        self._check_effort()
        if dry_run:
            self._prepare()
            self._plan()
            for line in [] if self.plan is None else self.plan.looked():
                say(line)
            return True
        again = self.earlier is not None  # a repetition is done, also where there is one
        with RunFolder(
            SEARCH, out, self.source.stem, self._fingerprint(), fresh=fresh, again=again, file=self._file()
        ) as folder:
            if folder.found is not None:
                self._show_finished(folder.found)
                return True
            if folder.resumes:
                check_place(folder.path / MODEL)
                say(f"going on with {folder.path}, begun {folder.begun} (--fresh begins anew)")
            self._prepare()
            self._plan()
            self._search(folder, keep=out is not None or not self.check)
        return self.different is None

    def _file(self) -> str:
        """The data, as the user knows them."""
        return self.source.name if self.request.file is None else str(self.request.file.resolve())

    def _fingerprint(self) -> dict[str, Any]:
        """All that decides the result. Who computes it does not."""
        from shoal.runs.kinds import search_marks
        from shoal.runs.versions import value_hash, versions

        reading, options = self.request.reading, self.request.search
        deciding = reading.fingerprint().keys() | options.fingerprint().keys()
        described = self._described_data() | self._described_search()
        marks = search_marks(self.source.sha256, {k: v for k, v in described.items() if k in deciding}, versions())
        if self.earlier is not None:
            marks["repeat"] = value_hash([self.earlier["search"], self.earlier["log"]])
        return marks

    def _check_budget(self) -> None:
        """A table that takes more than half of the budget to be read: say what is possible."""
        self.budget = budget = None if self.earlier is not None else self.request.search.budget
        took = self.elapsed()
        if budget is None or took <= READING_SHARE * budget:
            return
        self.budget = max(budget, took + LEAST_SHARE * budget)
        self.advised = max(4 * took, budget)
        say(
            f"note: starting and reading took {took:.1f} s, more than half of the budget of {budget:g} s; this will "
            f"end after about {self.budget:.0f} s; --budget {self.advised:.0f} would leave enough for a search"
        )

    def _find_data(self) -> None:
        """For a repetition: the data of the earlier run must be there, unchanged."""
        from shoal.runs.versions import file_hash

        file = self.request.file
        if self.earlier is None or file is None:
            return
        remedy = f"name its place: shoal search PLACE --repeat {quoted(self.settings or '')}"
        if not file.exists():
            raise MissingFile(
                f"--repeat needs the data of the earlier run, and there is no file {file}; if it was moved, {remedy}"
            )
        if file.is_file() and file_hash(file) != self.earlier["data"]["sha256"]:
            raise UserError(
                f"--repeat needs the data of the earlier run, and {file} has changed since (another checksum); if "
                f"there is an unchanged copy, {remedy}"
            )

    def _check_effort(self) -> None:
        """For a repetition: what the earlier run went without must fit the data."""
        from shoal.search.repeating import check_effort_fits
        from shoal.search.settings import settings_file
        from shoal.search.timing import Effort

        if self.earlier is not None:
            assert self.settings is not None
            self.effort = Effort.from_dict(self.earlier["search"].get("effort", {}))
            check_effort_fits(self.effort, len(self.question.y), settings_file(self.settings))

    def _understand(self) -> None:
        """Say what the data are taken for."""
        from shoal.cli.search_rows import RowColumns
        from shoal.tables.target import find_target

        request, source = self.request, self.source
        ambiguous = source.ambiguous if self.earlier is None else ()  # then it was settled, and the name is exact
        self.rows = rows = RowColumns.of(source.table, source.target, request.reading)
        self.question = find_target(
            source.table, source.target, request.search.task, rows.drop, ambiguous, rows.kinds or None
        )
        self.schema = self.question.schema
        self.notes = [*source.described, *self.question.notes, *rows.describe()]
        say(f"{source.name}: {source.described[0]}")
        for line in self.notes[1:]:
            say(f"  {line}")
        counts, *noted = self.schema.describe()
        say(f"  columns: {counts}")
        for line in noted[:NOTES_SHOWN]:
            say(f"    {line}")
        if len(noted) > NOTES_SHOWN:
            say(f"    and {len(noted) - NOTES_SHOWN} more")
        other = "regression" if self.question.kind == "classification" else "classification"
        say(f"  target: {self.question.describe()}")
        say(f"  task: {self.question.kind} ({self.question.why}; --task {other} to change)")

    def _plan(self) -> None:
        """Say what will be done, and what it will take."""
        from shoal.cli.search_plan import Plan

        if self.earlier is not None:
            say(f"plan: the earlier run again, {self._logged():,} recipes and seeds")
            return
        self.plan = Plan.of(self.data, self.request.search, self.budget)
        for line in self.plan.words():
            say(line)

    def _search(self, folder: RunFolder, keep: bool = True) -> None:
        """Fit in another thread, so that this one hears Ctrl-C at once; then save, for good or to compare."""
        from shoal.runs.journal import writing
        from shoal.search.decisions import seconds_before
        from shoal.search.screen import SearchScreen
        from shoal.search.timing import Clock

        self.reading = self.elapsed()
        self.clock = Clock(self.budget, self.begun, computed=0.0, advised=self.advised)  # both since the process began
        budget = None if self.budget is None else self.budget - self.reading
        screen = SearchScreen(self.request.search.scoring or _default_score(self.question), budget)
        journal = folder.journal(screen.say)
        screen.begun -= seconds_before(journal)

        def told() -> None:
            if screen.latest is None:  # nothing was trained yet: there is nothing to keep
                raise KeyboardInterrupt
            self.clock.hurry()
            screen.say("ending the search, keeping the best so far (Ctrl-C again quits at once)")

        try:
            with interruptible(told) as self.stop, screen:
                estimator = self._fit(screen, folder, journal)
                if self.check and self.stop.requested:
                    raise KeyboardInterrupt
                screen.say("saving")
                folder.check()
                with writing(folder.path, what="the results"):
                    data = self._save(folder.path, estimator)
                if self.model is not None:
                    self._compare(folder.path)
                folder.finish() if keep else folder.discard()
        except KeyboardInterrupt:
            kept = f"the same command goes on with {folder.path}" if folder.has_work else "nothing was saved"
            say(f"interrupted: {kept}", error=True)
            raise SystemExit(INTERRUPTED) from None
        if keep:
            self._conclude(folder.path, estimator, data)
        if self.model is not None:
            say(self.different or f"the same: every byte of {self.model} (its timings are not compared)")

    def _compare(self, path: Path) -> None:
        from shoal.runs.kinds import MODEL
        from shoal.search.settings import first_difference

        assert self.model is not None
        name = first_difference(self.model, path / MODEL)
        if name is not None:
            self.different = f"different: {name} of the repetition is not that of {self.model}"

    def _logged(self) -> int:
        """Candidates that the run to be repeated has trained."""
        return 0 if self.earlier is None else sum(len(entry["recipes"]) for entry in self.earlier["log"])

    def _prepare(self) -> None:
        """The estimator, and the data as it takes them."""
        from shoal.cli.search_rows import say_notes
        from shoal.search.estimators import ShoalClassifier, ShoalRegressor
        from shoal.search.parameters import as_parameters

        options, question = self.request.search, self.question
        kind = ShoalClassifier if question.kind == "classification" else ShoalRegressor
        parameters = as_parameters(replace(options, recipes=options.recipes or 1))
        self.estimator = kind(**parameters, kinds=question.kinds)
        told = self.rows.arguments()
        self.data = self.estimator.training_data(question.X, question.y, question.target, self.schema, **told)
        self.notes += say_notes(self.data)

    def _fit(self, screen: SearchScreen, folder: RunFolder, journal: Journal) -> Any:
        """A fitted estimator. KeyboardInterrupt: the user ended the search before there was anything to keep."""
        from shoal.cli import background
        from shoal.errors import NothingTrained

        self.estimator.set_params(callbacks=[Watching(screen, folder, self.stop, self.plan)])

        def fit() -> Any:
            return self.estimator.fit_data(
                self.data, reading=self._reading(), clock=self.clock, earlier=self._earlier(), report=True,
                journal=journal,
            )  # fmt: skip

        try:
            return background.run(fit, screen.draw)
        except NothingTrained:
            raise KeyboardInterrupt from None

    def _earlier(self) -> Earlier | None:
        """The run to be repeated."""
        from shoal.search.result import Earlier

        if self.earlier is None:
            return None
        search, score = self.earlier["search"], self.earlier["result"]["score"]
        return Earlier(self.earlier["log"], search["repeats"], score["bootstraps"], self.effort)

    def _reading(self) -> Reading:
        """How to read new rows, wherever the model will be."""
        from shoal.tables.reading import Reading

        source = self.source
        names = tuple(source.table.names)
        return Reading(self.request.reading.missing, names, source.header, source.separator, source.quote)

    def _save(self, path: Path, estimator: Any) -> dict[str, Any]:
        import shoal
        from shoal.report import write_search_page
        from shoal.runs import kinds
        from shoal.search.report_data import Context, report_data
        from shoal.search.settings import write_settings

        context = Context(
            self.source.name, self.question.target, self.notes, self.request.search.budget, self.elapsed(),
            {"reading and planning": self.reading},
        )  # fmt: skip
        data = report_data(estimator, self.question.X, context)
        shoal.save(estimator, path / kinds.MODEL)
        estimator.result_.outcome.board.to_csv(path / kinds.BOARD)
        write_search_page(data, path / kinds.REPORT)
        write_settings(path, self._settings(estimator, data))
        return data

    def _settings(self, estimator: Any, data: dict[str, Any]) -> dict[str, Any]:
        """All from which the run can be repeated."""
        from shoal.runs.versions import versions

        result = estimator.result_
        return {
            "created": data["created"],
            "versions": versions(),
            "data": self._described_data(),
            "search": self._described_search() | {
                "seed": result.options.seed, "repeats": result.repeats, "effort": result.effort.as_dict(),
            },
            "result": {
                "ended": result.ended, "score": estimator.honest_score_.as_dict(),
                "phases": {"reading and planning": self.reading} | result.phases, "trained_on": result.trained_on,
                "skipped": data["search"]["skipped"],
            },
            "log": result.log,
        }  # fmt: skip

    def _described_data(self) -> dict[str, Any]:
        request, source = self.request, self.source
        path = None if request.file is None else str(request.file.resolve())
        return {
            "file": source.name, "path": path, "sha256": source.sha256, "demo": request.demo,
            **request.reading.as_dict(), "sep": source.separator, "header": source.header,
            "target": self.question.target, "columns": source.table.names, **self.rows.names,
        }  # fmt: skip

    def _described_search(self) -> dict[str, Any]:
        return self.request.search.as_dict() | {"task": self.question.kind}

    def _conclude(self, place: Path, estimator: Any, data: dict[str, Any]) -> None:
        """The best recipes, the honest score in words, and where everything is. The last line is the report's path."""
        from shoal.search.report_data import honest_words
        from shoal.search.screen import matter_words, top_table

        search, score = data["search"], data["score"]
        early = f", ended early by {self.stop.requested}" if search["interrupted"] else ""
        say()
        say(f"{search['recipes']:,} recipes, {search['networks']:,} networks in {search['seconds']:.1f} s{early}")
        say()
        for line in top_table(estimator.result_.outcome.board, score["metric"]):
            say(line)
        say()
        compact, model = self.request.search.compact, estimator.model_
        folds = f"{len(model.folds)} fold{'s' * (len(model.folds) > 1)}" if compact else "all folds"
        for line in honest_words(
            estimator.honest_score_, score["chance"], self.question.target, search["recipes"], folds
        ):
            say(line)
        if compact:
            say(estimator.result_.outcome.compact.describe())
        for line in matter_words(estimator.explanation_, self.question.target):
            say(line)
        if search["interrupted"] and self.earlier is None:
            say()
            say("The same command goes on to the full search.")
        self._say_skipped(search["skipped"])
        _say_files(place)

    def _show_finished(self, run: Run) -> None:
        """A run that need not be computed again: its best recipes, its honest score, and where everything is."""
        import shoal
        from shoal.runs.kinds import MODEL, SETTINGS, read_json
        from shoal.search.screen import matter_words, top_table

        estimator = shoal.load(run.path / MODEL)
        score = estimator.honest_score_
        say()
        say(f"This search was done before, begun {run.begun} (--fresh computes it anew)")
        say()
        for line in top_table(estimator.board_, score.metric):
            say(line)
        for line in ("", f"honest score: {score}", *matter_words(estimator.explanation_, self.question.target)):
            say(line)
        result = read_json(run.path / SETTINGS).get("result", {})
        self._say_skipped(result.get("skipped") or [])
        _say_files(run.path)

    def _say_skipped(self, skipped: list[dict[str, Any]]) -> None:
        from shoal.search.screen import skipped_words

        self.skipped = bool(skipped)
        for line in skipped_words(skipped):
            say(line)


def _say_files(place: Path) -> None:
    """Where everything is. The last line is the report's path."""
    from shoal.runs import kinds

    run = quoted(place)
    say()
    say(f"saved in {place}")
    say(f"  {kinds.MODEL}/           predict with: shoal predict {run} new.csv")
    say(f"                   explain with: shoal explain {run} new.csv --out why.html")
    say(f"  {kinds.BOARD}  every recipe")
    say(f"  {kinds.SETTINGS}    repeat with: shoal search --repeat {quoted(place / kinds.SETTINGS)}")
    say(f"  {kinds.REPORT}      open it in a browser:")
    say(str(place / kinds.REPORT))


def _default_score(question: LabelledTable) -> str:
    return "accuracy" if question.kind == "classification" else "R2"
