"""The page of a landscape as a file and in a real browser: numbers, map, slider, table, themes, phones, no script."""

from __future__ import annotations

import copy
import re
from importlib.resources import files

import numpy as np
import pytest
from support.landscape_data import ACTIVATIONS, RATES, WIDTHS, landscape_data
from support.pages import CONTRAST, NASTY, STRUCTURE, Outline

from benchmarks.engine.landscape.page import SCRIPTS, STYLES, landscape_page, write_landscape_page
from benchmarks.engine.landscape.tints import LEVELS, Tints

PHONE = {"viewport": {"width": 400, "height": 800}, "has_touch": True, "is_mobile": True}
FORBIDDEN = {"None", "nan", "null", "undefined", "Infinity", "inf"}
DATA = landscape_data()


def words_of(page):
    return set(re.findall(r"\w+", page.locator("body").inner_text()))


# ---- as a file


def test_the_page_is_one_file_with_its_own_scripts_only(tmp_path):
    before = copy.deepcopy(DATA)
    page = landscape_page(DATA)
    outline = Outline()
    outline.feed(page)
    assert all(address.startswith(("#", "data:")) for address in outline.addresses)
    assert outline.tags.count("script") == 2
    assert before == DATA
    assert write_landscape_page(tmp_path / "page.html", DATA).read_text(encoding="utf-8") == page
    assert all(files("shoal.report").joinpath("assets", name).is_file() for name in (*SCRIPTS, *STYLES))
    assert len(page.encode()) < 200_000


def test_numbers_on_the_page_are_those_of_the_data():
    page = landscape_page(DATA)
    best = DATA["best"]
    assert f'<span class="figure">{100 * best["fresh"]:.1f}%</span>' in page
    assert f"picked by it has {100 * best['picked']:.1f}%" in page
    assert "504 networks on <em>hills</em>" in page
    assert (
        page.count("<tr>") == len(DATA["recipes"]) + 1 + 5
    )  # recipes and their head; the best of 1, 10, 100 and 504, and their head


def test_tints_rise_with_accuracy_and_every_cell_has_the_one_of_its_mean():
    tints = Tints.of([one["mean"] for one in DATA["recipes"]], DATA["table"]["picking_rows"])
    assert len(tints.starts) == LEVELS - 1
    assert list(tints.starts) == sorted(tints.starts)
    errors = 1 - np.array(tints.starts)
    np.testing.assert_allclose(errors[1:] / errors[:-1], errors[1] / errors[0])
    page = landscape_page(DATA)
    drawn = {int(cell): int(level) for level, cell in re.findall(r'class="tint t(\d+)" data-cell="(\d+)"', page)}
    assert len(drawn) == len(DATA["recipes"])
    for w in range(len(WIDTHS)):
        for a in range(len(ACTIVATIONS)):
            for r in range(len(RATES)):
                one = DATA["recipes"][(w * len(ACTIVATIONS) + a) * len(RATES) + r]
                assert drawn[(a * len(WIDTHS) + w) * len(RATES) + r] == tints.level(one["mean"])
    assert {0, LEVELS - 1} <= set(drawn.values())


# ---- in a browser


def tint(page, cell):
    return re.search(r"t(\d+)", page.locator(f'[data-cell="{cell}"]').get_attribute("class"))[1]


def cell_of(width, activation, rate):
    place = ACTIVATIONS.index(activation) * len(WIDTHS) + WIDTHS.index(width)
    return place * len(RATES) + RATES.index(rate)


def test_the_pointer_over_a_cell_shows_its_numbers(visit_landscape):
    page = visit_landscape(DATA)
    tip = page.locator(".tip")
    assert not tip.is_visible()
    page.locator(f'[data-cell="{cell_of(8, "tanh", 0.1)}"]').hover()
    one = next(x for x in DATA["recipes"] if (x["width"], x["activation"], x["rate"]) == (8, "tanh", 0.1))
    lines = tip.inner_text().split("\n")
    assert lines[0] == "8 neurons, tanh, learning rate 0.1"
    assert lines[1] == f"{100 * one['mean']:.1f}% after 5 epochs, the mean of 7 seeds"
    assert f"{100 * one['fresh']:.1f}% on fresh rows" in lines[2]
    page.locator("h1").hover()
    assert not tip.is_visible()


def test_arrow_keys_move_over_the_maps(visit_landscape):
    page = visit_landscape(DATA)
    page.locator("#maps").focus()
    said = page.locator(".tip").inner_text
    name = page.locator("#maps figcaption strong").first.inner_text()
    assert said().startswith(f"1 neuron, {name}, learning rate 0.001")
    for key in ("ArrowRight", "ArrowRight", "ArrowUp"):
        page.keyboard.press(key)
    assert said().startswith(f"4 neurons, {name}, learning rate 0.01")
    page.keyboard.press("PageDown")
    second = page.locator("#maps figcaption strong").nth(1).inner_text()
    assert said().startswith(f"4 neurons, {second}, learning rate 0.01")
    for _ in range(9):
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("PageUp")
    assert said().startswith(f"1 neuron, {name}, learning rate 0.001")
    assert page.locator(".tint.on").count() == 1
    page.keyboard.press("Escape")
    assert not page.locator(".tip").is_visible()


def test_the_slider_shows_earlier_epochs_in_the_same_tints(visit_landscape):
    page = visit_landscape(DATA)
    slider, cell = page.locator(".epochs input"), cell_of(8, "tanh", 0.01)
    one = next(x for x in DATA["recipes"] if (x["width"], x["activation"], x["rate"]) == (8, "tanh", 0.01))
    tints = Tints.of([x["mean"] for x in DATA["recipes"]], DATA["table"]["picking_rows"])
    end = tint(page, cell)
    slider.press("Home")
    assert page.locator(".epochs output").inner_text() == "after 1 of 5 epochs"
    assert slider.get_attribute("aria-valuetext") == "after 1 of 5 epochs"
    assert tint(page, cell) == str(tints.level(float(one["by_epoch"].split()[0]))) != end
    page.locator(f'[data-cell="{cell}"]').hover()
    assert "after 1 epoch, the mean" in page.locator(".tip").inner_text()
    assert "fresh" not in page.locator(".tip").inner_text()
    slider.press("End")
    assert tint(page, cell) == end
    button = page.locator(".epochs button")
    button.click()
    assert button.inner_text() == "Stop"
    page.locator(".epochs button", has_text="Play").wait_for()
    assert page.locator(".epochs output").inner_text() == "after 5 of 5 epochs"


def test_the_table_sorts_by_number(visit_landscape):
    page = visit_landscape(DATA)
    head = page.locator("#recipes thead th", has_text="learning rate")
    head.locator("button").click()
    rates = page.eval_on_selector_all("#recipes tbody tr > :nth-child(3)", "all => all.map(one => one.textContent)")
    assert [float(rate) for rate in rates] == sorted(one["rate"] for one in DATA["recipes"])


def test_names_cannot_inject_and_small_landscapes_work(visit_landscape):
    page = visit_landscape(landscape_data(name=NASTY))
    assert page.evaluate("window.hacked") is None
    assert NASTY.split("\u2028")[0] in page.locator("h1").inner_text()
    for shape in ({"widths": (5,), "rates": (0.1,), "activations": ("relu",)}, {"epochs": 1, "seeds": 1}, {"rows": 3}):
        page = visit_landscape(landscape_data(**shape))
        assert not FORBIDDEN & words_of(page), shape
        page.locator(".tint").first.hover()
        assert page.locator(".tip").is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_in_both_themes(visit_landscape, scheme):
    page = visit_landscape(DATA, color_scheme=scheme)
    found = page.evaluate(CONTRAST)
    assert len(found) > 300
    assert [one for one in found if one[0] < (3 if one[1] else 4.5)] == []


def test_a_phone_never_scrolls_sideways_and_a_finger_chooses(visit_landscape):
    page = visit_landscape(DATA, **PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") == 400
    sizes = page.evaluate(
        """() => [...document.querySelectorAll("svg text")].map((text) =>
          parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a)"""
    )
    assert min(sizes) > 10
    page.locator(".tint").nth(20).tap()
    assert page.locator(".tip").is_visible()


def test_structure_for_screen_readers_print_and_no_script(visit_landscape):
    page = visit_landscape(DATA)
    assert {name: wrong for name, wrong in page.evaluate(STRUCTURE).items() if wrong} == {}
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 690, "height": 980})
    assert page.evaluate("document.documentElement.scrollWidth") == 690
    assert not page.locator(".epochs").is_visible()
    page.emulate_media(media="screen")
    page.set_viewport_size({"width": 1280, "height": 900})
    plain = visit_landscape(DATA, java_script_enabled=False)
    assert plain.locator(".tint:visible").count() == len(DATA["recipes"])
    assert plain.locator("#recipes tbody tr").count() == len(DATA["recipes"])
    assert plain.locator("button, input").count() == 0
    assert "Point at a cell" not in plain.locator("#map").inner_text()
