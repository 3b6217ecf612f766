"""Accessibility of the report: phones, dark mode, print, keyboard, screen readers, no JavaScript."""

from __future__ import annotations

import re

import pytest
from support.browser import dot
from support.pages import CONTRAST, STRUCTURE

from benchmarks.harness.report_data import column, search_data


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_a_phone_never_scrolls_sideways(visit, task):
    data = search_data(task)
    data["title"] = "a_very_long_file_name_without_any_break_that_goes_on_and_on_and_on.csv"
    data["data"]["table"][0]["name"] = "measurement_of_something_with_a_name_that_does_not_end" * 3
    page = visit(data, viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True)
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    wide = page.evaluate(
        """() => [...document.querySelectorAll("body *")].filter((element) => {
          const box = element.getBoundingClientRect();
          return box.right > 361 && box.width && !element.closest(".scroll, .skip, svg, caption");
        }).map((element) => element.outerHTML.slice(0, 80))"""
    )
    assert wide == []
    sizes = page.evaluate(
        """() => [...document.querySelectorAll("svg text")].map((text) =>
          parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a)"""
    )
    assert min(sizes) > 10
    page.locator(".plot").scroll_into_view_if_needed()
    place = dot(page, 0)
    page.touchscreen.tap(place["x"], place["y"])
    assert page.locator(".tip").inner_text().startswith("Recipe")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_in_both_themes(visit, scheme):
    page = visit(search_data(), color_scheme=scheme)
    page.fill("#filter", "no_such_column<1")  # the error has a colour of its own
    found = page.evaluate(CONTRAST)
    assert len(found) > 300
    assert [one for one in found if one[0] < (3 if one[1] else 4.5)] == []
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    red = int(re.findall(r"\d+", background)[0])
    assert red < 40 if scheme == "dark" else red > 240


def test_print_is_light_and_without_controls(visit):
    page = visit(search_data(rows=30), color_scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(28, 34, 38)"
    for selector in ("nav", "#board-controls", "#board-pages", ".skip", ".slider"):
        assert not page.locator(selector).first.is_visible(), selector
    page.set_viewport_size({"width": 690, "height": 980})  # A4 between its margins
    assert page.locator("#leaderboard").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == 690


@pytest.mark.parametrize("task", ["classification", "regression", "multilabel"])
def test_headings_landmarks_and_labels_for_screen_readers(visit, task):
    page = visit(search_data(task, rows=40))
    found = page.evaluate(STRUCTURE)
    assert {name: wrong for name, wrong in found.items() if wrong} == {}
    assert page.locator("html").get_attribute("lang") == "en"
    assert [page.get_by_role(role).count() for role in ("banner", "main", "contentinfo", "search")] == [1, 1, 1, 1]
    levels = page.eval_on_selector_all("h1, h2, h3", "all => all.map(one => one.tagName)")
    assert levels == ["H1", *["H2"] * (len(levels) - 1)]
    assert page.locator("#board-status").get_attribute("role") == "status"


def test_the_skip_link_comes_first_and_leads_to_the_content(visit):
    page = visit(search_data(rows=10))
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    assert page.locator(".skip").bounding_box()["y"] >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


def test_without_javascript_only_the_scatter_plot_is_missing(visit):
    data = search_data()
    page = visit(data, java_script_enabled=False)
    assert page.locator("#leaderboard tbody tr").count() == 25
    assert page.locator("#score-figure").is_visible()
    assert page.locator("#curve-0").is_visible()
    assert page.locator("#activations tbody tr").count() == len(set(column(data, "activation")))
    assert not page.locator("#board-controls").is_visible()
    assert page.locator("button").count() == 0
