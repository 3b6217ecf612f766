"""Pages made from the code and the results of benchmarks: every command's help, every benchmark, every paper."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from shoal.cli import app

CHECKOUT = Path(__file__).parent.parent
RESULTS = CHECKOUT / "benchmarks" / "results"
PAPERS = CHECKOUT / "benchmarks" / "papers"


def write_generated_pages(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    pages = {"commands.md": commands_page(), "benchmarks.md": benchmarks_page(), **paper_pages(), **result_pages()}
    for name, text in pages.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def commands_page() -> str:
    parts = ["# Commands\n\nThe `--help` of every command of this version.\n"]
    for command in every_command():
        words = [sys.executable, "-m", "shoal", *command.split()[1:], "--help"]
        environment = {"COLUMNS": "88", "PATH": "/usr/bin:/bin", "NO_COLOR": "1", "PYTHONPATH": ":".join(sys.path)}
        done = subprocess.run(words, capture_output=True, text=True, check=True, env=environment)
        text = done.stdout.rstrip().replace("python -m shoal", "shoal")
        parts.append(f"## {command}\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


def every_command(command: Any = None, name: str = "shoal") -> Iterator[str]:
    """`shoal`, `shoal search`, and so on, also commands of commands."""
    yield name
    for word, inner in getattr(command or typer.main.get_command(app), "commands", {}).items():
        if not inner.hidden:
            yield from every_command(inner, f"{name} {word}")


def benchmarks_page() -> str:
    """A section for each result: the question, how it was measured, every target and whether it was met."""
    paths = sorted(RESULTS.glob("*.md"))
    results = {path.stem: json.loads(path.with_suffix(".json").read_text(encoding="utf-8")) for path in paths}
    judged = [target["met"] for result in results.values() for target in result["targets"] if target["met"] is not None]
    parts = [
        "# Benchmarks\n",
        f"Losses are listed like wins: {sum(judged)} of {len(judged)} targets are met. `~` marks what was scaled from "
        "a part, and `†` what was measured with an earlier kernel.\n",
        "`python -m benchmarks NAME`, run from a checkout, measures again. Older results say `shoal bench NAME`, which "
        "was the same command. The commit is the code that was measured. Older results did not record it: *in* names "
        "the commit that stored them, and their code is that commit or one a little before.\n",
        *(_section(name, result) for name, result in results.items()),
        "```{toctree}\n:hidden:\n",
        *(f"result_{name}" for name in results),
        "```",
    ]
    return "\n".join(parts) + "\n"


def _section(name: str, result: dict[str, Any]) -> str:
    machine = result["machine"]
    load = (machine.get("load_average_before") or machine.get("load_average") or ["unknown"])[0]
    measured = [machine["date"][:10], f"{machine.get('cpu', '')} with {machine.get('cores', '?')} cores"]
    measured += [f"load {load} before", *([f"commit {commit_of(result)}"] if commit_of(result) else [])]
    title = result["title"] if result["title"].endswith(("?", ")")) else f"{result['title']}."
    lines = [f"## {name}\n", f"{title} [Tables and picture](result_{name}.md)\n", f"{', '.join(measured)}:\n"]
    lines.append(f"```text\n{result['command']}\n```\n")
    if result["targets"]:
        earlier = has_earlier_kernel(result)
        rows = [_target_row(target, earlier) for target in result["targets"]]
        lines += ["| target | wanted | measured | met |", "|---|---|---|---|", *rows, ""]
    return "\n".join(lines)


def result_pages() -> dict[str, str]:
    """The page that each benchmark wrote, with the path of its picture from here."""
    pages = {}
    for path in sorted(RESULTS.glob("*.md")):
        text = re.sub(r"\]\((\w[\w-]*\.png)\)", r"](../../benchmarks/results/\1)", path.read_text(encoding="utf-8"))
        pages[f"result_{path.stem}.md"] = re.sub(r"^### ", "## ", text, flags=re.MULTILINE)
    return pages


def commit_of(result: dict[str, Any]) -> str:
    """The code that was measured, or "in" and the commit that stored the result; empty if neither is known."""
    if result.get("commit"):
        sha, changed, _ = result["commit"].partition(" + changes")
        return sha[:10] + changed
    return f"in {result['stored_in'][:10]}" if result.get("stored_in") else ""


def has_earlier_kernel(result: dict[str, Any]) -> bool:
    return any(note.startswith("The kernel has changed since") for note in result["notes"])


def _target_row(target: dict[str, Any], earlier: bool) -> str:
    word = "at least" if target["at_least"] else "at most"
    measured = "-" if target["measured"] is None else _quantity(target["measured"], target["unit"])
    marks = "~" if target.get("scaled") else "", " †" if earlier else ""
    met = {True: "yes", False: "**no**", None: ""}[target["met"]]
    wanted = f"{word} {_quantity(target['bound'], target['unit'])}"
    return f"| {target['target']} | {wanted} | {marks[0]}{measured}{marks[1]} | {met} |"


def _quantity(number: float, unit: str) -> str:
    """A number and its unit, which stay on one line.

    >>> _quantity(1.05, "x"), _quantity(93.0, "%"), _quantity(0.9108, "")
    ('1.05\xa0x', '93%', '0.9108')
    """
    return f"{number:.4g}{unit}" if unit == "%" else f"{number:.4g}\N{NO-BREAK SPACE}{unit}".strip()


def paper_pages() -> dict[str, str]:
    """The pages of the papers, with links to results and to pages of the site as they are seen from here."""
    pages = {}
    for path in sorted(PAPERS.glob("*/README.md")):
        text = re.sub(r"\]\(\.\./\.\./results/(\w[\w-]*)\.md\)", r"](result_\1.md)", path.read_text(encoding="utf-8"))
        pages[f"paper_{path.parent.name}.md"] = text.replace("](../../../docs/", "](../")
    names = "\n".join(sorted(name.removesuffix(".md") for name in pages))
    overview = (PAPERS / "README.md").read_text(encoding="utf-8")
    overview = re.sub(r"\]\((\w+)/README\.md\)", r"](paper_\1.md)", overview)
    pages["papers.md"] = f"{overview}\n\n```{{toctree}}\n:hidden:\n\n{names}\n```\n"
    return pages
