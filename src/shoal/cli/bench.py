"""`shoal bench`: each command measures, prints a table, and writes JSON, Markdown and a plot."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Annotated

import typer

from shoal.cli.measuring import measure as _measure
from shoal.validate import one_of

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Measure Shoal side by side with what you would use instead."
)

Out = Annotated[
    Path | None,
    typer.Option(help="Folder for results [./benchmarks/results if ./benchmarks exists, else ./shoal-bench]"),
]
Quick = Annotated[bool, typer.Option("--quick", help="A small part of it, for a first look.")]
Repeats = Annotated[int | None, typer.Option(min=1, help="Times that everything is measured; the best counts. [3]")]


@app.command()
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
    _measure(context, bench, given, quick, out)


@app.command()
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
    _measure(context, bench, given, quick, out)


@app.command()
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
    _measure(context, bench, given, quick, out)


@app.command()
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
    _measure(context, bench, given, quick, out)


@app.command()
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
    _measure(context, bench, given, quick, out)


@app.command()
def tabular(
    context: typer.Context,
    only: Annotated[list[str] | None, typer.Option(help="Tables; give it several times. [all]")] = None,
    contender: Annotated[
        list[str] | None, typer.Option(help="shoal, mlp, forest, boosting, linear, realmlp. [all that are installed]")
    ] = None,
    seconds: Annotated[float | None, typer.Option(min=1, help="Seconds for each fit. [60]")] = None,
    folds: Annotated[int | None, typer.Option(min=2, help="Outer folds. [3]")] = None,
    first: Annotated[int | None, typer.Option(min=1, help="Measure only the first of these folds. [all]")] = None,
    again: Annotated[
        list[str] | None, typer.Option(help="Contenders to measure anew, though an earlier run has done so.")
    ] = None,
    quick: Quick = False,
    out: Out = None,
) -> None:
    """Real tables: how good the search is against random searches, forests, boosting and RealMLP in the same time.

    Takes hours. Every fit is written down when it ends, in tabular.jsonl: a run that was stopped goes on from there.
    """
    from shoal.bench.tabular import tabular as bench

    given = {"only": only, "contenders": contender, "seconds": seconds, "folds": folds, "first": first, "again": again}
    _measure(context, bench, given, quick, out, resumes=True)


@app.command()
def gridsearch(
    context: typer.Context,
    recipes: Annotated[int | None, typer.Option(min=1, help="Recipes, of a grid of 100. [100]")] = None,
    share: Annotated[
        float | None, typer.Option(help="Share of the recipes that scikit-learn is measured on, and scaled. [1]")
    ] = None,
    folds: Annotated[int | None, typer.Option(min=2, help="Folds. [10]")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Epochs of each network. [20]")] = None,
    repeats: Annotated[int | None, typer.Option(min=1, help="Times that everything is measured. [2]")] = None,
    quick: Quick = False,
    out: Out = None,
) -> None:
    """A cross-validated grid search on digits: 1,000 networks, against scikit-learn's GridSearchCV(MLPClassifier)."""
    from shoal.bench.search import gridsearch as bench

    given = {"recipes": recipes, "share": share, "folds": folds, "epochs": epochs, "repeats": repeats}
    _measure(context, bench, given, quick, out)


@app.command()
def report(
    context: typer.Context,
    members: Annotated[int | None, typer.Option(min=1, help="Members of the report. [10000]")] = None,
    repeats: Annotated[int | None, typer.Option(min=1, help="Times that everything is measured. [7]")] = None,
    quick: Quick = False,
    out: Out = None,
) -> None:
    """What one waits for besides training: `import shoal`, `shoal --help`, the report of 10,000 members."""
    from shoal.bench.search import startup as bench

    given = {"members": members, "repeats": repeats}
    _measure(context, bench, given, quick, out)


@app.command()
def honest(
    context: typer.Context,
    only: Annotated[list[str] | None, typer.Option(help="Real tables; give it several times. [all]")] = None,
    splits: Annotated[int | None, typer.Option(min=1, help="Splits of each real table. [3]")] = None,
    recipes: Annotated[int | None, typer.Option(min=1, help="Recipes of a search on one. [24]")] = None,
    rows: Annotated[int | None, typer.Option(min=200, help="Rows of generated tables to search on. [50000]")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Generated tables of each kind. [3]")] = None,
    seconds: Annotated[float | None, typer.Option(min=1, help="Seconds of a search on one. [15]")] = None,
    chance: Annotated[int | None, typer.Option(min=1, help="Searches on random labels. [20]")] = None,
    quick: Quick = False,
    out: Out = None,
) -> None:
    """Whether honest scores hold: the 95% intervals of about 230 searches against rows set aside; random labels."""
    from shoal.bench.search import honest as bench

    given = {
        "only": only, "splits": splits, "recipes": recipes, "rows": rows, "seeds": seeds, "seconds": seconds,
        "chance": chance,
    }  # fmt: skip
    _measure(context, bench, given, quick, out)


@app.command()
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
    _measure(context, bench, given, quick, out)


@app.command()
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
    _measure(context, bench, given, quick, out, resumes=True)


@app.command()
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
    _measure(context, bench, given, quick, out)


@app.command()
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
    _measure(context, bench, given, quick, out)


@app.command()
def planner(
    context: typer.Context,
    net: Annotated[list[str] | None, typer.Option(help="mlp, wide mlp, cnn; give it several times. [all]")] = None,
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
    _measure(context, bench, given, quick, out)


@app.command()
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
    _measure(context, bench, given, quick, out)


@app.command()
def budget(
    context: typer.Context,
    case: Annotated[list[str] | None, typer.Option(help="long, classes, wide, adult. [all]")] = None,
    seconds: Annotated[float | None, typer.Option(min=1, help="Budget of each command. [60 or 20]")] = None,
    quick: Quick = False,
    out: Out = None,
) -> None:
    """Is a budget a budget? `shoal search` on tables that are hard to fit into it, whole commands."""
    from shoal.bench.search import budget as bench

    given = {"cases": case, "budget": seconds}
    _measure(context, bench, given, quick, out)


@app.command()
def scale(
    context: typer.Context,
    recipes: Annotated[
        list[int] | None, typer.Option(min=10, help="Recipes; give it several times. [1000 10000 100000]")
    ] = None,
    rows: Annotated[int | None, typer.Option(min=50, help="Rows of the table. [2000]")] = None,
    quick: Quick = False,
    out: Out = None,
) -> None:
    """Searches over up to 100,000 small recipes: time per recipe, peak memory, size of the run folder."""
    from shoal.bench.search import scale as bench

    _measure(context, bench, {"recipes": recipes, "rows": rows}, quick, out)


@app.command()
def cluster(
    context: typer.Context,
    recipes: Annotated[int | None, typer.Option(min=1, help="Recipes of the search. [300]")] = None,
    rows: Annotated[int | None, typer.Option(min=100, help="Rows of the table. [2000]")] = None,
    repeats: Repeats = None,
    other: Annotated[
        str | None, typer.Option(help="A Python with another version of Shoal: its search in one process, too.")
    ] = None,
    quick: Quick = False,
    out: Out = None,
) -> None:
    """The same search in one process, with a journal, on worker processes and on Dask: time, CPU time, same bytes?"""
    from shoal.bench.search import cluster as bench

    given = {"recipes": recipes, "rows": rows, "repeats": repeats, "other": other}
    _measure(context, bench, given, quick, out)


@app.command()
def faults(
    context: typer.Context,
    kills: Annotated[
        int | None, typer.Option(min=1, help="Faults of each kind; a quarter where each takes a whole search. [20]")
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            help="search, search-local, search-dask, worker-local, worker-dask, stopped-local, stopped-dask, "
            "scheduler, mpi, journal. [all that are installed]"
        ),
    ] = None,
    recipes: Annotated[int | None, typer.Option(min=1, help="Recipes of each search. [80]")] = None,
    seed: Annotated[int | None, typer.Option(min=1, help="Of the moments. [another one each time]")] = None,
    quick: Quick = False,
    out: Out = None,
) -> None:
    """Searches, workers and schedulers killed at random moments, journals damaged: same bytes? Seconds lost?

    A run that was stopped goes on after the last kind of fault that it has finished.
    """
    from shoal.bench.faults import faults as bench

    given = {"kills": kills, "kinds": kind, "recipes": recipes, "seed": seed}
    _measure(context, bench, given, quick, out, resumes=True)


@app.command()
def tools(
    context: typer.Context,
    tool: Annotated[str, typer.Argument(help="forest, selection, growing or lottery.")],
    table: Annotated[list[str] | None, typer.Option(help="Names of tables. [7 or 8 of them; lottery: 4]")] = None,
    quick: Quick = False,
    out: Out = None,
) -> None:
    """What forests, the selector of columns, grown networks and the lottery are worth on real tables."""
    one_of("tool", tool, ("forest", "selection", "growing", "lottery"))
    _measure(context, importlib.import_module(f"shoal.bench.tools.{tool}"), {"tables": table}, quick, out)


@app.command(name="all")
def everything(context: typer.Context, repeats: Repeats = None, quick: Quick = False, out: Out = None) -> None:
    """The engine's benchmarks, one after the other: table1, shapes, scaling, mnist."""
    for command in (table1, shapes, scaling, mnist):
        context.info_name = command.__name__
        command(context, repeats=repeats, quick=quick, out=out)
