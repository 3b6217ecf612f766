"""The command line: every command is a few library calls."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
import traceback
from typing import Annotated, NoReturn

import typer

from shoal.cli import bugs
from shoal.cli.explain import EXPLAIN_EXAMPLES, explain
from shoal.cli.export import EXPORT_EXAMPLES, export
from shoal.cli.finetune import FINETUNE_EXAMPLES, finetune
from shoal.cli.generate import GENERATE_EXAMPLES, generate
from shoal.cli.info import INFO_EXAMPLES, info
from shoal.cli.parameters import GroupedCommand
from shoal.cli.plan import PLAN_EXAMPLES, plan
from shoal.cli.predict import PREDICT_EXAMPLES, predict
from shoal.cli.runs import app as runs_app
from shoal.cli.search import SEARCH_EXAMPLES, search
from shoal.cli.train import TRAIN_EXAMPLES, train
from shoal.cli.watch import WATCH_EXAMPLES, watch
from shoal.console import early
from shoal.console.background import BackgroundThread
from shoal.console.interrupts import sigterm_is_interrupt
from shoal.console.progress import count_from_process_start
from shoal.console.terminal import guarded, say
from shoal.errors import UserError
from shoal.parallel.launch.environment import world
from shoal.version import __version__

EXAMPLES = """\b
Examples:
  shoal search --demo
  shoal search houses.csv --target price --budget 60
  shoal predict shoal-runs/houses-1 new.csv
  shoal --install-completion    (for bash, zsh and fish, from the next shell on)"""
WRONG, BUG, INTERRUPTED = 2, 70, 130  # exit codes

app = typer.Typer(
    help="Train thousands of neural networks as one.",
    epilog=EXAMPLES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"max_content_width": 120},
    rich_markup_mode=None,
)
app.command(cls=GroupedCommand, epilog=SEARCH_EXAMPLES)(search)
app.command(cls=GroupedCommand, epilog=PREDICT_EXAMPLES)(predict)
app.command(cls=GroupedCommand, epilog=EXPLAIN_EXAMPLES)(explain)
app.command(cls=GroupedCommand, epilog=EXPORT_EXAMPLES)(export)
app.command(cls=GroupedCommand, epilog=TRAIN_EXAMPLES)(train)
app.command(cls=GroupedCommand, epilog=PLAN_EXAMPLES)(plan)
app.command(cls=GroupedCommand, epilog=FINETUNE_EXAMPLES)(finetune)
app.command(cls=GroupedCommand, epilog=GENERATE_EXAMPLES)(generate)
app.command(cls=GroupedCommand, epilog=WATCH_EXAMPLES)(watch)
app.command(cls=GroupedCommand, epilog=INFO_EXAMPLES)(info)
app.add_typer(runs_app, name="runs", help="List runs, or delete files needed only for resuming.")


def _print_version(wanted: bool) -> None:
    if wanted:
        say(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Train thousands of neural networks as one."""


def main() -> None:
    """Entry point. A mistake of the user ends in one sentence and exit code 2, Ctrl-C in 130, a bug of Shoal in 70.

    A search that had to skip recipes ends in 3, one that does not repeat in 1.
    """
    early.loaded()
    if early.is_command():
        count_from_process_start()
    try:
        with sigterm_is_interrupt(), guarded():
            code = app(standalone_mode=False)
        if code == INTERRUPTED:  # typer has turned Ctrl-C into it, without a word
            raise KeyboardInterrupt
    except (KeyboardInterrupt, typer.Abort):
        say("interrupted", error=True)
        _leave(INTERRUPTED)
    except BrokenPipeError:  # somebody reads only the first lines of what we print
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (UserError, OSError, MemoryError) as error:  # the last two: a full disk, no permission, a table too large
        _fail(". ".join([str(error) or type(error).__name__, *getattr(error, "__notes__", [])]), WRONG)
    except SystemExit as error:
        if error.code:
            _leave(error.code if isinstance(error.code, int) else 1)
        if bugs.raised_by(error, "typer", "click"):  # it has answered a shell's request for completions
            sys.exit(0)
        _explain(error)  # Shoal never calls sys.exit(0): the user's code did, and that must not look like success
    except BaseException as error:  # the user's code may raise one that is no Exception
        _explain(error)
    sys.exit(code if isinstance(code, int) else 0)


def _leave(code: int) -> NoReturn:
    """Python must not shut down while the kernel trains in another thread: it would abort."""
    if any(isinstance(thread, BackgroundThread) and thread.is_alive() for thread in threading.enumerate()):
        with contextlib.suppress(OSError):  # nobody reads any more
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _explain(error: BaseException) -> NoReturn:
    """Errors of typer (an unknown flag, not a number, ...), of the user's code, and of Shoal."""
    if hasattr(error, "format_message"):  # those of typer have it
        message, code = error.format_message().rstrip("."), getattr(error, "exit_code", WRONG)
        if not message:  # no arguments: the help was printed
            sys.exit(code)
        _fail(f"{message}. Try --help", code)
    place = bugs.own_code(error)
    if place is None:
        say(f"error: {bugs.report(error)}", error=True)
        _leave(BUG)
    with guarded():
        traceback.print_exception(error)
    _fail(f"your code failed: {bugs.describe(error)} ({place})", WRONG)


def _fail(message: str, code: int) -> NoReturn:
    if world()[0] == 0:  # of many processes of torchrun or mpiexec only the first prints it
        say("error: " + re.sub(r"\s*\n\s*", " ", message.strip()), error=True)
    _leave(code)


if __name__ == "__main__":
    main()
