"""A benchmark is a function. Its keyword parameters are its options, and it returns what it found.

    @benchmark(needs=("torch",), quick={"rows": 100})
    def speed(*, rows: int = 1000, nets: tuple[str, ...] = ("mlp", "cnn")) -> Result:
        '''How fast is it?

        rows: Rows to train on.
        '''

`python -m benchmarks speed --rows 500 --nets mlp` runs it. Parameters of type int, float, str, bool, Path, Literal,
tuples of these, and the same or None become options; `quick` are the defaults with `--quick`. Other parameters have
no option. A parameter `out` gets the folder of results, for benchmarks that resume. A Path is written to no result:
those name no folder of a machine.
"""

from __future__ import annotations

import argparse
import inspect
import subprocess
import time
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.child import CHECKOUT
from benchmarks.harness.machine import describe, load_average, require
from benchmarks.harness.report import Result, show, write
from shoal.console import terminal

HIDDEN = "..."  # in place of a path
RESULTS = CHECKOUT / "benchmarks" / "results"


def _positive(kind: type) -> Callable[[str], Any]:
    def read(word: str) -> Any:
        value = kind(word)
        if not value > 0:
            raise argparse.ArgumentTypeError(f"must be positive; got {word}")
        return value

    read.__name__ = kind.__name__  # argparse names it when a word is no number
    return read


KINDS: dict[Any, Callable[[str], Any]] = {
    int: _positive(int), float: _positive(float), str: str, bool: bool, Path: Path,
}  # fmt: skip


@dataclass(frozen=True)
class Parameter:
    """A keyword parameter: its default, and its option if `kind` is known."""

    name: str
    default: Any
    kind: Callable[[str], Any] | None  # of one value
    choices: tuple[str, ...] | None
    many: bool
    help: str

    @property
    def option(self) -> str:
        return "--" + self.name.replace("_", "-")

    def add_to(self, parser: argparse.ArgumentParser) -> None:
        said = f"{self.help} [{self._default()}]".lstrip().replace("%", "%%")  # argparse fills in what follows a %
        words: dict[str, Any] = {"default": argparse.SUPPRESS, "help": said}
        if self.kind is bool:
            words["action"] = argparse.BooleanOptionalAction
        else:
            words |= {"type": self.kind, "choices": self.choices, "metavar": self.name.upper()}
        if self.many:
            words |= {"nargs": "+", "action": "extend"}
        parser.add_argument(self.option, **words)

    def _default(self) -> str:
        values = self.default if isinstance(self.default, tuple) else [self.default]
        return " ".join("none" if value is None else str(value) for value in values)

    def words(self, value: Any) -> list[str]:
        """The option as it was given."""
        if self.kind is bool:
            return [self.option if value else self.option.replace("--", "--no-", 1)]
        values = value if self.many else [value]
        return [self.option, *(HIDDEN if isinstance(one, Path) else _quoted(str(one)) for one in values)]


class Benchmark:
    """A function with its name, options and defaults. Calling it measures: `speed(quick=True, rows=50)`."""

    def __init__(self, function: Callable[..., Result], name: str, needs: Sequence[str], quick: dict[str, Any]) -> None:
        self.function, self.name, self.needs, self.quick = function, name, needs, quick
        self.takes_folder = "out" in inspect.signature(function).parameters
        self.parameters = _parameters(function)
        unknown = set(quick) - {one.name for one in self.parameters}
        if unknown:
            raise TypeError(f"quick defaults of {name} for no parameter: {', '.join(sorted(unknown))}")

    def settings(self, given: dict[str, Any], quick: bool = False) -> dict[str, Any]:
        defaults = {one.name: one.default for one in self.parameters}
        return {**defaults, **(self.quick if quick else {}), **given}

    def is_whole(self, **settings: Any) -> bool:
        """Whether these settings are the defaults: a target speaks of those."""
        defaults = self.settings({})
        return all(defaults[name] == value for name, value in settings.items())

    def __call__(self, *, quick: bool = False, out: Path = RESULTS, **given: Any) -> Result:
        require("matplotlib", *self.needs)
        settings = self.settings(given, quick)
        machine, begun = describe(), time.perf_counter()
        result = self.function(**settings, **({"out": out} if self.takes_folder else {}))
        result.seconds = time.perf_counter() - begun
        result.name, result.commit = self.name, commit()
        result.command = self.command(given, quick)
        result.machine = {**machine, **result.machine, "load_average_after": load_average()}
        result.settings = _plain({**settings, **result.settings})
        return result

    def command(self, given: dict[str, Any], quick: bool) -> str:
        known = {one.name: one for one in self.parameters}
        words = [word for name, value in given.items() for word in known[name].words(value)]
        return " ".join(["python -m benchmarks", self.name, *words, *(["--quick"] if quick else [])])

    def parser(self) -> argparse.ArgumentParser:
        parser = argparse.ArgumentParser(
            prog=f"python -m benchmarks {self.name}", description=_description(self.function),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )  # fmt: skip
        for parameter in self.parameters:
            if parameter.kind is not None:
                parameter.add_to(parser)
        parser.add_argument("--quick", action="store_true", help="Measure a small part, for a first look.")
        parser.add_argument("--out", type=Path, default=RESULTS, help="Folder of the results [benchmarks/results].")
        return parser

    def main(self, arguments: Sequence[str]) -> None:
        """Measure what a command line asks for; print and write the result."""
        given = vars(self.parser().parse_args(arguments))
        quick, out = given.pop("quick"), given.pop("out")
        for one in self.parameters:
            if one.many and one.name in given:
                given[one.name] = tuple(given[one.name])
        console = terminal.console()
        if not console.is_terminal:  # a file or a pipe has no width to keep to
            console = terminal.console(width=150)
        console.rule(f"python -m benchmarks {self.name}")
        result = self(quick=quick, out=out, **given)
        names = ", ".join(path.name for path in write(result, out))
        show(result, console)
        console.print(f"{result.seconds:.0f} s; wrote {names} to {out}", soft_wrap=True)


def benchmark(
    *, name: str = "", needs: Sequence[str] = (), quick: dict[str, Any] | None = None
) -> Callable[[Callable[..., Result]], Benchmark]:
    """Make a function a benchmark, by its own name or another; `needs` are modules besides matplotlib."""
    return lambda function: Benchmark(function, name or function.__name__, needs, quick or {})


def commit() -> str | None:
    """The commit of the checkout, "+ changes" if files differ from it; None without git."""
    try:
        words = ["git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty= + changes"]
        done = subprocess.run(words, cwd=CHECKOUT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def _parameters(function: Callable[..., Any]) -> list[Parameter]:
    hints = typing.get_type_hints(function)
    explained = _explained(function)
    found = []
    for name, parameter in inspect.signature(function).parameters.items():
        if name != "out":
            kind, choices, many = _kind(hints[name])
            found.append(Parameter(name, parameter.default, kind, choices, many, explained.get(name, "")))
    return found


def _kind(hint: Any) -> tuple[Callable[[str], Any] | None, tuple[str, ...] | None, bool]:
    """What makes a value of a word, the words allowed, and whether there are many."""
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return _kind(next(one for one in arguments if one is not type(None)))
    if typing.get_origin(hint) is tuple and len(arguments) == 2 and arguments[1] is ...:
        kind, choices, _ = _kind(arguments[0])
        return kind, choices, True
    if typing.get_origin(hint) is typing.Literal:
        return str, arguments, False
    return KINDS.get(hint), None, False


def _explained(function: Callable[..., Any]) -> dict[str, str]:
    """The lines `name: help` of a docstring."""
    names = inspect.signature(function).parameters
    lines = [line.partition(": ") for line in (inspect.getdoc(function) or "").splitlines()]
    return {name: text for name, _, text in lines if name in names}


def _description(function: Callable[..., Any]) -> str:
    """A docstring without these lines."""
    explained = _explained(function)
    lines = (inspect.getdoc(function) or "").splitlines()
    return "\n".join(line for line in lines if line.partition(": ")[0] not in explained).strip()


def _quoted(word: str) -> str:
    return f'"{word}"' if " " in word else word


def _plain(value: Any) -> Any:
    """A setting for JSON; a Path says only that there was one."""
    if isinstance(value, Path):
        return HIDDEN
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return list(map(_plain, value)) if isinstance(value, tuple) and not hasattr(value, "_fields") else value
