"""The command line: every command is a few library calls."""

from __future__ import annotations

import os
import re
import sys
import traceback
from typing import Annotated, NoReturn

import typer

from shoal import early
from shoal.cli.bench import app as bench_app
from shoal.cli.explain import EXPLAIN_EXAMPLES, explain
from shoal.cli.export import EPILOG as EXPORT_EXAMPLES
from shoal.cli.export import export
from shoal.cli.finetune import FINETUNE_EXAMPLES, finetune
from shoal.cli.generate import GENERATE_EXAMPLES, generate
from shoal.cli.info import info
from shoal.cli.plan import PLAN_EXAMPLES, plan
from shoal.cli.predict import PREDICT_EXAMPLES, predict
from shoal.cli.runs import app as runs_app
from shoal.cli.search import SEARCH_EXAMPLES, search
from shoal.cli.train import TRAIN_EXAMPLES, train
from shoal.errors import UserError
from shoal.interrupts import sigterm_is_interrupt
from shoal.progress import count_from_process_start
from shoal.terminal import guarded, say

WRONG, BUG, INTERRUPTED = 2, 70, 130  # exit codes

app = typer.Typer(
    help="Train thousands of neural networks as one.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"max_content_width": 120},
    rich_markup_mode=None,
)
app.command(epilog=SEARCH_EXAMPLES)(search)
app.command(epilog=PREDICT_EXAMPLES)(predict)
app.command(epilog=EXPLAIN_EXAMPLES)(explain)
app.command(epilog=EXPORT_EXAMPLES)(export)
app.command(epilog=TRAIN_EXAMPLES)(train)
app.command(epilog=PLAN_EXAMPLES)(plan)
app.command(epilog=FINETUNE_EXAMPLES)(finetune)
app.command(epilog=GENERATE_EXAMPLES)(generate)
app.command()(info)
app.add_typer(runs_app, name="runs", help="List runs and how far they are; remove what only going on needs.")
app.add_typer(bench_app, name="bench", help="Measure Shoal side by side with what you would use instead.")


def _print_version(wanted: bool) -> None:
    if wanted:
        from shoal.version import __version__

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
    """Entry point. What a user can mend ends in one sentence and exit code 2, Ctrl-C in 130, a bug of ours in 70.

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
        sys.exit(INTERRUPTED)
    except BrokenPipeError:  # somebody reads only the first lines of what we print
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (UserError, OSError, MemoryError) as error:  # the last two: a full disk, no permission, a table too large
        _fail(". ".join([str(error) or type(error).__name__, *getattr(error, "__notes__", [])]), WRONG)
    except SystemExit as error:
        if error.code:
            raise
        _explain(error)  # Shoal itself never ends so: code of the user's, whose end must not look like success
    except Exception as error:
        _explain(error)
    sys.exit(code if isinstance(code, int) else 0)


def _explain(error: BaseException) -> NoReturn:
    """Errors of typer (a flag that is not there, no number, ...), of the user's own code, and of ours."""
    from shoal.cli import bugs

    if hasattr(error, "format_message"):  # those of typer have it
        message, code = error.format_message().rstrip("."), getattr(error, "exit_code", WRONG)
        if not message:  # the help was asked for, by giving nothing
            sys.exit(code)
        _fail(f"{message} (--help tells more)", code)
    place = bugs.own_code(error)
    if place is None:
        say(f"error: {bugs.report(error)}", error=True)
        sys.exit(BUG)
    with guarded():
        traceback.print_exception(error)
    _fail(f"code of your own failed: {bugs.describe(error)} ({place})", WRONG)


def _fail(message: str, code: int) -> NoReturn:
    from shoal.parallel.environment import world

    if world()[0] != 0:  # one of many processes of torchrun or mpiexec: the first one says it
        sys.exit(code)
    say("error: " + re.sub(r"\s*\n\s*", " ", message.strip()), error=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
