"""A benchmark's result, written four times: JSON for machines, Markdown and a plot for pages, a table on the screen."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Console

from benchmarks.harness.tables import ResultTable
from benchmarks.harness.verdict import Target, verdict_table
from shoal.console.terminal import visible
from shoal.files import atomic
from shoal.files.json_values import plain


@dataclass
class Result:
    """What a benchmark found. The harness fills in the fields from `name` on."""

    title: str
    data: dict[str, Any]
    tables: list[ResultTable]
    draw: Callable[[], Figure]
    targets: list[Target] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)  # that differ from the parameters, or were found out
    machine: dict[str, Any] = field(default_factory=dict)  # facts besides those of every result
    also: Callable[[Result, Path], list[Path]] | None = None  # writes more files, such as a page
    name: str = ""
    command: str = ""
    commit: str | None = None
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name, "title": self.title, "command": self.command, "commit": self.commit,
            "seconds_taken": round(self.seconds, 1), "machine": self.machine, "settings": self.settings,
            "notes": self.notes, "targets": [target.as_dict() for target in self.targets], **self.data,
        }  # fmt: skip


def write(result: Result, folder: Path) -> list[Path]:
    """`<name>.json`, `<name>.md`, `<name>.png` and what else there is in the folder, which is made if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{result.name}.{ending}" for ending in ("json", "md", "png")]
    found = plain(result.as_dict(), digits=6)
    atomic.write_text(paths[0], json.dumps(found, indent=1, allow_nan=False) + "\n")
    atomic.write_text(paths[1], _markdown(result))
    result.draw().savefig(paths[2], dpi=130)
    return [*paths, *(result.also(result, folder) if result.also else [])]


def show(result: Result, console: Console) -> None:
    for table in [*result.tables, *([verdict_table(result.targets)] if result.targets else [])]:
        table.show(console)
    for note in result.notes:
        console.print(visible(f"- {note}"))


def _markdown(result: Result) -> str:
    machine = result.machine
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items() if number)
    where = f"{machine['cpu']}, {machine['cores']} cores, {machine['instruction_set']}; {versions}"
    tables = [*result.tables, *([verdict_table(result.targets)] if result.targets else [])]
    made = f"`{result.command}`, {machine['date']}, {result.seconds:.0f} s, commit {result.commit}.  \n{where}."
    parts = [f"# {result.title}", made]
    parts += [f"![{result.title}]({result.name}.png)"] + [table.markdown() for table in tables]
    parts += ["\n".join(f"- {note}" for note in result.notes)]
    return "\n\n".join(parts) + "\n"
