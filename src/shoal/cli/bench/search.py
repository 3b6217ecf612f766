"""`shoal bench` of searches, and models in use."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shoal.cli.bench.common import Out, Quick, RealTables, Repeats, measure


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
    measure(context, bench, given, quick, out, resumes=True)


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
    measure(context, bench, given, quick, out)


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
    measure(context, bench, given, quick, out)


def honest(
    context: typer.Context,
    only: RealTables = None,
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
    measure(context, bench, given, quick, out)


def small(
    context: typer.Context,
    cases: Annotated[int | None, typer.Option(min=1, help="Searches of each score and number of rows. [200]")] = None,
    recipes: Annotated[int | None, typer.Option(min=1, help="Recipes of a search. [24]")] = None,
    quick: Quick = False,
    out: Out = None,
) -> None:
    """Whether intervals hold on generated tables of 20 to 500 rows: of every score, of numbers, sets of classes."""
    from shoal.bench.search import small as bench

    measure(context, bench, {"cases": cases, "recipes": recipes}, quick, out)


def explain(
    context: typer.Context,
    seeds: Annotated[int | None, typer.Option(min=1, help="Tables with columns of noise. [40]")] = None,
    quick: Quick = False,
    out: Out = None,
) -> None:
    """Which columns matter: the time that it takes, and whether columns of noise are told from others."""
    from shoal.bench.search import explain as bench

    measure(context, bench, {"seeds": seeds}, quick, out)


def coverage(
    context: typer.Context,
    only: RealTables = None,
    splits: Annotated[int | None, typer.Option(min=1, help="Splits of each table. [2]")] = None,
    recipes: Annotated[int | None, typer.Option(min=1, help="Recipes of a search. [24]")] = None,
    quick: Quick = False,
    out: Out = None,
) -> None:
    """Whether intervals and sets hold the truth as often as asked, on rows set aside; their width beside MAPIE's."""
    from shoal.bench.search import coverage as bench

    measure(context, bench, {"only": only, "splits": splits, "recipes": recipes}, quick, out)


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
    measure(context, bench, given, quick, out)


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

    measure(context, bench, {"recipes": recipes, "rows": rows}, quick, out)


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
    measure(context, bench, given, quick, out)


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
    measure(context, bench, given, quick, out, resumes=True)
