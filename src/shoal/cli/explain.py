"""`shoal explain`: why rows are predicted as they are.

Libraries are imported inside the functions, so that `shoal --help` does not wait for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from shoal.cli.parameters import with_options
from shoal.explain.options import explain_seconds_option
from shoal.options import Options
from shoal.tables.options import ReadingOptions
from shoal.terminal import say

EXPLAIN_EXAMPLES = """Examples:

shoal explain shoal-runs/houses-1 new-houses.csv --out why.html

shoal explain old-model new.csv --background houses.csv"""

USUAL_SECONDS = 10.0


@dataclass(frozen=True)
class ExplainOptions(Options):
    """Options of `shoal explain`."""

    explain_seconds: float | None = explain_seconds_option("10 at most")


@with_options()
def explain(
    model: Annotated[Path, typer.Argument(help="Folder of a run or of a saved model.")],
    file: Annotated[Path, typer.Argument(help="The rows: CSV, TSV (also gzipped) or Parquet.")],
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("why.html"),
    background: Annotated[
        Path | None, typer.Option(help="Rows to compare with. (default: some of the training data, from the model)")
    ] = None,
    *,
    options: ExplainOptions,
    reading: ReadingOptions,
) -> None:
    """Say why rows are predicted as they are: a page with a bar for each column of each row.

    The bars of a row sum to its prediction less the mean prediction (Shapley values, by sampling).
    """
    from shoal.report import write_why_page
    from shoal.search.predictions import check_out, read_new_rows
    from shoal.search.saving import load
    from shoal.search.settings import find_model
    from shoal.search.why import ROWS_SHOWN, why_data, why_lines

    folder, settings = find_model(model)
    check_out(out, file)
    estimator = load(folder)
    how = (reading.sep, reading.header, reading.missing)
    table = read_new_rows(file, estimator, settings, *how)
    others = None if background is None else read_new_rows(background, estimator, settings, *how)
    if len(table) > ROWS_SHOWN:
        say(f"note: the first {ROWS_SHOWN} of {len(table):,} rows are explained; give a file with those you want")
        table = table.take(slice(0, ROWS_SHOWN))
    found = estimator.explain(
        table, background=others, seconds=USUAL_SECONDS if options.explain_seconds is None else options.explain_seconds
    )
    data = why_data(estimator, table, found, file.name)
    write_why_page(data, out)
    for line in why_lines(data):
        say(line)
    say()
    say(f"wrote {out}")
