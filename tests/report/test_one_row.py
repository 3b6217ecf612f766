"""The section on single rows: in its place, in words, and absent where nothing is known."""

import re

import pytest

from benchmarks.harness.report_data import search_data
from shoal.report import search_page
from shoal.report.search.results import one_row


def words(page):
    found = re.search(r'<section id="one-row".*?</section>', page, re.DOTALL)
    return re.sub(r"\s+", " ", re.sub("<[^>]+>", " ", found.group())) if found else ""


def test_it_says_how_wide_intervals_are_and_for_whom():
    text = words(search_page(search_data("regression", 20)))
    assert "What to expect for one row" in text
    assert "contains price for 9 in 10 new rows" in text
    assert "the prediction ±41 ." in text
    assert "less than ±30" in text
    assert "duration: above 12 ±0.71" in text


def test_it_says_how_large_sets_are_and_for_whom():
    text = words(search_page(search_data("classification", 20)))
    assert "68% of the rows have one class, 32% two ." in text
    assert "duration: above 12 1.42 690" in text
    assert "bad 1.6 300" in text


def test_it_comes_before_the_search_and_after_the_score():
    page = search_page(search_data("classification", 20))
    places = [page.index(f'<section id="{name}"') for name in ("score", "one-row", "searched")]
    assert places == sorted(places)


def test_a_model_that_was_trained_again_says_so():
    data = search_data("regression", 20)
    data["one_row"]["refit"] = True
    assert "trained again on all rows" in words(search_page(data))


@pytest.mark.parametrize("part", [{}, {"kind": "numbers", "widths": [None, 1.0, 2.0]}])
def test_nothing_is_said_where_nothing_is_known(part):
    assert one_row(part, "price") is None


def test_where_nothing_tells_rows_apart():
    data = search_data("regression", 20)
    data["one_row"] |= {"columns": [], "widths": [10.0, 10.0, 10.0]}
    text = words(search_page(data))
    assert "about equally sure of every row" in text
    assert "about the same for all values of the columns" in text
