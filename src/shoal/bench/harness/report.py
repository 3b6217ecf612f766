"""A benchmark's result, written four times: JSON for machines, Markdown and a plot for pages, a table on the screen."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Console

    from shoal.bench.harness.verdict import Target


@dataclass(frozen=True)
class Table:
    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        """
        >>> print(Table("T", ["a", "b"], [["1", "2"]]).markdown())
        ### T
        <BLANKLINE>
        | a | b |
        |---|---|
        | 1 | 2 |
        """
        lines = [f"### {self.title}", "", _line(self.header), "|" + "---|" * len(self.header)]
        return "\n".join(lines + [_line(row) for row in self.rows])

    def show(self, console: Console) -> None:
        from rich import box
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(title=self.title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        for k, name in enumerate(self.header):
            numbers = k > 0 and all(not row[k] or not row[k][0].isalpha() for row in self.rows)
            table.add_column(name, justify="right" if numbers else "left")
        for row in self.rows:
            table.add_row(*(Text(cell) for cell in row))
        console.print(table)


@dataclass
class Result:
    """Everything that one benchmark found."""

    name: str
    title: str
    machine: dict[str, Any]
    settings: dict[str, Any]
    data: dict[str, Any]
    tables: list[Table]
    targets: list[Target]
    notes: list[str]
    draw: Callable[[], Figure]
    command: str = ""
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name, "title": self.title, "command": self.command, "seconds_taken": round(self.seconds, 1),
            "machine": self.machine, "settings": self.settings, "notes": self.notes,
            "targets": [target.as_dict() for target in self.targets], **self.data,
        }  # fmt: skip


def write(result: Result, folder: Path) -> list[Path]:
    """`<name>.json`, `<name>.md` and `<name>.png` in the folder, which is made if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{result.name}.{ending}" for ending in ("json", "md", "png")]
    # Not-a-number is no JSON: null says the same.
    paths[0].write_text(json.dumps(_clean(result.as_dict()), indent=1, allow_nan=False) + "\n")
    paths[1].write_text(_markdown(result))
    result.draw().savefig(paths[2], dpi=130)
    return paths


def show(result: Result, console: Console) -> None:
    from shoal.bench.harness.verdict import verdict_table

    for table in [*result.tables, *([verdict_table(result.targets)] if result.targets else [])]:
        table.show(console)
    for note in result.notes:
        console.print(f"- {note}", markup=False, highlight=False)


def significant(value: float, digits: int = 3) -> str:
    """A number with so many significant digits, without an exponent.

    >>> [significant(value) for value in (0.012345, 1.5, 149.62, 12345.6)]
    ['0.0123', '1.50', '150', '12,346']
    """
    if not math.isfinite(value):
        return "not a number"
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{decimals}f}"


def default_folder() -> Path:
    """./benchmarks/results in a checkout, else ./shoal-bench."""
    return Path("benchmarks") / "results" if Path("benchmarks").is_dir() else Path("shoal-bench")


def _markdown(result: Result) -> str:
    from shoal.bench.harness.verdict import verdict_table

    machine = result.machine
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items() if number)
    where = f"{machine['cpu']}, {machine['cores']} cores, {machine['instruction_set']}; {versions}"
    tables = [*result.tables, *([verdict_table(result.targets)] if result.targets else [])]
    parts = [f"# {result.title}", f"`{result.command}`, {machine['date']}, {result.seconds:.0f} s.  \n{where}."]
    parts += [f"![{result.title}]({result.name}.png)"] + [table.markdown() for table in tables]
    parts += ["\n".join(f"- {note}" for note in result.notes)]
    return "\n\n".join(parts) + "\n"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _clean(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _clean(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value
