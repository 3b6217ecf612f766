"""`shoal runs` lists runs; `shoal runs clean` deletes files needed only for resuming."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from shoal.cli.parameters import GroupedCommand
from shoal.console.terminal import say, say_data, visible
from shoal.errors import UserError
from shoal.machine import size_text
from shoal.runs.folder import RUNS
from shoal.runs.list import clean as remove
from shoal.runs.list import cleanable, list_runs

if TYPE_CHECKING:
    from shoal.files.plain_files import Removal
    from shoal.runs.list import RunSummary

LIST = "list"
RUNS_EXAMPLES = """\b
Examples:
  shoal runs
  shoal runs my-folder --json
  shoal runs clean --dry-run
  shoal runs clean --unfinished"""
LIST_EXAMPLES = """\b
Examples:
  shoal runs list
  shoal runs list my-folder --json"""
CLEAN_EXAMPLES = """\b
Examples:
  shoal runs clean --dry-run
  shoal runs clean --unfinished"""

Folders = Annotated[
    list[Path] | None, typer.Argument(help="Runs, or folders that hold some. (default: ./shoal-runs)", metavar="DIR")
]


class _ListsByDefault(TyperGroup):
    """`shoal runs DIR` is `shoal runs list DIR`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if ctx.resilient_parsing:  # a shell asks for completions: of the commands, too
            return super().parse_args(ctx, args)
        known = {*self.commands, "--help"}
        return super().parse_args(ctx, args if args and args[0] in known else [LIST, *args])


app = typer.Typer(cls=_ListsByDefault, add_completion=False, epilog=RUNS_EXAMPLES, rich_markup_mode=None)


@app.command(cls=GroupedCommand, name=LIST, epilog=LIST_EXAMPLES)
def list_them(
    folders: Folders = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List runs with their states and scores. This is the default command.

    A run is running, interrupted (the same command resumes it) or finished. Folders with damaged files are listed last.
    """
    runs = list_runs(folders or [])
    if as_json:
        say_data(json.dumps([run.as_dict() for run in runs], indent=1))
    elif not runs:
        say(f"no runs in {', '.join(map(str, folders or [Path(RUNS)]))}")
    else:
        _print_table(runs)


@app.command(cls=GroupedCommand, epilog=CLEAN_EXAMPLES)
def clean(
    folders: Folders = None,
    unfinished: Annotated[
        bool,
        typer.Option(
            "--unfinished", help="Also delete interrupted runs, which could be resumed. Never deletes a running one."
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List what would be deleted, and stop.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Delete without asking.")] = False,
) -> None:
    """Delete files needed only for resuming.

    These are the journals and checkpoints of runs with results. Lists the files and asks first. Deletes only what a
    run wrote into its own folder. Does not touch your files, symbolic links and their targets, or other file
    systems.
    """
    runs = list_runs(folders or [])
    planned = {run.path: cleanable(run, unfinished) for run in runs}
    size = sum(found.size for found in planned.values())
    for run in runs:
        _say_planned(run, planned[run.path])
    kept = sum(run.state == "interrupted" and not run.has_results for run in runs) if not unfinished else 0
    if kept:
        what = "1 run" if kept == 1 else f"{kept} runs"
        say(f"{what} could be resumed; --unfinished also deletes {'it' if kept == 1 else 'them'}")
    if not any(found.gone for found in planned.values()):
        say("there is nothing to delete")
        return
    if dry_run:
        say(f"{size_text(size)} would be freed")
        return
    if not yes:
        _ask(f"Delete these files ({size_text(size)})?")
    freed = 0
    for path, expected in planned.items():
        if expected.gone:
            found = remove(path, unfinished, say, expected)
            freed += found.size
            for file in found.stays.keys() - expected.stays.keys():
                say(f"{file} is kept: {found.stays[file]}")
    say(f"{size_text(freed)} freed")


def _say_planned(run: RunSummary, planned: Removal) -> None:
    """List what would be deleted of a run: a line for each file, and one for a folder with all that is in it."""
    if planned.gone:
        say(f"{size_text(planned.size)} of {run.path}, {_state(run)}:")
    for path, is_folder in planned.gone.items():
        if path.parent not in planned.gone:
            say(f"  delete {path}{'/' if is_folder else ''}")
    for path, reason in planned.stays.items():
        say(f"  {path} is kept: {reason}")


def _ask(question: str) -> None:
    """End the command unless the answer is yes."""
    if not sys.stdin.isatty():
        raise UserError(
            "nothing was deleted: there is no terminal to ask on. Give --yes, or --dry-run to list the files"
        )
    if input(f"{question} [y/N] ").strip().lower() not in ("y", "yes"):
        say("nothing was deleted")
        raise typer.Exit(1)


def _print_table(runs: list[RunSummary]) -> None:
    rows: list[tuple[str, ...]] = [("run", "kind", "state", "score", "begun", "size")]
    for run in runs:
        if not run.problem:
            cells = (str(run.path), run.kind, _state(run), _score(run), run.begun[:16], size_text(run.size))
            rows.append(tuple(map(visible, cells)))
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    for row in rows:
        say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    for run in runs:
        if run.problem:
            say(f"{run.path} is malformed: {run.problem}")


def _state(run: RunSummary) -> str:
    """In words: how far, and who computes it."""
    words = run.state
    if run.state in ("running", "interrupted") and run.share is not None:
        words += f" at {run.share:.0%}"
    return words if run.owner is None else f"{words}: process {run.owner.pid} on {run.owner.host}"


def _score(run: RunSummary) -> str:
    if run.score is None:
        return ""
    so_far = " so far" if not run.has_results and run.kind == "search" else ""
    return f"{run.metric} {run.score:.4g}{so_far}"
