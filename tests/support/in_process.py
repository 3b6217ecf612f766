"""A command of the command line in this process, without fixtures: for tests that draw many of them."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import typer

from shoal import cli


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str


@contextlib.contextmanager
def working_in(folder: Path) -> Iterator[None]:
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@cache
def _built() -> Any:
    """The commands as typer makes them from the functions, once: that takes longer than most of them do."""
    return typer.main.get_command(cli.app)


class Terminal(io.StringIO):
    """A stream that says that it is one."""

    def isatty(self) -> bool:
        return True


def command(
    folder: Path, *arguments: object, stdin: io.TextIOBase | None = None, stream: type[io.StringIO] = io.StringIO
) -> Said:
    """What `shoal ARGUMENTS` says when it is called in a folder."""
    streams = stream(), stream()
    before, app = (sys.argv, sys.stdin, signal.getsignal(signal.SIGTERM)), cli.app
    cli.app = _built()
    sys.argv, sys.stdin = ["shoal", *map(str, arguments)], stdin or io.StringIO()  # type: ignore[assignment]
    try:
        with working_in(folder), contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
            cli.main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0
    finally:
        sys.argv, sys.stdin = before[:2]
        cli.app = app
        signal.signal(signal.SIGTERM, before[2])
    return Said(code, streams[0].getvalue(), streams[1].getvalue())
