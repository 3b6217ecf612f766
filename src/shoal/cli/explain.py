"""`shoal explain`: how each column changes the prediction of a row.

Libraries are imported inside the functions, so that `shoal --help` does not wait for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from shoal.cli.parameters import with_options
from shoal.cli.predict import Net, load_predictor
from shoal.console.terminal import say
from shoal.explain.results import explain_seconds_option
from shoal.options import Options
from shoal.tables.options import ReadingOptions

EXPLAIN_EXAMPLES = """\b
Examples:
  shoal explain shoal-runs/houses-1 new-houses.csv --out why.html
  shoal explain old-model new.csv --background houses.csv"""

USUAL_SECONDS = 10.0


@dataclass(frozen=True)
class ExplainOptions(Options):
    """Options of `shoal explain`."""

    explain_seconds: float | None = explain_seconds_option("10 at most")


@with_options()
def explain(
    model: Annotated[Path, typer.Argument(help="A model folder, or the run folder that holds it.")],
    file: Annotated[Path, typer.Argument(help="Rows to explain: CSV, TSV (also gzipped) or Parquet.")],
    out: Annotated[Path, typer.Option(help="Report file to write.")] = Path("why.html"),
    background: Annotated[
        Path | None, typer.Option(help="Rows to compare with. (default: training rows kept with the model)")
    ] = None,
    net: Net = None,
    *,
    options: ExplainOptions,
    reading: ReadingOptions,
) -> None:
    """Explain predictions: how much each column contributes.

    Writes a page that shows how much each column raises or lowers the prediction of each row. The contributions of
    a row sum to its prediction minus the mean prediction (Shapley values, by sampling).
    """
    from shoal.models.predictions import check_out, read_new_rows
    from shoal.models.saving import model_folder
    from shoal.report import write_why_page
    from shoal.search.results.row_explanations import (
        ROWS_SHOWN,
        background_of,
        explain_estimator,
        restore,
        why_data,
        why_lines,
    )

    check_out(out, file)
    estimator = load_predictor(model, net)
    restore(estimator, model_folder(model))
    how = (reading.sep, reading.header, reading.missing)
    table = read_new_rows(file, estimator, *how)
    others = background_of(estimator) if background is None else read_new_rows(background, estimator, *how)
    if len(table) > ROWS_SHOWN:
        say(f"note: explaining the first {ROWS_SHOWN} of {len(table):,} rows; for others, give a file with only those")
        table = table.take(slice(0, ROWS_SHOWN))
    seconds = USUAL_SECONDS if options.explain_seconds is None else options.explain_seconds
    found = explain_estimator(estimator, table, others, seconds, exact=False, threads=None)
    data = why_data(estimator, table, found, file.name)
    write_why_page(data, out)
    for line in why_lines(data):
        say(line)
    say()
    say(f"wrote {out}")
