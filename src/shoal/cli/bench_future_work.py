"""`shoal bench` of what the ParallelMLPs paper leaves as future work: heads, stack, landscape."""

from __future__ import annotations

from typing import Annotated

import typer

from shoal.cli.bench import Out, Quick, Repeats, app, measure


@app.command()
def heads(
    context: typer.Context,
    rows: Annotated[list[int] | None, typer.Option(min=10, help="Rows that are trained on. [1000]")] = None,
    heads: Annotated[int | None, typer.Option(min=2, help="Heads on one backbone. [16]")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Steps of the optimiser. [600]")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Seeds. [6]")] = None,
    rate: Annotated[float | None, typer.Option(help="Learning rate of backbone and heads. [0.003]")] = None,
    no_linear: Annotated[bool, typer.Option("--no-linear", help="No linear heads among the varied ones.")] = False,
    quick: Quick = False,
    out: Out = None,
) -> None:
    """Does a variety of heads regularise the backbone they share? (Fashion-MNIST, a small convolutional backbone)"""
    from shoal.bench.modules import heads as bench

    given = {"rows": rows, "heads": heads, "steps": steps, "seeds": seeds, "rate": rate, "no_linear": no_linear}
    measure(context, bench, given, quick, out)


@app.command()
def stack(
    context: typer.Context,
    copies: Annotated[int | None, typer.Option(min=1, help="Copies of the convolutional network. [8]")] = None,
    batch: Annotated[list[int] | None, typer.Option(min=1, help="Batch sizes. [16 64]")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Steps in one run. [3]")] = None,
    repeats: Repeats = None,
    quick: Quick = False,
    out: Out = None,
) -> None:
    """Modules of one architecture as one (shoal.torch.stack), against a loop over them."""
    from shoal.bench.modules import stack as bench

    given = {"copies": copies, "batches": batch, "steps": steps, "repeats": repeats}
    measure(context, bench, given, quick, out)


@app.command()
def landscape(
    context: typer.Context,
    table: Annotated[
        str | None,
        typer.Option(help="A file with a header line, or breast-cancer-wisconsin, digits, wine, iris. [digits]"),
    ] = None,
    target: Annotated[str | None, typer.Option(help="The column to predict, of a file. [the last one]")] = None,
    members: Annotated[int | None, typer.Option(min=1, help="Networks, about. [100000]")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Epochs of each. [20]")] = None,
    memory: Annotated[int | None, typer.Option(min=1, help="Megabytes that networks may occupy. [256]")] = None,
    quick: Quick = False,
    out: Out = None,
) -> None:
    """100,000 networks on one table: how the score depends on width, activation, learning rate and seed.

    Writes landscape.html beside the other results: a page to look at.
    """
    from shoal.bench.landscape import landscape as bench

    given = {"table": table, "target": target, "members": members, "epochs": epochs, "memory": memory}
    measure(context, bench, given, quick, out)
