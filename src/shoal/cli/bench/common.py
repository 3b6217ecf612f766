"""Running a benchmark: settings from flags, results on the screen and in files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal import terminal

if TYPE_CHECKING:
    from shoal.bench.harness.report import Result

Out = Annotated[
    Path | None,
    typer.Option(help="Folder for results [./benchmarks/results if ./benchmarks exists, else ./shoal-bench]"),
]
RealTables = Annotated[list[str] | None, typer.Option(help="Real tables; give it several times. [all]")]
Quick = Annotated[bool, typer.Option("--quick", help="A small part of it, for a first look.")]
Repeats = Annotated[int | None, typer.Option(min=1, help="Times that everything is measured; the best counts. [3]")]


def measure(
    context: typer.Context, bench: Any, given: dict[str, Any], quick: bool, out: Path | None, resumes: bool = False
) -> None:
    """Run a benchmark with the settings given, show and write what it found.

    `resumes`: its `run` takes the folder of results as well, and goes on from what an earlier run left there.
    """
    from shoal.bench.harness.report import default_folder, show, write

    console = terminal.console()
    if not console.is_terminal:  # a file or a pipe has no width to keep to
        console = terminal.console(width=150)
    console.rule(f"shoal bench {context.info_name}")
    chosen = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items() if value}
    settings = replace(bench.QUICK if quick else bench.Settings(), **chosen)
    folder = out or default_folder()
    result: Result = bench.run(settings, folder) if resumes else bench.run(settings)
    result.command = command_line(context)
    paths = write(result, folder)
    show(result, console)
    names = ", ".join(path.name for path in paths)
    console.print(f"{result.seconds:.0f} s; wrote {names} to {folder}", soft_wrap=True)


def command_line(context: typer.Context) -> str:
    """The command with the options that were given, but for the folder: results hold no paths of a machine."""
    words = ["shoal", "bench", str(context.info_name)]
    for name, value in context.params.items():
        if name in ("out", "dlmp", "dlmp_python", "before") or value in (None, False):
            continue
        if name == "tool":  # an argument, which comes before options
            words.insert(3, value)
            continue
        option = f"--{name.replace('_', '-')}"
        if value is True:
            words.append(option)
            continue
        for item in value if isinstance(value, (list, tuple)) else [value]:
            words += [option, str(item)]
    return " ".join(words)
