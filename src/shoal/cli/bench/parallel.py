"""`shoal bench` of one network over many workers, and plans of that."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shoal.cli.bench.common import Out, Quick, measure


def descent(
    context: typer.Context,
    net: Annotated[list[str] | None, typer.Option(help="net-1h, net-2h. [both]")] = None,
    batch: Annotated[list[int] | None, typer.Option(min=1, help="Batch sizes. [128 256 512 1024 2048 4096]")] = None,
    rows: Annotated[int | None, typer.Option(min=16, help="Rows of 50,000 that times are measured on. [12288]")] = None,
    train_rows: Annotated[int | None, typer.Option(min=12, help="Rows trained on, hold-out included. [60000]")] = None,
    train_epochs: Annotated[int | None, typer.Option(min=1, help="Epochs of training to the end. [20]")] = None,
    repeats: Annotated[int | None, typer.Option(min=1, help="Times that everything is measured. [2]")] = None,
    quick: Quick = False,
    out: Out = None,
) -> None:
    """How much faster is gradient descent over threads, BLAS, processes and MPI, for which batch sizes? (MNIST)"""
    from shoal.bench.parallel import descent as bench

    given = {
        "nets": net, "batches": batch, "rows": rows, "train_rows": train_rows, "train_epochs": train_epochs,
        "repeats": repeats,
    }  # fmt: skip
    measure(context, bench, given, quick, out)


def pays(
    context: typer.Context,
    rows: Annotated[int | None, typer.Option(min=64, help="Rows of MNIST that ways are timed on. [6400]")] = None,
    train_rows: Annotated[int | None, typer.Option(min=64, help="Rows trained on to the end. [60000]")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Epochs on MNIST. [10]")] = None,
    schedule: Annotated[str | None, typer.Option(help="Learning rate of it: cosine, constant. [cosine]")] = None,
    repeats: Annotated[int | None, typer.Option(min=1, help="Times that everything is measured. [2]")] = None,
    quick: Quick = False,
    out: Out = None,
) -> None:
    """Does parallel work pay, for a tiny network (Iris) and for a convolutional one (MNIST)?

    A run that was stopped while it trains to the end goes on from its last epoch.
    """
    from shoal.bench.parallel import pays as bench

    given = {"rows": rows, "train_rows": train_rows, "epochs": epochs, "schedule": schedule, "repeats": repeats}
    measure(context, bench, given, quick, out, resumes=True)


def averaging(
    context: typer.Context,
    net: Annotated[list[str] | None, typer.Option(help="'1 hidden layer', '3 hidden layers', cnn. [all]")] = None,
    workers: Annotated[list[int] | None, typer.Option(min=1, help="Numbers of workers. [1 2 4 8]")] = None,
    folds: Annotated[list[int] | None, typer.Option(min=2, help="Numbers of folds. [5 10]")] = None,
    rows: Annotated[int | None, typer.Option(min=100, help="Rows that are split, a fifth to test. [12500]")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Epochs on them. [20]")] = None,
    fold_rows: Annotated[int | None, typer.Option(min=100, help="Rows for folds, a fifth to test. [6250]")] = None,
    fold_epochs: Annotated[int | None, typer.Option(min=1, help="Epochs of each fold. [8]")] = None,
    backend: Annotated[str | None, typer.Option(help="threads, processes. [threads]")] = None,
    quick: Quick = False,
    out: Out = None,
) -> None:
    """What do data split over workers, averaged weights and folds over workers save, and what do they cost?"""
    from shoal.bench.parallel import averaging as bench

    given = {
        "nets": net, "workers": workers, "folds": folds, "rows": rows, "epochs": epochs, "fold_rows": fold_rows,
        "fold_epochs": fold_epochs, "backend": backend,
    }  # fmt: skip
    measure(context, bench, given, quick, out)


def ranks(
    context: typer.Context,
    ranks: Annotated[list[int] | None, typer.Option(min=1, help="Numbers of MPI ranks. [1 2 4]")] = None,
    iterations: Annotated[int | None, typer.Option(min=1, help="Passes over the rows. [60]")] = None,
    rows: Annotated[int | None, typer.Option(min=12, help="Rows, the sixth for validation included. [60000]")] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Batch size. [256]")] = None,
    quick: Quick = False,
    out: Out = None,
) -> None:
    """How much faster than a sequential program is one over MPI ranks, and is it as accurate? (Fashion-MNIST)"""
    from shoal.bench.parallel import ranks as bench

    given = {"ranks": ranks, "iterations": iterations, "rows": rows, "batch": batch}
    measure(context, bench, given, quick, out)


def planner(
    context: typer.Context,
    net: Annotated[
        list[str] | None,
        typer.Option(
            help="mlp, wide mlp, cnn, or drawn:SEED: by chance; give it several times. [all, drawn:1, drawn:2]"
        ),
    ] = None,
    backend: Annotated[list[str] | None, typer.Option(help="threads, processes, mpi. [all]")] = None,
    workers: Annotated[list[int] | None, typer.Option(min=1, help="Numbers of workers. [1 2]")] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Times of calibrating and measuring. [2]")] = None,
    rate: Annotated[
        list[str] | None, typer.Option(help="Rates of the link between two hosts, or none; needs root. [100mbit 1gbit]")
    ] = None,
    dlmp: Annotated[Path | None, typer.Option(help="A checkout of DLMP, to run beside. [none]")] = None,
    dlmp_python: Annotated[Path | None, typer.Option(help="A Python that can run it. [none]")] = None,
    quick: Quick = False,
    out: Out = None,
) -> None:
    """Is `shoal plan` right? Its times, accuracies and verdicts against real runs, every strategy that runs here."""
    from shoal.bench.planner import validation as bench

    given = {
        "nets": net, "backends": backend, "workers": workers, "rounds": rounds, "rates": rate, "dlmp": dlmp,
        "dlmp_python": dlmp_python,
    }  # fmt: skip
    measure(context, bench, given, quick, out)


def nodes(
    context: typer.Context,
    part: Annotated[list[str] | None, typer.Option(help="text, cnn, start, curve. [all]")] = None,
    nodes: Annotated[list[int] | None, typer.Option(min=1, help="Numbers of nodes. [1 2 4 6 8]")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Seeds of each training on text. [8]")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Epochs on text, at most. [300]")] = None,
    cnn_rows: Annotated[int | None, typer.Option(min=100, help="Rows of MNIST to train on. [640]")] = None,
    cnn_epochs: Annotated[int | None, typer.Option(min=1, help="Epochs on them. [6]")] = None,
    link: Annotated[str | None, typer.Option(help="Between machines. [1gbit,0.1ms]")] = None,
    dlmp: Annotated[Path | None, typer.Option(help="A checkout of DLMP, to run beside. [none]")] = None,
    dlmp_python: Annotated[Path | None, typer.Option(help="A Python that can run it. [none]")] = None,
    quick: Quick = False,
    out: Out = None,
) -> None:
    """A paper on nodes repeated with the planner: split data, averaged weights, folds on each node, own starts."""
    from shoal.bench.planner import nodes as bench

    given = {
        "parts": part, "nodes": nodes, "seeds": seeds, "text_epochs": epochs, "cnn_rows": cnn_rows,
        "cnn_epochs": cnn_epochs, "link": link, "dlmp": dlmp, "dlmp_python": dlmp_python,
    }  # fmt: skip
    measure(context, bench, given, quick, out)
