"""Tables of results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shoal.console.terminal import visible

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class ResultTable:
    """Cells in words, with a title and a header: as Markdown and on the screen."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        """
        >>> print(ResultTable("T", ["a", "b"], [["1", "2"]]).markdown())
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
        from rich.table import Table
        from rich.text import Text

        table = Table(title=self.title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        for k, name in enumerate(self.header):
            numbers = k > 0 and all(not row[k] or not row[k][0].isalpha() for row in self.rows)
            table.add_column(name, justify="right" if numbers else "left")
        for row in self.rows:
            table.add_row(*(Text(visible(cell)) for cell in row))
        console.print(table)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


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
