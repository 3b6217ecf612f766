"""Every page on a phone and in both themes: words stay whole, and what the text says of tints is true."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from support.browser import Visit, Window, visits
from support.landscape_data import landscape_data
from support.pages import BROKEN_WORDS
from support.plan_data import plan_data

from benchmarks.engine.landscape.page import landscape_page
from benchmarks.harness.report_data import finetune_data, search_data, why_data
from shoal.report import (
    finetune_page,
    plan_page,
    search_page,
    why_page,
    write_search_page,
)

PHONE = {"viewport": {"width": 400, "height": 800}}
DEPENDS_ON_THE_THEME = r"\b(dark|light|bright|pale)(er|est)?\b|\b(grey|gray|black|white|blue|teal|orange|brown)\b"


def long_names(data: dict[str, Any]) -> dict[str, Any]:
    """Names as real tables have them, in the place of short ones."""
    text = json.dumps(data)
    for short, long in (("status", "neighbourhood"), ("duration", "size_in_square_metres"), ("A11", "Friedrichshain")):
        text = text.replace(short, long)
    return json.loads(text)


PAGES: dict[str, tuple[Callable[[Any], str], Callable[[], Any]]] = {
    "classification": (search_page, lambda: long_names(search_data("classification", 40))),
    "regression": (search_page, lambda: long_names(search_data("regression", 40))),
    "why": (why_page, lambda: long_names(why_data())),
    "plan": (plan_page, plan_data),
    "finetune": (finetune_page, finetune_data),
    "landscape": (landscape_page, landscape_data),
}


@pytest.fixture
def visit_any(window: Window, tmp_path: Any) -> Any:
    def write(page: str, path: Any) -> Any:
        path.write_text(page, encoding="utf-8")
        return path

    yield from visits(window, tmp_path / "page.html", write)


@pytest.mark.parametrize("name", PAGES)
def test_words_stay_whole_on_a_phone_and_the_page_never_scrolls_sideways(visit_any: Visit, name: str) -> None:
    make, data = PAGES[name]
    page = visit_any(make(data()), **PHONE)
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert page.evaluate(BROKEN_WORDS) == []
    assert page.evaluate("document.documentElement.scrollWidth") == 400


@pytest.mark.parametrize("name", PAGES)
def test_no_page_names_a_tint_that_depends_on_the_theme(name: str) -> None:
    make, data = PAGES[name]
    text = re.sub(r"<(style|script).*?</\1>", " ", make(data()), flags=re.DOTALL)
    text = re.sub(r"<[^>]+>", " ", text)
    assert re.findall(DEPENDS_ON_THE_THEME, text, re.IGNORECASE) == []


TINTS = """() => {
  const cells = [...document.querySelectorAll("#pair-0 tbody td")];
  const paper = getComputedStyle(document.body).backgroundColor.match(/[\\d.]+/g).map(Number);
  const over = (colour) => {
    const [r, g, b, alpha = 1] = colour.match(/[\\d.]+/g).map(Number);
    return [r, g, b].map((part, k) => part * alpha + paper[k] * (1 - alpha));
  };
  const far = (colour) => over(colour).reduce((sum, part, k) => sum + Math.abs(part - paper[k]), 0);
  return cells.map((cell) => [Number(cell.textContent), far(getComputedStyle(cell).backgroundColor)]);
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_stronger_the_tint_of_a_map_the_higher_its_cell(window: Window, tmp_path: Any, scheme: str) -> None:
    visit = visits(window, tmp_path / "report.html", write_search_page)
    page = next(visit)(search_data("regression", 20), color_scheme=scheme)
    found = sorted(page.evaluate(TINTS))
    strengths = [far for _, far in found]
    assert strengths == pytest.approx(sorted(strengths), abs=1.5)
    assert strengths[-1] > strengths[0] + 50
    assert "The stronger the tint of a cell, the higher the prediction" in page.locator("#together").inner_text()
    assert page.locator(".scale").first.inner_text().split() == ["lowest", "0", "highest", "1.2"]
