"""The pages of README and docs: their code blocks, and the figures that they cite from results of benchmarks."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
FENCE = re.compile(
    r"(?P<before><!-- not run: [^>]+-->\n)?^```(?P<kind>[\w{}-]*)\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL
)
FIGURE = re.compile(r"(?<![\w.-])(\d[\d,]*(?:\.\d+)?) ?(%|x\b|times\b|s\b|ms\b|GB\b|MB\b|kB\b|GFLOPS\b|points?\b)")
NUMBER = re.compile(r"-?\d[\d,.:-]*(e-?\d+)?")
TABLE_ROW = re.compile(r"\s+\S+ +[-+±\d]|\S+  +[-+±\d]")
COMMENT = re.compile(r"<!-- (figures|not measured): (.*?)-->", re.DOTALL)


def pages() -> list[Path]:
    """README and every page of the docs that is written by hand."""
    docs = ROOT / "docs"
    made = {docs / "generated", docs / "_build"}
    return [ROOT / "README.md", *(path for path in sorted(docs.rglob("*.md")) if not made & set(path.parents))]


@dataclass(frozen=True)
class Block:
    kind: str
    text: str
    is_run: bool


def blocks(page: Path) -> list[Block]:
    found = FENCE.finditer(page.read_text(encoding="utf-8"))
    return [Block(match["kind"], match["text"], match["before"] is None) for match in found]


def commands(block: Block) -> list[tuple[str, list[str]]]:
    """The commands of a console block, each with the lines that the page shows below it."""
    found: list[tuple[str, list[str]]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif line.strip():
            found[-1][1].append(line)
    return found


def not_printed(shown: list[str], printed: str) -> list[str]:
    """The first line that a page shows and a program did not print after the lines before it.

    Numbers and bars may differ. So may whole rows of tables, and `...` stands for any lines.

    >>> not_printed(["2 rows", "...", "saved in model", "  1  0.97  relu"], "3 rows\\nbest: 7\\nsaved in model")
    []
    >>> not_printed(["saved in model", "2 rows"], "3 rows\\nsaved in model")
    ['2 rows']
    """
    left = iter([_masked(line) for line in printed.splitlines()])
    for line in shown:
        if line != "..." and not TABLE_ROW.match(line) and _masked(line) not in left:
            return [line]
    return []


def _masked(line: str) -> str:
    return " ".join(NUMBER.sub("N", line.replace("#", "")).split())


@dataclass(frozen=True)
class Figure:
    """A number on a page, and the place in a result that it comes from: `gridsearch targets.0.measured*100`.

    For what a result has in its tables alone, the page and the number there: `nodes.md 67.42`.
    """

    text: str
    result: str
    path: str

    def measured(self) -> str:
        """The number in the result, with as many decimals as on the page."""
        path, _, factor = self.path.partition("*")
        if self.result.endswith(".md"):
            shown = NUMBER.finditer((RESULTS / self.result).read_text(encoding="utf-8"))
            value: Any = float(path) if path in {match[0] for match in shown} else math.nan
        else:
            value = json.loads((RESULTS / f"{self.result}.json").read_text(encoding="utf-8"))
            for key in path.split("."):
                value = value[int(key)] if isinstance(value, list) else value[key]
        decimals = len(self.text.partition(".")[2])
        return f"{value * float(factor or 1):,.{decimals}f}"


def cited(page: Path) -> tuple[list[Figure], set[str]]:
    """Figures with a source, and numbers that the page says are not measured."""
    figures, excused = [], set()
    for kind, content in COMMENT.findall(page.read_text(encoding="utf-8")):
        if kind == "figures":
            figures += [Figure(*entry.split(maxsplit=2)) for entry in map(str.strip, content.split(";")) if entry]
        else:
            excused |= {entry.strip() for entry in content.split(",")}
    return figures, excused


def numbers(page: Path) -> Iterator[tuple[str, str]]:
    """Every number with a unit outside of code, as (number, number with unit)."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    text = re.sub(r"<!--.*?-->|`[^`]*`", "", text, flags=re.DOTALL)
    for match in FIGURE.finditer(text):
        yield match[1], match[0]
