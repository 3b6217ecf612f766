"""The command line: every command is a few library calls."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from shoal.bench.cli import app as bench_app

app = typer.Typer(
    help="Train thousands of neural networks as one.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(bench_app, name="bench", help="Measure Shoal side by side with what you would use instead.")


def _print_version(wanted: bool) -> None:
    if wanted:
        from shoal import __version__

        print(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Train thousands of neural networks as one."""


@app.command()
def info() -> None:
    """Print version, engines, instruction set, threads and memory of this machine."""
    from rich.console import Console
    from rich.table import Table

    from shoal.machine import describe

    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, value in describe().items():
        table.add_row(f"[bold]{name}[/bold]", value)
    Console(soft_wrap=True).print(table)


def main() -> None:
    """Entry point: errors that a user can mend end in one sentence and exit code 2, Ctrl-C in exit code 130."""
    try:
        app()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    except (ValueError, TypeError, FileNotFoundError, ModuleNotFoundError, MemoryError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
