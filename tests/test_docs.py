"""Examples on pages of the docs run, top to bottom, as one script each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.__main__ import main

DOCS = Path(__file__).parent.parent / "docs"


def python_of(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)


def run(page: str) -> dict[str, object]:
    names: dict[str, object] = {}
    for block in python_of(page):
        exec(compile(block, page, "exec"), names)
    return names


@pytest.mark.usefixtures("one_thread_and_seed")
def test_the_code_of_the_page_on_heads_and_stacks_runs(capsys):
    names = run("torch.md")
    assert len(names["heads"]) == 6
    assert names["classifier"](names["torch"].zeros(2, 1, 28, 28)).shape == (2, 10)
    assert "[0, 1, 2, 3, 4, 5] torch.Size([4, 1, 3, 3])" in capsys.readouterr().out


def test_the_code_of_the_page_on_landscapes_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHOAL_THREADS", "1")
    page = (DOCS / "landscape.md").read_text(encoding="utf-8")
    command = re.findall(r"^python -m benchmarks (landscape .*--quick --out landscape)", page, re.MULTILINE)[-1]
    main(command.split())
    assert (tmp_path / "landscape" / "landscape.html").is_file()
    run("landscape.md")
    assert "'relu': " in capsys.readouterr().out


def test_the_code_of_the_page_on_dependent_rows_runs():
    honest = run("scores.md")["model"].honest_score_
    assert honest.low < 0.5 < honest.high
