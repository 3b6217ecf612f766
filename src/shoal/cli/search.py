"""`shoal search` and `shoal predict`: from a file to a model with an honest score, and from new rows to answers.

Libraries are imported inside the functions, so that `shoal --help` does not wait for them.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from shoal.cli.search_session import READING, SEARCHING, Request, Session

BUDGET, DEMO_BUDGET = 60.0, 20.0  # seconds

SEARCH_EXAMPLES = """Examples:

shoal search --demo

shoal search houses.csv --target price --budget 300

shoal search german.csv --no-header --target -1 --dry-run

shoal search patients.tsv.gz --target outcome --drop name --missing unknown --recipes 200 --out first-try

shoal search --repeat first-try/settings.json --out again

shoal search --repeat first-try --check"""

PREDICT_EXAMPLES = """Examples:

shoal predict shoal-runs/houses-1 new-houses.csv --out prices.csv

shoal predict shoal-runs/german-1 new.csv --proba"""

SEP = typer.Option("--sep", help="Separator: one character, or comma, tab, semicolon, bar, blanks. (default: guessed)")
HEADER = typer.Option("--header/--no-header", help="Whether the first line holds names. (default: guessed)")
MISSING = typer.Option("--missing", help="A cell that means 'not known', beside blank, NA, ? and the like; repeatable.")
SCORING = (
    "Score to rank by. For classes accuracy (default), balanced_accuracy, roc_auc, f1, f1_macro, neg_log_loss or "
    "neg_brier_score; for numbers r2 (default), neg_mean_squared_error or neg_mean_absolute_error; or another name "
    "that scikit-learn has (sklearn.metrics.get_scorer_names)."
)

NOT_REPEATED = {"repeat", "check", "out", "threads", "file", "dry_run"}  # flags that go with --repeat


def search(
    context: typer.Context,
    file: Annotated[Path | None, typer.Argument(help="CSV, TSV (also gzipped) or Parquet file.")] = None,
    target: Annotated[
        str | None, typer.Option(help="Column to predict: its name, or its number (0 is the first, -1 the last).")
    ] = None,
    task: Annotated[str | None, typer.Option(help="classification or regression. (default: guessed)")] = None,
    budget: Annotated[float | None, typer.Option(help="Seconds to use. (default: 60)", metavar="SECONDS")] = None,
    recipes: Annotated[int | None, typer.Option(help="Try so many recipes, however long it takes.")] = None,
    strategy: Annotated[str, typer.Option(help="halving, random or optuna.")] = "halving",
    folds: Annotated[int | None, typer.Option(help="Folds that rows are held out in. (default: 8, 5 or 3)")] = None,
    scoring: Annotated[str | None, typer.Option(help=SCORING)] = None,
    seeds: Annotated[int, typer.Option(help="Train the best recipes with so many seeds each.")] = 3,
    epochs: Annotated[int | None, typer.Option(help="Passes over the rows, at most. (default: by rows)")] = None,
    no_ensemble: Annotated[bool, typer.Option("--no-ensemble", help="The best single recipe is the model.")] = False,
    sep: Annotated[str | None, SEP] = None,
    header: Annotated[bool | None, HEADER] = None,
    missing: Annotated[list[str] | None, MISSING] = None,
    drop: Annotated[list[str] | None, typer.Option(help="Leave this column out; repeatable.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the results. (default: ./shoal-runs/<file>-<n>)")] = None,
    seed: Annotated[int, typer.Option(help="Seed of all that is drawn at random.")] = 0,
    threads: Annotated[int | None, typer.Option(help="Threads. (default: all cores)")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what is understood and planned, then stop.")] = False,
    repeat: Annotated[
        Path | None,
        typer.Option(help="Do an earlier run again, to the bit, from its settings.json; with FILE, if the data moved."),
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="With --repeat: say whether every byte of the model is the same, else exit with 1."
        ),
    ] = False,
    demo: Annotated[bool, typer.Option("--demo", help="Search a real data set that comes with scikit-learn.")] = False,
) -> None:
    """Find the best networks for a table, and how good they will be on new rows.

    Trains many recipes at a time, ranks them by cross-validation and combines the best.
    Ctrl-C ends the search and keeps the best so far.

    The results are one folder: report.html, leaderboard.csv, model/ and settings.json.
    """
    request = Request(
        file, demo, sep, header, tuple(missing or ()), target, tuple(drop or ()), task, budget, recipes, strategy,
        folds, scoring, seeds, epochs, not no_ensemble, seed, threads,
    )  # fmt: skip
    earlier = None
    if repeat is not None:
        request, earlier = _repeated(context, request, repeat)
        if check and dry_run:
            raise ValueError("--check compares the models of two runs, and --dry-run makes none; leave out one of them")
    elif check:
        raise ValueError("--check needs the run to be repeated: shoal search --repeat shoal-runs/data-1 --check")
    if not Session(_complete(request), earlier, repeat, check).run(out, dry_run):
        raise typer.Exit(1)


def _complete(request: Request) -> Request:
    """Defaults that depend on other flags; and what contradicts itself."""
    if request.demo:
        if request.file is not None or request.target is not None:
            raise ValueError("--demo brings its own data; leave out the file and --target, or leave out --demo")
    elif request.file is None:
        raise ValueError("give the file to search, as in 'shoal search data.csv --target price', or try --demo")
    elif request.target is None:
        raise ValueError("say which column to predict: --target with a name or a number (-1 is the last column)")
    if request.budget is not None and request.recipes is not None:
        raise ValueError("give --budget (time) or --recipes (a fixed amount of work), not both")
    if request.budget is not None and not 0 < request.budget < float("inf"):
        raise ValueError(f"--budget must be a number of seconds above zero; got {request.budget:g}")
    for name, value, least in (
        ("recipes", request.recipes, 1), ("seeds", request.seeds, 1), ("epochs", request.epochs, 1),
        ("folds", request.folds, 2), ("threads", request.threads, 1),
    ):  # fmt: skip
        if value is not None and value < least:
            raise ValueError(f"--{name} must be a whole number of at least {least}; got {value}")
    if not 0 <= request.seed < 1 << 32:
        raise ValueError(f"--seed must be from 0 to {(1 << 32) - 1}; got {request.seed}")
    if request.budget is None and request.recipes is None:
        return replace(request, budget=DEMO_BUDGET if request.demo else BUDGET)
    return request


def _repeated(context: typer.Context, request: Request, path: Path) -> tuple[Request, dict[str, Any]]:
    """The request of an earlier run, and that run."""
    from shoal.runs.versions import different_versions
    from shoal.search.repeating import check_repeatable
    from shoal.search.settings import read_settings, settings_file

    for name in context.params:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE" and name not in NOT_REPEATED:
            flag = "--" + name.replace("_", "-")
            raise ValueError(f"--repeat takes all settings from {path}; leave out {flag}")
    earlier = read_settings(path)
    check_repeatable(earlier, settings_file(path))
    data = earlier["data"]
    for change in different_versions(earlier.get("versions", {})):
        print(f"note: {change}, so the last digits may differ", file=sys.stderr)
    file = request.file or (None if data["demo"] else Path(data["path"]))
    known = {name: data[name] for name in READING} | {name: earlier["search"][name] for name in SEARCHING}
    known |= {"missing": tuple(known["missing"]), "drop": tuple(known["drop"])}
    known["target"] = None if data["demo"] else known["target"]
    return replace(request, file=file, demo=data["demo"], **known), earlier


def predict(
    model: Annotated[Path, typer.Argument(help="Folder of a run or of a saved model.")],
    file: Annotated[Path, typer.Argument(help="New rows: CSV, TSV (also gzipped) or Parquet.")],
    out: Annotated[Path | None, typer.Option(help="CSV file to write. (default: the screen)")] = None,
    proba: Annotated[bool, typer.Option("--proba", help="Also the probability of every class.")] = False,
    sep: Annotated[str | None, SEP] = None,
    header: Annotated[bool | None, HEADER] = None,
    missing: Annotated[list[str] | None, MISSING] = None,
) -> None:
    """Predict new rows with a saved model.

    The file has the columns of the training data, in any order; the target may be there and is not looked at.
    One row of answers comes out for each row, in the same order.
    """
    from shoal.search.predictions import answer, read_new_rows, write_answers
    from shoal.search.saving import load
    from shoal.search.settings import find_model

    folder, settings = find_model(model)
    estimator = load(folder)
    table = read_new_rows(file, estimator, settings, sep, header, tuple(missing or ()))
    head, rows = answer(estimator, table, proba)
    write_answers(head, rows, out, file)
