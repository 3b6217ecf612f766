"""`shoal search`: from a file to a model with an honest score.

Libraries are imported inside the functions, so that `shoal --help` does not wait for them.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from shoal.cli.parameters import given, with_options
from shoal.cli.search_session import Request, Session
from shoal.errors import UserError
from shoal.executors.find import find_workers
from shoal.search.options import SearchOptions
from shoal.tables.options import RowOptions
from shoal.terminal import say

BUDGET, DEMO_BUDGET = 60.0, 20.0  # seconds
SKIPPED = 3  # exit code

SEARCH_EXAMPLES = """Examples:

shoal search --demo

shoal search houses.csv --target price --budget 300

shoal search german.csv --no-header --target -1 --dry-run

shoal search patients.tsv.gz --target outcome --drop name --missing unknown --recipes 200 --out first-try

shoal search visits.csv --target sick --groups patient

shoal search big.csv --target y --recipes 5000 --out big    (killed? the same command goes on)

shoal search --repeat first-try/settings.json --out again

shoal search --repeat first-try --check"""

NOT_REPEATED = {"repeat", "check", "out", "threads", "executor", "file", "dry_run", "fresh"}  # go with --repeat


@with_options(moved={"target": "file", "sep": "ensemble", "seed": "out"}, defaults={"recipes": None})
def search(
    context: typer.Context,
    file: Annotated[Path | None, typer.Argument(help="CSV, TSV (also gzipped) or Parquet file.")] = None,
    *,
    reading: RowOptions,
    options: SearchOptions,
    out: Annotated[Path | None, typer.Option(help="Folder for the results. (default: ./shoal-runs/<file>-<n>)")] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Begin anew, also where an earlier run could go on or is finished.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what is understood and planned, then stop.")] = False,
    repeat: Annotated[
        Path | None,
        typer.Option(help="Do an earlier run again, to the bit, from its settings.json; with FILE, if the data moved."),
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="With --repeat: say whether every byte of the model is the same, else exit with 1."
        ),
    ] = False,
    demo: Annotated[bool, typer.Option("--demo", help="Search a real data set that comes with scikit-learn.")] = False,
) -> None:
    """Find the best networks for a table, and how good they will be on new rows.

    Trains many recipes at a time, ranks them by cross-validation and combines the best.
    Ctrl-C ends the search and keeps the best so far. The same command goes on, also after the power failed.

    The results are one folder: report.html, leaderboard.csv, model/ and settings.json.
    Exit code 3: there is a result, but recipes were skipped that no worker could train.
    """
    request = Request(file, demo, reading, options)
    earlier = None
    if repeat is not None:
        request, earlier = _repeated(given(context), request, repeat)
        if check and dry_run:
            raise UserError("--check compares the models of two runs, and --dry-run makes none; leave out one of them")
    elif check:
        raise UserError("--check needs the run to be repeated: shoal search --repeat shoal-runs/data-1 --check")
    session = Session(_complete(request), earlier, repeat, check)
    if not session.run(out, dry_run, fresh):
        raise typer.Exit(1)
    if session.skipped:
        raise typer.Exit(SKIPPED)


def _complete(request: Request) -> Request:
    """Defaults that depend on other flags; and what contradicts itself."""
    options = request.search
    if request.demo:
        if request.file is not None or request.reading.target is not None:
            raise UserError("--demo brings its own data; leave out the file and --target, or leave out --demo")
    elif request.file is None:
        raise UserError("give the file to search, as in 'shoal search data.csv --target price', or try --demo")
    elif request.reading.target is None:
        raise UserError("say which column to predict: --target with a name or a number (-1 is the last column)")
    if options.executor is not None:
        find_workers(options.executor).check()
    if options.budget is not None and options.recipes is not None:
        raise UserError("give --budget (time) or --recipes (a fixed amount of work), not both")
    if options.budget is None and options.recipes is None:
        return replace(request, search=replace(options, budget=DEMO_BUDGET if request.demo else BUDGET))
    return request


def _repeated(typed: dict[str, str], request: Request, path: Path) -> tuple[Request, dict[str, Any]]:
    """The request of an earlier run, and that run; `typed`: the flags that were given."""
    from shoal.runs.versions import different_versions
    from shoal.search.repeating import repeatable
    from shoal.search.settings import read_settings, settings_file

    for name, flag in typed.items():
        if name not in NOT_REPEATED:
            raise UserError(f"--repeat takes all settings from {path}; leave out {flag}")
    earlier = read_settings(path)
    reading, options = repeatable(earlier, settings_file(path))
    for change in different_versions(earlier.get("versions", {})):
        say(f"note: {change}, so the last digits may differ", error=True)
    demo = earlier["data"]["demo"]
    file = request.file or (None if demo else Path(earlier["data"]["path"]))
    reading = replace(reading, target=None) if demo else reading
    mine = request.search  # who trains may be someone else
    return Request(file, demo, reading, replace(options, threads=mine.threads, executor=mine.executor)), earlier
