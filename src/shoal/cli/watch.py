"""`shoal watch`: the live page of any run, and its replay in one file."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Annotated

import typer

from shoal.cli.parameters import with_options
from shoal.console.terminal import quoted, say
from shoal.errors import UserError
from shoal.live.options import PageOptions
from shoal.runs.folder import RUNS
from shoal.runs.kinds import LIVE, Run, read_run

WATCH_EXAMPLES = """\b
Examples:
  shoal watch                                   (the latest run in shoal-runs)
  shoal watch shoal-runs/houses-1
  shoal watch shoal-runs/houses-1 --export replay.html"""


@with_options()
def watch(
    run: Annotated[Path | None, typer.Argument(help="Run folder. (default: the latest in ./shoal-runs)")] = None,
    *,
    page: PageOptions,
    export: Annotated[
        Path | None, typer.Option(help="Write a replay of the run to this HTML file, which needs no server, and stop.")
    ] = None,
) -> None:
    """Show a run in a browser, while it works or later.

    The run may be in any process that writes to this disk. The page shows what happened so far, then follows the
    run, and becomes the report at the end. Ctrl-C ends the page, not the run. The page's button asks the run to
    stop and keep the best.
    """
    found = _find(run)
    if export is not None:
        from shoal.live.page import write_replay

        if not (found.path / LIVE).is_file():
            raise UserError(f"{found.path} has no {LIVE}, so there is nothing to replay: watch a run of this version")
        size = write_replay(found, export).stat().st_size
        say(f"saved {quoted(export)} ({size / 1e6:.1f} MB)")
        return
    from shoal.live.watching import open_server

    server = open_server(found.path, page)
    say("Ctrl-C ends the page, not the run")
    try:
        threading.Event().wait()
    finally:
        server.close()


def _find(path: Path | None) -> Run:
    if path is None:
        from shoal.runs.list import list_runs

        runs = [run for run in list_runs([]) if not run.problem]
        if not runs:
            raise UserError(f"there is no run in {RUNS}; give the folder of one")
        path = runs[-1].path
        say(f"the latest run: {path}")
    found = read_run(path)
    if found is None:
        raise UserError(f"{path} is not the folder of a run; shoal runs lists those there are")
    return found
