"""The one door to the screen. Names and cells come from files that anybody may have written; no terminal obeys them.

`say` prints a line, `say_data` what other programs read, `console` is for bars and tables. While a command runs,
`guarded` watches over everything else that is printed, such as warnings and tracebacks.
"""

from __future__ import annotations

import re
import shlex
import sys
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from os import PathLike
from typing import Any, TextIO

SPACES_AND_JOINERS = {"Zs", "Co"}, "\u200c\u200d"  # not printable for Python, but parts of words in many languages
LINES = re.compile(r"[\n\t]")  # what text of several lines may have


def visible(text: str) -> str:
    r"""Text that is one line and moves no cursor: control characters, and signs that turn the direction, are escaped.

    >>> visible("\x1b[2J"), visible("a\nb"), visible("Größe 大きさ")
    ('\\x1b[2J', 'a\\nb', 'Größe 大きさ')
    """
    return text if text.isprintable() else "".join(map(_visible, text))


def _visible(sign: str) -> str:
    categories, joiners = SPACES_AND_JOINERS
    if sign.isprintable() or sign in joiners or unicodedata.category(sign) in categories:
        return sign
    return sign.encode("unicode_escape", "surrogatepass").decode("ascii")


def visible_lines(text: str) -> str:
    """As `visible`, for text that may have ends of lines and tabs."""
    if text.isprintable():
        return text
    return "".join(sign if LINES.match(sign) else _visible(sign) for sign in text.replace("\r\n", "\n"))


def quoted(word: str | PathLike[str]) -> str:
    r"""A word of a command that the user may paste into a shell, whatever the file is called.

    >>> print(quoted("data.csv"), quoted("$(touch X).csv"), quoted("a\x1b's"))
    data.csv '$(touch X).csv' $'a\x1b\'s'
    """
    text = str(word)
    if visible(text) == text:
        return shlex.quote(text)
    signs = (f"\\{sign}" if sign in "'\\" else _escaped(sign) for sign in text)
    return f"$'{''.join(signs)}'"


def _escaped(sign: str) -> str:
    if _visible(sign) == sign:
        return sign
    return "".join(f"\\x{byte:02x}" for byte in sign.encode("utf-8", "surrogateescape"))


def say(text: str = "", *, error: bool = False) -> None:
    """A line on the screen; for what went wrong, on the standard error."""
    print(visible(text), file=sys.stderr if error else sys.stdout, flush=True)


def say_data(text: str) -> None:
    """What another program may read: unchanged, unless it goes to a terminal."""
    stream = data_stream()
    stream.write(f"{text}\n")
    stream.flush()


def data_stream() -> Any:
    """The standard output for data: every character as it is, unless it goes to a terminal."""
    return sys.stdout if sys.stdout.isatty() else _raw(sys.stdout)


class _Guard:
    """A stream that prints no control characters but ends of lines and tabs."""

    def __init__(self, raw: TextIO) -> None:
        self.raw = raw

    def write(self, text: str) -> int:
        self.raw.write(visible_lines(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


@contextmanager
def guarded() -> Iterator[None]:
    """Whatever is printed meanwhile, by whomever in this process, has no control characters. Only `console` may."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _Guard(before[0]), _Guard(before[1])
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def _raw(stream: Any) -> Any:
    return stream.raw if isinstance(stream, _Guard) else stream


def console(*, stderr: bool = False, **named: Any) -> Any:
    """A rich console for bars and tables: it interprets no markup and no :emoji: in any text."""
    return _console_class()(file=_raw(sys.stderr if stderr else sys.stdout), **named)


@cache
def _console_class() -> Any:
    from rich.console import Console
    from rich.segment import Segment

    class PlainConsole(Console):
        def __init__(self, **named: Any) -> None:
            super().__init__(markup=False, emoji=False, highlight=False, **named)

        def render(self, *arguments: Any, **named: Any) -> Iterator[Segment]:
            for text, style, control in super().render(*arguments, **named):
                yield Segment(text if control else visible_lines(text), style, control)

    return PlainConsole
