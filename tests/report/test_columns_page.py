"""What matters, effects and pairs on the page of a search; and the page that explains rows."""

from __future__ import annotations

import re

import pytest
from support.pages import CONTRAST, NASTY, STRUCTURE, Outline

from benchmarks.harness.report_data import search_data, why_data
from shoal.report import search_page, why_page


def sections(page):
    return re.findall(r'<section id="([a-z]+)"', page)


def test_what_matters_comes_first_after_the_score():
    page = search_page(search_data())
    assert sections(page)[:5] == ["score", "matters", "effects", "together", "searched"]
    assert "<strong>status</strong> matters most for predicting class." in page
    assert "Next come <em>duration</em>, <em>credit_history</em> and <em>amount</em>." in page
    assert "14 columns of 20 (faint) do not clearly help." in page
    assert ">5.0<" in page  # points of accuracy
    assert "4.4 and 5.6" in page
    assert "<em>amount</em> and <em>duration</em>: <strong>8.0 points</strong>" in page
    regression = search_page(search_data("regression"))
    assert ">0.050<" in regression
    assert "0.044 and 0.056" in regression


def test_without_an_explanation_the_page_is_as_it_was():
    assert sections(search_page({**search_data(), "explanation": None}))[:2] == ["score", "searched"]


def test_nothing_that_matters_is_said_plainly():
    data = search_data()
    found = data["explanation"]["importance"]
    found["groups"] = []
    for one in found["columns"]:
        one["low"] = -0.01
    assert "No single column clearly matters." in search_page(data)


def test_columns_that_there_was_no_time_for_are_counted():
    data = search_data()
    data["explanation"]["importance"]["left_out"] = ["a", "b"]
    assert "There was no time to measure 2 columns. Give more with --explain-seconds." in search_page(data)


def test_hostile_names_stay_names():
    data = search_data()
    data["explanation"]["importance"]["columns"][0]["columns"] = [NASTY]
    data["explanation"]["effects"][0] |= {"column": NASTY, "values": [NASTY, "b", "c"], "output": NASTY}
    data["explanation"]["pairs"][0]["columns"] = [NASTY, NASTY]
    outline = Outline()
    outline.feed(search_page(data))
    assert outline.tags.count("script") == 2
    assert "img" not in outline.tags


def test_curves_answer_to_pointer_and_keyboard_and_are_tables(visit):
    page = visit(search_data())
    figure = page.locator('figure[data-read="effect-1"]')
    slider, output = figure.locator("input"), figure.locator("output")
    assert "Effect of duration on probability of bad" in slider.get_attribute("aria-label")
    slider.focus()
    page.keyboard.press("Home")
    assert output.inner_text() == "4: 20.0% (networks between 18.0% and 24.0%)"
    page.keyboard.press("ArrowRight")
    assert output.inner_text().startswith("8: 23.0%")
    assert slider.get_attribute("aria-valuetext") == output.inner_text()
    figure.scroll_into_view_if_needed()
    box = figure.locator("svg").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.97, box["y"] + box["height"] / 2)
    assert output.inner_text().startswith("48: 53.0%")
    assert figure.locator(".cursor").get_attribute("visibility") == "visible"
    figure.locator("summary").focus()
    page.keyboard.press("Enter")
    assert figure.locator("tbody tr").count() == 12
    assert figure.locator("tbody tr").first.inner_text().split() == ["4", "20.0%", "18.0%", "and", "24.0%"]
    dates = page.locator('figure[data-read="effect-2"] output').inner_text()
    assert dates.startswith("2018-03-02: ")
    words = page.locator('figure[data-read="effect-0"] svg text').all_text_contents()
    assert {"none", "A11", "A12"} <= set(words)


def test_the_page_of_rows_has_a_bar_for_each_column():
    page = why_page(why_data())
    assert page.count('id="row-') == 3 * (2 + 2 + 2)  # sections, tables and further columns, with headings or captions
    assert "Row 1: why bad (80.0%)?" in page
    assert "On average the model predicts 30.0%; for this row <strong>80.0%</strong>." in page
    assert "<em>column 0</em> = 3.25 raises it by 20.0 points." in page
    assert "<em>column 1</em> = red lowers it by 19.0 points." in page
    assert page.count('class="importance"') == 39
    assert "3 further columns, together" in page
    assert ">missing<" in page
    numbers = why_page(why_data(share=False))
    assert "Row 1: why 0.8?" in numbers
    assert "points" not in numbers
    outline = Outline()
    data = why_data()
    data["rows"][0]["columns"][0] |= {"column": NASTY, "value": NASTY}
    outline.feed(why_page({**data, "title": NASTY, "target": NASTY}))
    assert outline.tags.count("script") == 2


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_of_rows_is_for_everyone(visit_why, scheme):
    page = visit_why(why_data(), color_scheme=scheme, viewport={"width": 360, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    assert {name: wrong for name, wrong in page.evaluate(STRUCTURE).items() if wrong} == {}
    assert [one for one in page.evaluate(CONTRAST) if one[0] < (3 if one[1] else 4.5)] == []
