"""The command `shoal export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shoal.console.terminal import say
from shoal.models.export.registry import describe_exporters, find_exporter

EXPORT_EXAMPLES = """\b
Examples:
  shoal export shoal-runs/iris-1 --to onnx
  shoal export shoal-runs/iris-1/model --to torch --out iris.pt2 --data iris.csv
  shoal export shoal-runs/iris-1 --to onnx --compact"""


def export(
    model: Annotated[Path, typer.Argument(help="A model folder, or the run folder that holds it.", show_default=False)],
    to: Annotated[str, typer.Option(help=f"Format: {describe_exporters()}.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option(help="File to write. (default: next to the model folder)", show_default=False)
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Table to check the export with. (default: generated rows)", show_default=False),
    ] = None,
    compact: Annotated[
        bool,
        typer.Option("--compact", help="Use the fewest networks whose loss is within one standard error."),
    ] = False,
) -> None:
    """Export a model, with its preprocessing, to ONNX or PyTorch.

    Compares the predictions of the file with Shoal's own. The exported model takes the columns in the order of the
    training table, whose names it stores. Numbers are float64, with NaN for missing values. Categories are strings
    in ONNX, spelled as in the training file, and integers in PyTorch; the file stores which is which. Columns with
    dates or texts cannot be exported.
    """
    from shoal.models.export.writing import default_place, export_model
    from shoal.models.predictions import read_new_rows
    from shoal.models.predictor import Predictor
    from shoal.models.saving import model_folder

    find_exporter(to)
    folder = model_folder(model)
    estimator = Predictor.load(folder)
    table = read_new_rows(data, estimator) if data is not None else None
    place = out or default_place(folder, to)
    compared = export_model(estimator, to, place, table, compact)
    size = place.stat().st_size / 1e6
    few = estimator.model_.compact if compact else None
    networks = len(estimator.model_) if few is None else few.networks
    say(f"wrote {place}: {networks} network{'s' * (networks != 1)}, {size:.1f} MB")
    if few is not None:
        say(few.describe())
    say(compared.describe())
