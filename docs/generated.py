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
    """A row for each target of each result: what was asked, what was measured, whether it was met."""
    parts = [
        "# Benchmarks\n",
        "Every row is one target of one benchmark. Losses are listed like wins. "
        "`python -m benchmarks NAME`, run from a checkout, measures it again. `~` marks what was scaled from a part, "
        "`†` what was measured with an earlier kernel.\n",
        "| benchmark | target | wanted | measured | met |",
        "|---|---|---|---|---|",
    ]
    results = [
        json.loads(path.with_suffix(".json").read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("*.md"))
    ]
    for result, path in zip(results, sorted(RESULTS.glob("*.md")), strict=True):
        result["name"] = path.stem  # two results may be of one benchmark
    for result in results:
        for target in result["targets"]:
            parts.append(_target_row(result, target))
    parts.append(
        "\n## Where and when\n\n"
        "The commit is the code that was measured. *In* names the commit that stored the result: older results did "
        "not record their code, which is that commit or a little before. Their command, `shoal bench`, is now "
        "`python -m benchmarks`.\n"
    )
    parts.append("| benchmark | question | command | machine | date | load before | commit |")
    parts.append("|---|---|---|---|---|---|---|")
    for result in results:
        machine = result["machine"]
        load = (machine.get("load_average_before") or machine.get("load_average") or ["unknown"])[0]
        parts.append(
            f"| {_link(result['name'])} | {result['title']} | `{result['command']}` | {machine.get('cpu', '')}, "
            f"{machine.get('cores', '?')} cores | {machine['date'][:10]} | {load} | {commit_of(result)} |"
        )
    names = "\n".join(f"result_{result['name']}" for result in results)
    parts.append(f"\n## Every result\n\n```{{toctree}}\n:maxdepth: 1\n\n{names}\n```")
    return "\n".join(parts) + "\n"


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


def _link(name: str) -> str:
    return f"[{name}](result_{name}.md)"


def has_earlier_kernel(result: dict[str, Any]) -> bool:
    return any(note.startswith("The kernel has changed since") for note in result["notes"])


def _target_row(result: dict[str, Any], target: dict[str, Any]) -> str:
    word = "at least" if target["at_least"] else "at most"
    scaled, earlier = "~" if target.get("scaled") else "", " †" if has_earlier_kernel(result) else ""
    measured = f"{scaled}{target['measured']:.4g} {target['unit']}".strip() if target["measured"] is not None else "-"
    met = {True: "yes", False: "**no**", None: ""}[target["met"]]
    wanted = f"{word} {target['bound']:.4g} {target['unit']}".strip()
    return f"| {_link(result['name'])} | {target['target']} | {wanted} | {measured}{earlier} | {met} |"


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
