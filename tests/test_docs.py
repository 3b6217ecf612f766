"""README and docs: code runs and prints what the page shows, figures are those of results, links lead somewhere."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from docs.generated import benchmarks_page, commit_of, every_command, has_earlier_kernel, paper_pages, result_pages
from tests.support.docs import ROOT, blocks, cited, commands, not_printed, numbers, pages


def of(page: Path) -> str:
    return str(page.relative_to(ROOT))


PAGES = pages()
PAPERS = sorted((ROOT / "benchmarks" / "papers").glob("*/README.md"))
BESIDE = [ROOT / "CONTRIBUTING.md", *sorted((ROOT / "benchmarks").rglob("README.md"))]


@pytest.mark.parametrize("page", [page for page in PAGES if any(b.kind == "python" for b in blocks(page))], ids=of)
@pytest.mark.filterwarnings("ignore:short of time")  # on a busy machine a budget reduces more
@pytest.mark.usefixtures("one_thread_and_seed")
def test_the_python_of_a_page_runs_from_top_to_bottom(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "page"}
    printed = ""
    for block in blocks(page):
        if block.kind == "python" and block.is_run:
            with redirect_stdout(StringIO()) as screen:
                exec(compile(block.text, str(page), "exec"), names)
            printed = screen.getvalue()
        elif block.kind == "text" and printed:  # what the block above prints
            assert not not_printed(block.text.splitlines(), printed), printed
            printed = ""


@pytest.mark.parametrize("page", [page for page in PAGES if any(b.kind == "console" for b in blocks(page))], ids=of)
def test_the_commands_of_a_page_run_in_order(page, tmp_path):
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "SHOAL_THREADS": "1"}
    for block in blocks(page):
        if block.kind != "console" or not block.is_run:
            continue
        for command, shown in commands(block):
            words = ["bash", "-c", command]
            done = subprocess.run(
                words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
            )
            assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
            assert not not_printed(shown, done.stdout), f"{command} prints otherwise:\n{done.stdout}"


@pytest.mark.parametrize("page", [*PAGES, *PAPERS], ids=of)
def test_every_figure_is_that_of_its_result(page):
    figures, excused = cited(page)
    for figure in figures:
        assert figure.text == figure.measured(), f"{figure}: the result says {figure.measured()}"
    known = {figure.text for figure in figures}
    without = sorted({whole for number, whole in numbers(page) if number not in known and whole not in excused})
    assert not without, f"{of(page)} has figures without a source: {without}; add <!-- figures: ... -->"
    text = re.sub(r"<!--.*?-->", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for figure in figures:
        assert re.search(rf"(?<![\d.,]){re.escape(figure.text)}(?![\d,]|\.\d)", text), f"{figure} is not on the page"


def unmarked(page):
    """The figures of a page that were scaled or are of an earlier kernel, if no paragraph or table row says so."""
    text = re.sub(r"<!--.*?-->", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    parts = re.split(r"\n\s*\n|\n(?=\|)", text)
    for figure in cited(page)[0]:
        path = (ROOT / "benchmarks" / "results" / figure.result).with_suffix(".json")
        result = json.loads(path.read_text(encoding="utf-8"))
        target = re.match(r"targets\.(\d+)\.measured", figure.path)
        if not target and not figure.result.endswith(".md"):
            continue
        is_scaled = bool(target) and result["targets"][int(target[1])].get("scaled")
        words = {"scaled"} if is_scaled else set()
        words |= {"earlier kernel"} if has_earlier_kernel(result) else set()
        shown = re.compile(rf"(?<![\d.,]){re.escape(figure.text)}(?![\d,]|\.\d)")
        if not any(shown.search(part) and all(word in part for word in words) for part in parts):
            yield f"{figure.text} of {figure.result}: {words}"


@pytest.mark.parametrize("page", [*PAGES, *PAPERS], ids=of)
def test_figures_that_were_scaled_or_are_of_an_earlier_kernel_say_so(page):
    assert not list(unmarked(page))


@pytest.mark.parametrize("page", PAGES, ids=of)
def test_every_block_of_code_is_run_or_says_why_not(page):
    for block in blocks(page):
        assert block.kind in ("python", "console", "sh", "text", "yaml", "{toctree}", "{eval-rst}"), block.text
        assert block.kind != "sh" or not block.is_run, f"say why these are not run, or make it a console: {block.text}"
        assert block.kind != "text" or "$ " not in block.text, f"a console, not a text: {block.text}"


def test_a_figure_without_a_source_is_noticed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("It is 5 times as fast, 90% of the time, see `7 s`.\n<!-- not measured: 90% -->\n")
    figures, excused = cited(page)
    assert [whole for number, whole in numbers(page) if whole not in excused] == ["5 times"]
    assert not figures


def test_the_readme_opens_with_the_two_commands_and_is_short():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text.index("make demo") < text.index("make test") < 700
    assert len(text.splitlines()) <= 120


RESULTS = sorted((ROOT / "benchmarks" / "results").glob("*.json"))


@pytest.mark.parametrize("path", [path for path in RESULTS if path.with_suffix(".md").exists()], ids=lambda p: p.stem)
def test_every_result_says_when_where_and_by_which_code_it_was_measured(path):
    result = json.loads(path.read_text(encoding="utf-8"))
    assert result["command"]
    assert result["machine"]["date"]
    assert result["machine"]["cpu"]
    assert commit_of(result)


def test_the_page_of_benchmarks_marks_what_was_scaled_and_names_commits():
    page = benchmarks_page().replace("\N{NO-BREAK SPACE}", " ")
    assert re.search(r"native against sequential, worst cell \| at least 10 x \| ~\d+\.\d+ x † \|", page)
    assert re.search(r"native against vmap, worst case \| at least 3 x \| 2\.9\d+ x \|", page)
    assert re.search(r"commit f45ec9098d \+ changes:$", page, re.MULTILINE)
    assert re.search(r"commit in e2afb432e4:$", page, re.MULTILINE)
    met = page.count(" | yes |")
    assert f"{met} of {met + page.count(' | **no** |')} targets are met" in page


def test_the_reference_has_every_command():
    assert {"shoal", "shoal search", "shoal watch", "shoal runs", "shoal runs clean"} <= set(every_command())


def test_links_between_pages_lead_somewhere():
    generated = ROOT / "docs" / "generated"
    made = {generated / name: text for name, text in (paper_pages() | result_pages()).items()}
    made |= {generated / "commands.md": "", generated / "benchmarks.md": ""}  # they start every command: no links
    others = {page: page.read_text(encoding="utf-8") for page in (*PAGES, *BESIDE)}
    for page, text in (others | made).items():
        for target in links(text):
            path = (page.parent / target).resolve()
            assert "://" in target or path in made or path.exists(), f"{of(page)} links to {target}"


def links(text: str) -> list[str]:
    text = re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL)
    return re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text)
