"""`shoal runs`: which runs there are, and `shoal runs clean`: away with what only going on needs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from shoal.runs.list import Listed

LIST = "list"
RUNS_EXAMPLES = """Examples:

shoal runs

shoal runs my-folder --json

shoal runs clean --dry-run

shoal runs clean --unfinished"""

Folders = Annotated[
    list[Path] | None, typer.Argument(help="Runs, or folders that hold some. (default: ./shoal-runs)", metavar="DIR")
]


class _ListsByDefault(TyperGroup):
    """`shoal runs DIR` is `shoal runs list DIR`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        known = {*self.commands, "--help"}
        return super().parse_args(ctx, args if args and args[0] in known else [LIST, *args])


app = typer.Typer(cls=_ListsByDefault, add_completion=False, epilog=RUNS_EXAMPLES)


@app.command(name=LIST)
def list_them(
    folders: Folders = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False,
) -> None:
    """List runs: running, interrupted (the same command goes on), or finished, with their scores. The default."""
    from shoal.runs.folder import RUNS
    from shoal.runs.list import list_runs

    runs = list_runs(folders or [])
    if as_json:
        print(json.dumps([run.as_dict() for run in runs], indent=1))
    elif not runs:
        print(f"no runs in {', '.join(map(str, folders or [Path(RUNS)]))}")
    else:
        _print_table(runs)


@app.command()
def clean(
    folders: Folders = None,
    unfinished: Annotated[
        bool, typer.Option("--unfinished", help="Also runs that could go on. What runs now always stays.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be removed, then stop.")] = False,
) -> None:
    """Remove what only going on needs: journals of runs with results, and what killed runs of older versions left."""
    from shoal.machine import size_text
    from shoal.runs.list import clean as remove
    from shoal.runs.list import list_runs, removable

    freed, kept = 0, 0
    for run in list_runs(folders or []):
        size = removable(run, unfinished)
        if size and not dry_run:
            size = remove(run.path, unfinished, print)
        freed += size
        if size:
            what = "" if run.has_results else "all of "
            print(f"{'would remove' if dry_run else 'removed'} {size_text(size)}: {what}{run.path}, {_state(run)}")
        elif run.state == "interrupted" and run.removable:
            kept += 1
    print(f"{size_text(freed)} {'would be' if dry_run else 'were'} freed")
    if kept:
        what = "1 run" if kept == 1 else f"{kept} runs"
        print(f"{what} could go on and stayed; --unfinished removes {'it' if kept == 1 else 'them'}, too")


def _print_table(runs: list[Listed]) -> None:
    from shoal.machine import size_text

    rows = [("run", "kind", "state", "score", "begun", "size")]
    rows += [(str(r.path), r.kind, _state(r), _score(r), r.begun[:16], size_text(r.size)) for r in runs]
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _state(run: Listed) -> str:
    """In words: how far, and who computes it."""
    words = run.state
    if run.state in ("running", "interrupted") and run.share is not None:
        words += f" at {run.share:.0%}"
    return words if run.owner is None else f"{words}: process {run.owner.pid} on {run.owner.host}"


def _score(run: Listed) -> str:
    if run.score is None:
        return ""
    so_far = " so far" if not run.has_results and run.kind == "search" else ""
    return f"{run.metric} {run.score:.4g}{so_far}"
