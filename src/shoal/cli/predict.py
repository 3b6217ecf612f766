"""`shoal predict`: from new rows to answers.

Libraries are imported inside the functions, so that `shoal --help` does not wait for them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shoal.cli.parameters import with_options
from shoal.tables.options import ReadingOptions

PREDICT_EXAMPLES = """Examples:

shoal predict shoal-runs/houses-1 new-houses.csv --out prices.csv

shoal predict shoal-runs/houses-1 new-houses.csv --coverage 0.9

shoal predict shoal-runs/german-1 new.csv --proba"""


@with_options()
def predict(
    model: Annotated[Path, typer.Argument(help="Folder of a run or of a saved model.")],
    file: Annotated[Path, typer.Argument(help="New rows: CSV, TSV (also gzipped) or Parquet.")],
    out: Annotated[Path | None, typer.Option(help="CSV file to write. (default: the screen)")] = None,
    proba: Annotated[bool, typer.Option("--proba", help="Also the probability of every class.")] = False,
    coverage: Annotated[
        float | None,
        typer.Option(help="Also a low and a high value, or a set of classes: the truth is inside in this share."),
    ] = None,
    strange: Annotated[
        bool, typer.Option("--strange", help="Also how unlike the training data each row is, and in which columns.")
    ] = False,
    safe_cells: Annotated[
        bool,
        typer.Option("--safe-cells", help="Put a ' before text that a spreadsheet would take for a formula (= + - @)."),
    ] = False,
    *,
    reading: ReadingOptions,
) -> None:
    """Predict new rows with a saved model.

    The file has the columns of the training data, in any order; the target may be there and is not looked at.
    One row of answers comes out for each row, in the same order. Rows unlike the training data are named on the screen.
    """
    from shoal.conformal.calibration import check_coverage
    from shoal.models.served import ServedModel
    from shoal.search.predictions import answer, note_strange, read_new_rows, write_answers
    from shoal.search.settings import find_model

    if coverage is not None:
        check_coverage("--coverage", coverage)
    folder, settings = find_model(model)
    estimator = ServedModel.load(folder)
    table = read_new_rows(file, estimator, settings, reading.sep, reading.header, reading.missing)
    head, rows = answer(estimator, table, proba, coverage, strange)
    write_answers(head, rows, out, file, safe_cells)
    note_strange(estimator, table, file)
