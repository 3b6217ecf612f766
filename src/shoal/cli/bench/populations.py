"""`shoal bench` of the engine: populations of networks, and what the paper on them leaves as future work."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Annotated

import typer

from shoal.cli.bench.common import Out, Quick, Repeats, measure
from shoal.validate import one_of


def table1(
    context: typer.Context,
    samples: Annotated[
        list[int] | None, typer.Option(min=1, help="Rows; give it several times. [100 1000 10000]")
    ] = None,
    features: Annotated[list[int] | None, typer.Option(min=1, help="Features. [5 10 50 100]")] = None,
    batch: Annotated[list[int] | None, typer.Option(min=1, help="Batch sizes. [32 128 256]")] = None,
    engine: Annotated[
        list[str] | None, typer.Option(help="native, grouped, reference, vmap, sequential. [all]")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Epochs in one run [chosen so that a run is long enough]")
    ] = None,
    repeats: Repeats = None,
    members: Annotated[int | None, typer.Option(min=10, help="Networks. [10000]")] = None,
    quick: Quick = False,
    out: Out = None,
) -> None:
    """The paper's Table 1: 10,000 networks on samples x features x batch sizes, seconds per epoch."""
    from shoal.bench.populations import table1 as bench

    given = {
        "samples": samples, "features": features, "batches": batch, "engines": engine, "epochs": epochs,
        "repeats": repeats, "members": members,
    }  # fmt: skip
    measure(context, bench, given, quick, out)


def shapes(
    context: typer.Context,
    engine: Annotated[
        list[str] | None, typer.Option(help="native, grouped, vmap, bmm, jax. [all that are installed]")
    ] = None,
    members: Annotated[int | None, typer.Option(min=2, help="Networks. [1000]")] = None,
    rows: Annotated[int | None, typer.Option(min=1, help="Rows. [1000]")] = None,
    features: Annotated[int | None, typer.Option(min=1, help="Features. [100]")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Epochs in one run. [2]")] = None,
    repeats: Repeats = None,
    quick: Quick = False,
    out: Out = None,
) -> None:
    """Networks of one shape, where stacking them is easy: against torch.func.vmap, JAX and torch.bmm by hand."""
    from shoal.bench.populations import shapes as bench

    given = {
        "engines": engine, "members": members, "rows": rows, "features": features, "epochs": epochs, "repeats": repeats,
    }  # fmt: skip
    measure(context, bench, given, quick, out)


def scaling(
    context: typer.Context,
    members: Annotated[int | None, typer.Option(min=10, help="Largest population. [10000]")] = None,
    rows: Annotated[int | None, typer.Option(min=10, help="Largest number of rows. [10000]")] = None,
    features: Annotated[int | None, typer.Option(min=10, help="Largest number of features. [800]")] = None,
    repeats: Repeats = None,
    quick: Quick = False,
    out: Out = None,
) -> None:
    """Time per epoch against threads, members, rows and features."""
    from shoal.bench.populations import scaling as bench

    given = {"members": members, "rows": rows, "features": features, "repeats": repeats}
    measure(context, bench, given, quick, out)


def kernel(
    context: typer.Context,
    isa: Annotated[
        list[str] | None, typer.Option(help="avx512, avx2, baseline, or all; give it several times. [the one in use]")
    ] = None,
    activation: Annotated[list[str] | None, typer.Option(help="Activations, each with sgd. [all]")] = None,
    optimizer: Annotated[
        list[str] | None, typer.Option(help="sgd, momentum, adam, adamw, each with relu. [all]")
    ] = None,
    members: Annotated[int | None, typer.Option(min=1, help="Networks of a shape. [32]")] = None,
    rows: Annotated[int | None, typer.Option(min=1, help="Rows. [512]")] = None,
    repeats: Repeats = None,
    quick: Quick = False,
    out: Out = None,
) -> None:
    """The compiled kernel on one thread: GFLOPS per shape, activation and optimiser, per instruction set."""
    from shoal.bench.populations import kernel as bench

    given = {
        "instruction_sets": isa, "activations": activation, "optimizers": optimizer, "members": members, "rows": rows,
        "repeats": repeats,
    }  # fmt: skip
    measure(context, bench, given, quick, out)


def limits(
    context: typer.Context,
    before: Annotated[
        Path | None, typer.Option(help="Folder of the sources of another version, with its kernel: compare.")
    ] = None,
    members: Annotated[int | None, typer.Option(min=10, help="Networks of 1 to 100 neurons. [1000]")] = None,
    rows: Annotated[int | None, typer.Option(min=10, help="Rows. [1000]")] = None,
    repeats: Repeats = None,
    quick: Quick = False,
    out: Out = None,
) -> None:
    """How close the kernel comes to the machine on all cores: few and many inputs, wide networks, prediction."""
    from shoal.bench.populations import limits as bench

    given = {"before": str(before) if before else None, "members": members, "rows": rows, "repeats": repeats}
    measure(context, bench, given, quick, out)


def mnist(
    context: typer.Context,
    sample: Annotated[
        int | None, typer.Option(min=10, help="Networks of 10,000 whose speed is measured. [200]")
    ] = None,
    rows: Annotated[int | None, typer.Option(min=64, help="Rows of 60,000 that they are measured on. [6400]")] = None,
    train_members: Annotated[int | None, typer.Option(min=1, help="Networks trained to the end. [40]")] = None,
    train_rows: Annotated[int | None, typer.Option(min=100, help="Rows they see, hold-out included. [60000]")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Epochs that they are trained for. [10]")] = None,
    repeats: Repeats = None,
    quick: Quick = False,
    out: Out = None,
) -> None:
    """MNIST: the speed of the paper's 10,000 networks, and the accuracy of a few trained to the end."""
    from shoal.bench.populations import mnist as bench

    given = {
        "sample": sample, "rows": rows, "train_members": train_members, "train_rows": train_rows, "epochs": epochs,
        "repeats": repeats,
    }  # fmt: skip
    measure(context, bench, given, quick, out)


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


def tools(
    context: typer.Context,
    tool: Annotated[str, typer.Argument(help="forest, selection, growing or lottery.")],
    table: Annotated[list[str] | None, typer.Option(help="Names of tables. [7 or 8 of them; lottery: 4]")] = None,
    quick: Quick = False,
    out: Out = None,
) -> None:
    """What forests, the selector of columns, grown networks and the lottery are worth on real tables."""
    one_of("tool", tool, ("forest", "selection", "growing", "lottery"))
    measure(context, importlib.import_module(f"shoal.bench.tools.{tool}"), {"tables": table}, quick, out)
