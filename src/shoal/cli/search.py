"""`shoal search`: from a file to a model with an honest score.

Libraries are imported inside the functions, so that `shoal --help` does not wait for them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shoal.cli.parameters import RunFolderOptions, given, with_options
from shoal.console.progress import steady_output
from shoal.errors import UserError
from shoal.live.options import LiveOptions
from shoal.search.options import SearchOptions
from shoal.tables.options import RowOptions
from shoal.trackers.find import LogOptions

SEARCH_EXAMPLES = """\b
Examples:
  shoal search --demo
  shoal search houses.csv --target price --budget 300
  shoal search german.csv --no-header --target -1 --dry-run
  shoal search patients.tsv.gz --target outcome --drop name --missing unknown --recipes 200 --out first-try
  shoal search visits.csv --target sick --groups patient
  shoal search big.csv --target y --recipes 5000 --out big    (if it is killed, the same command resumes it)
  shoal search houses.csv --target price --live    (shows the search in a browser)
  shoal search --repeat first-try/settings.json --out again
  shoal search --repeat first-try --check"""


HEADINGS = {
    "Data": "target task drop kinds missing groups time weight group_repeats sep header demo",
    "Search": "budget recipes scoring strategy folds seeds epochs model seed",
    "Output": "out fresh log repeat check dry_run explain_seconds live address port",
    "Execution": "executor threads",
}


@with_options(groups=HEADINGS)
def search(
    context: typer.Context,
    file: Annotated[Path | None, typer.Argument(help="CSV, TSV (also gzipped) or Parquet file.")] = None,
    *,
    reading: RowOptions,
    options: SearchOptions,
    results: RunFolderOptions,
    page: LiveOptions,
    logs: LogOptions,
    repeat: Annotated[
        Path | None,
        typer.Option(help="Repeat an earlier run bit for bit, from its settings.json. Give FILE if the data moved."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="With --repeat: exit with 1 unless every byte of the model is the same.")
    ] = False,
    demo: Annotated[bool, typer.Option("--demo", help="Search a real data set that comes with scikit-learn.")] = False,
) -> None:
    """Find the best networks for a table, with an honest score.

    Trains many recipes at a time, ranks them by cross-validation and combines the best. The honest score is what to
    expect on new rows.
    Ctrl-C ends the search and keeps the best so far. The same command resumes it, also after a power failure.

    The results are one folder: report.html, leaderboard.csv, model/ and settings.json.
    Exit code 3 means that the search skipped recipes that no worker could train.
    """
    from shoal.cli import search_run
    from shoal.search.problem.source import Request

    steady_output()
    out, fresh = results.out, results.fresh
    request, again = Request(file, demo, reading, options), None
    if check and (repeat is None or results.dry_run):
        raise UserError("--check compares the models of two runs: shoal search --repeat shoal-runs/data-1 --check")
    if repeat is not None:
        request, again = search_run.repeated(request, repeat, given(context), check)
    source, clock = search_run.understand(search_run.complete(request), again, out, fresh)
    if results.dry_run:
        search_run.show_plan(source, again, clock)
        return
    with search_run.folder_of(source, again, out, fresh) as folder:
        if folder.found is not None:
            code = search_run.show_finished(folder.found, source)
        else:
            place = search_run.Place(folder, clock, page, logs, keep=out is not None or not check)
            code = search_run.search_in(place, source, again)
    if code:
        raise typer.Exit(code)
