"""`shoal bench predict` and `shoal bench compact`: models in use."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shoal.cli.bench import Out, Quick, Repeats, measure


def predict(
    context: typer.Context,
    rows: Annotated[int | None, typer.Option(min=10, help="Rows to predict. [100000]")] = None,
    repeats: Repeats = None,
    before: Annotated[
        Path | None,
        typer.Option(help="Sources of another version of Shoal, compiled, to be measured beside this one."),
    ] = None,
    quick: Quick = False,
    out: Out = None,
) -> None:
    """What predictions take: many rows, one row, memory, and `shoal predict` from a cold start."""
    from shoal.bench.serving import predicting as bench

    given = {"rows": rows, "repeats": repeats, "before": str(before) if before else None}
    measure(context, bench, given, quick, out)


def compact(
    context: typer.Context,
    table: Annotated[list[str] | None, typer.Option(help="Tables of the folder `tables` of SHOAL_DATA. [14]")] = None,
    recipes: Annotated[int | None, typer.Option(min=1, help="Recipes of each search. [40]")] = None,
    splits: Annotated[int | None, typer.Option(min=1, help="How often rows are set aside. [1]")] = None,
    quick: Quick = False,
    out: Out = None,
) -> None:
    """What a compact model costs on rows set aside, beside the whole ensemble and one distilled network."""
    from shoal.bench.serving import compacting as bench

    measure(context, bench, {"tables": table, "recipes": recipes, "splits": splits}, quick, out)
