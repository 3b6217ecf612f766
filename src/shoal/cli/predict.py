"""`shoal predict`: predictions for new rows.

Libraries are imported inside the functions, so that `shoal --help` does not wait for them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.cli.parameters import with_options
from shoal.console.terminal import say
from shoal.tables.options import ReadingOptions

if TYPE_CHECKING:
    from shoal.models.predictor import Predictor

Net = Annotated[
    str | None,
    typer.Option(
        help="file.py:make_network, for a model that `shoal train` made from a custom network.", metavar="NET"
    ),
]

PREDICT_EXAMPLES = """\b
Examples:
  shoal predict shoal-runs/houses-1 new-houses.csv --out prices.csv
  shoal predict shoal-runs/houses-1 new-houses.csv --coverage 0.9
  shoal predict shoal-runs/german-1 new.csv --proba"""


@with_options()
def predict(
    model: Annotated[Path, typer.Argument(help="A model folder, or the run folder that holds it.")],
    file: Annotated[Path, typer.Argument(help="New rows: CSV, TSV (also gzipped) or Parquet.")],
    out: Annotated[Path | None, typer.Option(help="CSV file to write. (default: the screen)")] = None,
    proba: Annotated[bool, typer.Option("--proba", help="Also write the probability of every class.")] = False,
    coverage: Annotated[
        float | None,
        typer.Option(help="Also write intervals (or class sets) with this coverage, such as 0.9."),
    ] = None,
    strange: Annotated[
        bool,
        typer.Option("--strange", help="Also write how unusual each row is compared to the training data, and why."),
    ] = False,
    safe_cells: Annotated[
        bool,
        typer.Option("--safe-cells", help="Put a ' before text that a spreadsheet would run as a formula (= + - @)."),
    ] = False,
    net: Net = None,
    *,
    reading: ReadingOptions,
) -> None:
    """Predict new rows with a saved model.

    The file must have the columns of the training data, in any order; the target column is ignored. The output has one
    line for each row, in the same order. Rows that are unlike the training data are listed on the screen.
    """
    from shoal.conformal.calibration import check_coverage
    from shoal.models.predictions import answer, note_strange, read_new_rows, write_answers

    if coverage is not None:
        check_coverage("--coverage", coverage)
    estimator = load_predictor(model, net)
    table = read_new_rows(file, estimator, reading.sep, reading.header, reading.missing)
    head, rows = answer(estimator, table, proba, coverage, strange)
    write_answers(head, rows, out, file, safe_cells)
    if out is not None:
        say(f"wrote {out}: {len(table):,} row{'s' * (len(table) != 1)}")
    note_strange(estimator, table, file)


def load_predictor(folder: Path, net: str | None) -> Predictor:
    """The model in a folder. Only one that is a network of PyTorch needs that library, and perhaps the user's code."""
    from shoal.models.predictor import Predictor

    def make_network(network: Any) -> Any:
        from shoal.parallel.saving import make_network

        return make_network(network, net)

    return Predictor.load(folder, make_network)
