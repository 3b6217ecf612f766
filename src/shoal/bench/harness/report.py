"""A benchmark's result, written four times: JSON for machines, Markdown and a plot for pages, a table on the screen."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Console

from shoal import atomic
from shoal.bench.harness.tables import ResultTable
from shoal.bench.harness.verdict import Target, verdict_table
from shoal.json_values import plain
from shoal.terminal import visible


@dataclass
class Result:
    """Everything that one benchmark found."""

    name: str
    title: str
    machine: dict[str, Any]
    settings: dict[str, Any]
    data: dict[str, Any]
    tables: list[ResultTable]
    targets: list[Target]
    notes: list[str]
    draw: Callable[[], Figure]
    command: str = ""
    seconds: float = 0.0
    also: Callable[[Result, Path], list[Path]] | None = None  # writes more files, such as a page

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name, "title": self.title, "command": self.command, "seconds_taken": round(self.seconds, 1),
            "machine": self.machine, "settings": self.settings, "notes": self.notes,
            "targets": [target.as_dict() for target in self.targets], **self.data,
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


def default_folder() -> Path:
    """./benchmarks/results in a checkout, else ./shoal-bench."""
    return Path("benchmarks") / "results" if Path("benchmarks").is_dir() else Path("shoal-bench")


def _markdown(result: Result) -> str:
    machine = result.machine
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items() if number)
    where = f"{machine['cpu']}, {machine['cores']} cores, {machine['instruction_set']}; {versions}"
    tables = [*result.tables, *([verdict_table(result.targets)] if result.targets else [])]
    parts = [f"# {result.title}", f"`{result.command}`, {machine['date']}, {result.seconds:.0f} s.  \n{where}."]
    parts += [f"![{result.title}]({result.name}.png)"] + [table.markdown() for table in tables]
    parts += ["\n".join(f"- {note}" for note in result.notes)]
    return "\n\n".join(parts) + "\n"
