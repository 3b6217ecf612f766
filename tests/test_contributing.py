"""The examples of CONTRIBUTING.md run, and there is one for each kind of addition."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^### (.+?)\n(.*?)(?=^##)", TEXT, re.M | re.S))
PLACES = TEXT.partition("## Where things go")[2].partition("## An example of each")[0]
KINDS = re.findall(r"^\| ([a-z `.]+?) \|", PLACES, re.M)
RUN = {title: text for title, text in SECTIONS.items() if "<!-- not run: " not in text}


def test_each_kind_of_addition_has_an_example() -> None:
    kinds = [kind for kind in KINDS if kind != "a new"]
    assert len(kinds) > 10
    assert len(kinds) == len(SECTIONS), (kinds, list(SECTIONS))


@pytest.mark.parametrize("title", RUN)
def test_an_example_runs(title: str) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", RUN[title], re.S)
    assert len(block.splitlines()) <= 45
    exec(compile(block, title, "exec"), {"__name__": "example"})
