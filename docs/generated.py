"""Pages made from the code and the results of benchmarks: every command's help, every benchmark, every paper."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).parent.parent
RESULTS = CHECKOUT / "benchmarks" / "results"
PAPERS = CHECKOUT / "benchmarks" / "papers"
COMMANDS = (
    "search", "predict", "explain", "export", "runs", "runs clean", "train", "plan", "finetune", "generate", "info",
)  # fmt: skip


def write_generated_pages(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    pages = {"commands.md": commands_page(), "benchmarks.md": benchmarks_page(), **paper_pages(), **result_pages()}
    for name, text in pages.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def commands_page() -> str:
    parts = ["# Commands\n\nThe `--help` of every command of this version.\n"]
    for command in COMMANDS:
        words = [sys.executable, "-m", "shoal", *command.split(), "--help"]
        environment = {"COLUMNS": "88", "PATH": "/usr/bin:/bin", "NO_COLOR": "1", "PYTHONPATH": ":".join(sys.path)}
        done = subprocess.run(words, capture_output=True, text=True, check=True, env=environment)
        text = done.stdout.rstrip().replace("python -m shoal", "shoal")
        parts.append(f"## shoal {command}\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


def benchmarks_page() -> str:
    """A row for each target of each result: what was asked, what was measured, whether it was met."""
    parts = [
        "# Benchmarks\n",
        "Every row is one target of one benchmark. Losses are listed like wins. "
        "`python -m benchmarks NAME`, run from a checkout, measures it again. "
        "Results without a commit were made before results stored it; they name the command `shoal bench`, which is "
        "`python -m benchmarks` now.\n",
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
            parts.append(_target_row(result["name"], target))
    parts.append("\n## Where and when\n")
    parts.append("| benchmark | question | command | machine | date | load before | commit |")
    parts.append("|---|---|---|---|---|---|---|")
    for result in results:
        machine = result["machine"]
        load = (machine.get("load_average_before") or machine.get("load_average") or ["unknown"])[0]
        commit = (result.get("commit") or "")[:10]
        parts.append(
            f"| {result['name']} | {result['title']} | `{result['command']}` | {machine.get('cpu', '')}, "
            f"{machine.get('cores', '?')} cores | {machine['date'][:10]} | {load} | {commit} |"
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


def _target_row(name: str, target: dict[str, Any]) -> str:
    word = "at least" if target["at_least"] else "at most"
    measured = "not measured" if target["measured"] is None else f"{target['measured']:.4g} {target['unit']}".strip()
    met = {True: "yes", False: "**no**", None: ""}[target["met"]]
    wanted = f"{word} {target['bound']:.4g} {target['unit']}".strip()
    return f"| {name} | {target['target']} | {wanted} | {measured} | {met} |"


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
