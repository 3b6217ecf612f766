"""The search report as a file and in a real browser: texts, leaderboard, figures, missing parts, hostile names."""

from __future__ import annotations

import copy
import json
import math
import re
from importlib.resources import files

import numpy as np
import pytest
from support.browser import cells, dot, head, status
from support.pages import NASTY, Outline

from benchmarks.harness.report_data import column, search_data
from shoal.report import search_page, write_search_page
from shoal.report.search.page import SCRIPTS
from shoal.report.shell.shell import script_json, scripts

# ---- the page as a file


def test_the_page_is_one_small_file_that_refers_to_nothing_outside():
    data = search_data()
    page = search_page(data)
    outline = Outline()
    outline.feed(page)
    assert outline.addresses
    assert all(address.startswith(("#", "data:")) for address in outline.addresses)
    assert outline.tags.count("script") == 2
    bare = search_page({**search_data(rows=1), "curves": []})
    assert len(bare.encode()) < 100_000
    per_row = (len(search_page(search_data(rows=2300)).encode()) - len(page.encode())) / 2000
    assert per_row < 120  # bytes: ten thousand recipes stay near a megabyte


def test_pages_are_reproducible_and_the_data_is_not_changed(tmp_path):
    data = search_data(rows=30)
    before = copy.deepcopy(data)
    assert search_page(data) == search_page(data)
    assert data == before
    path = write_search_page(data, tmp_path / "deep.html")
    assert path.read_text(encoding="utf-8") == search_page(data)


def test_every_file_of_the_page_is_part_of_the_package():
    for name in ("page.html", "page.css", *SCRIPTS):
        assert files("shoal.report").joinpath("assets", name).is_file()
    assert "</script" not in scripts(SCRIPTS).lower()


def test_json_in_a_script_cannot_end_it_and_round_trips():
    value = {"name": NASTY, "other": ["<!--", "]]>"]}
    text = script_json(value)
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == value


def test_numpy_numbers_and_infinities_are_accepted_and_other_types_refused():
    data = search_data(rows=5)
    data["leaderboard"]["rows"][0][5] = math.inf
    data["score"]["raw"] = np.float32(0.5)
    data["confusion"]["counts"] = np.array([[1, 2], [3, 4]])
    page = search_page(data)
    assert "Infinity" not in page.split('id="report-data">')[1].split("</script>")[0]
    assert ">50.0%<" in page
    with pytest.raises(TypeError, match="JSON has no object"):
        search_page({**data, "notes": object()})


def test_half_a_surrogate_pair_in_a_name_can_be_written(tmp_path):
    data = search_data(rows=3)
    data["data"]["target"] = data["leaderboard"]["rows"][0][6] = "caf\udce9"
    assert "caf?" in write_search_page(data, tmp_path / "page.html").read_text(encoding="utf-8")


# ---- the honest score


def test_the_headline_is_the_corrected_score_with_its_interval():
    page = search_page(search_data())
    assert '<span class="figure">75.2%</span>' in page
    first = re.search('<p class="headline">(.*?)</p>', page)[1]
    assert re.search(r"Shoal found an ensemble of \d+ recipes that predicts class\.", first)
    assert "Expect it to be right for 75.2% of new rows; guessing is right for 70.0%." in first
    assert "With 95% confidence, the accuracy is between 73.0% and 77.8%." in first
    assert "lowers the score by 1.8 points" in page
    assert "no better than guessing" not in page


@pytest.mark.parametrize(
    ("ensemble", "found"),
    [
        ({"used": True, "recipes": 4}, "an ensemble of 4 recipes"),
        ({"used": True, "recipes": 1}, "one recipe"),
        ({"used": False, "recipes": 4}, "one recipe"),
    ],
)
def test_the_first_sentence_says_what_was_found(ensemble, found):
    data = search_data(rows=5)
    data["ensemble"] |= ensemble
    assert f"Shoal found {found} that predicts class. " in search_page(data)


@pytest.mark.parametrize(
    ("score", "said"),
    [
        ({"metric": "r2", "chance": 0.0}, "explain 75% of the variance of class in new rows; predicting the mean"),
        ({"metric": "roc_auc", "chance": 0.5}, "Expect 0.752 (area under the ROC curve) on new rows; guessing scores"),
        ({"metric": "accuracy", "chance": None}, "right for 75.2% of new rows. With 95%"),
        ({"metric": "accuracy", "problem": "too few rows to correct"}, "Too few rows to correct.</span>"),
    ],
)
def test_the_first_paragraph_says_how_good_it_is(score, said):
    data = search_data(rows=5)
    data["score"] |= {"corrected": 0.752, **score}
    assert said in re.search('<p class="headline">(.*?)</p>', search_page(data))[1]


def test_a_score_that_may_be_guessing_gets_a_warning():
    data = search_data()
    data["score"] |= {"corrected": 0.71, "low": 0.69, "high": 0.73}
    page = search_page(data)
    assert "may be no better than guessing" in page


# ---- the leaderboard


def test_sorting_by_click_puts_missing_values_last_in_both_directions(visit):
    data = search_data()
    page = visit(data)
    assert head(page, "rank").get_attribute("aria-sort") == "ascending"
    known = sorted(value for value in column(data, "seed_spread") if value is not None)
    head(page, "seed_spread").locator("button").click()
    assert head(page, "seed_spread").get_attribute("aria-sort") == "ascending"
    assert head(page, "rank").get_attribute("aria-sort") == "none"
    assert cells(page, "seed_spread") == [f"{value:.4f}" for value in known[:25]]
    head(page, "seed_spread").locator("button").click()
    assert head(page, "seed_spread").get_attribute("aria-sort") == "descending"
    assert cells(page, "seed_spread") == [f"{value:.4f}" for value in known[::-1][:25]]
    assert "sorted by seed spread, largest first" in status(page)
    page.locator("#page-last").click()
    assert set(cells(page, "seed_spread")) == {"\N{EN DASH}"}


def test_sorting_by_keyboard(visit):
    page = visit(search_data())
    head(page, "hidden").locator("button").focus()
    page.keyboard.press("Enter")
    assert cells(page, "hidden")[0] == "8"
    page.keyboard.press("Space")
    assert head(page, "hidden").get_attribute("aria-sort") == "descending"
    assert cells(page, "hidden")[0] == "linear"
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # two columns on
    assert page.locator("#leaderboard th[aria-sort=ascending]").count() == 1
    assert head(page, "hidden").get_attribute("aria-sort") == "none"


FILTERS = [
    ("width<64", lambda row: row["width"] < 64),
    ("width < 64", lambda row: row["width"] < 64),
    ("width<=64", lambda row: row["width"] <= 64),
    ("64>width", lambda row: row["width"] < 64),
    ("16<=width<64", lambda row: 16 <= row["width"] < 64),
    ("width=16..64", lambda row: 16 <= row["width"] <= 64),
    ("width\u226564, score>72%", lambda row: row["width"] >= 64 and row["score"] > 0.72),
    ("learning rate<1e-3", lambda row: row["learning_rate"] < 1e-3),
    ("activation=relu and width!=32", lambda row: row["activation"] == "relu" and row["width"] != 32),
    ("relu", lambda row: "relu" in row["activation"]),
    ("LEAKY", lambda row: row["activation"] == "leaky_relu"),
    ("seed_spread>=0", lambda row: row["seed_spread"] is not None),
    ('hidden="64x64"', lambda row: row["hidden"] == "64x64"),
    ("nothing_like_it", lambda row: False),
    ("", lambda row: True),
]


def test_filters_keep_the_matching_rows(visit):
    data = search_data()
    keys = [one["key"] for one in data["leaderboard"]["columns"]]
    rows = [dict(zip(keys, row, strict=True)) for row in data["leaderboard"]["rows"]]
    page = visit(data)
    for text, test in FILTERS:
        page.fill("#filter", text)
        kept = [str(row["recipe"]) for row in rows if test(row)]
        assert cells(page, "recipe") == kept[:25], text
        assert status(page).startswith("300 recipes" if len(kept) == 300 else f"{len(kept)} of 300 recipes match"), text


def test_filter_by_activation_joins_the_words(visit):
    data = search_data()
    page = visit(data)
    page.select_option("#filter-activation", "tanh")
    assert set(cells(page, "activation")) == {"tanh"}
    page.fill("#filter", "width<32")
    assert all(int(width) < 32 for width in cells(page, "width"))
    page.select_option("#filter-activation", "")
    assert len(set(cells(page, "activation"))) > 1


NONSENSE = {
    "widht<64": "There is no column \u201cwidht\u201d; there are rank, recipe,",
    "width<many": "\u201cmany\u201d is not a number; write for example width<64.",
    "hidden<3": "hidden is text: use = or != with it.",
    "1<2<3<4": "is not a condition; write for example 16<=width<64.",
}


def test_an_invalid_filter_shows_an_error_and_keeps_the_rows(visit):
    page = visit(search_data(rows=40))
    for text, said in NONSENSE.items():
        page.fill("#filter", text)
        assert said in status(page)
        assert page.locator("#filter").get_attribute("aria-invalid") == "true"
        assert page.locator("#leaderboard tbody tr").count() == 25
    page.fill("#filter", "")
    assert page.locator("#filter").get_attribute("aria-invalid") == "false"


def test_of_ten_thousand_recipes_only_one_page_is_in_the_document(visit):
    page = visit(search_data(rows=10_000))
    assert page.evaluate("document.querySelectorAll('*').length") < 2500
    assert status(page).startswith("10,000 recipes; showing 1 to 25")
    page.select_option("#page-size", "100")
    page.locator("#page-last").click()
    assert page.locator("#leaderboard tbody tr").count() == 100
    assert cells(page, "rank")[-1] == "10,000"
    page.fill("#filter", "relu")
    assert page.locator("#leaderboard tbody tr").count() == 100
    head(page, "score").locator("button").click()
    scores = [float(text) for text in cells(page, "score")]
    assert scores == sorted(scores, reverse=True)
    assert page.evaluate("document.querySelectorAll('*').length") < 5000


def test_pages_turn_and_stop_at_the_ends(visit):
    page = visit(search_data(rows=60))
    page.locator("#page-back").click(force=True)
    assert cells(page, "rank")[0] == "1"
    page.locator("#page-on").focus()
    for _ in range(5):
        page.keyboard.press("Enter")
    assert cells(page, "rank") == [str(rank) for rank in range(51, 61)]
    assert page.evaluate("document.activeElement.id") == "page-on"
    assert page.locator("#page-on").get_attribute("aria-disabled") == "true"


def test_rows_read_the_same_with_and_without_javascript(visit):
    data = search_data(rows=25)
    tricky = [0.78125, 0.5, 9.99995, 1e-5, 9.96e-5, 0.00010004, 123.5, 1234567.8, 2.5e9, 0, -0.00001, -2.345, 99.96]
    for row, value in zip(data["leaderboard"]["rows"], tricky, strict=False):
        row[2] = value if abs(value) < 10 else 0.1
        row[9] = value
    before = visit(data, java_script_enabled=False).locator("#leaderboard tbody").inner_text()
    after = visit(data).locator("#leaderboard tbody").inner_text()
    assert before == after
    assert "1.2e-5" not in before
    assert "2.5e9" in before


# ---- figures


def test_hovering_a_dot_shows_its_recipe_and_a_click_finds_it(visit):
    data = search_data(rows=12)
    page = visit(data)
    page.locator(".plot").scroll_into_view_if_needed()
    place = dot(page, 0)
    page.mouse.move(place["x"], place["y"])
    said = page.locator(".tip").inner_text()
    recipe, activation = re.match(r"Recipe (\d+): (\w+)", said).groups()
    assert activation == sorted(set(column(data, "activation")))[0]
    row = column(data, "recipe").index(int(recipe))
    assert f"score {column(data, 'score')[row]:.4f}" in said
    assert f"hidden {column(data, 'hidden')[row]}" in said
    page.mouse.click(place["x"], place["y"])
    assert cells(page, "recipe") == [recipe]
    page.mouse.move(5, 5)
    assert not page.locator(".tip").is_visible()


def test_the_legend_hides_the_dots_of_an_activation(visit):
    data = search_data(rows=40)
    page = visit(data)
    name = sorted(set(column(data, "activation")))[0]
    button = page.locator(".toggles button", has_text=name).first
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert not page.locator('.plot path[data-series="0"]').is_visible()
    assert page.locator('.plot path[data-series="1"]').is_visible()
    place = dot(page, 0)
    page.mouse.move(place["x"], place["y"])
    assert f": {name}" not in page.locator(".tip").inner_text()
    page.get_by_role("button", name="all or none").press("Enter")
    assert button.get_attribute("aria-pressed") == "true"
    page.mouse.move(place["x"] + 1, place["y"])
    assert f": {name}" in page.locator(".tip").inner_text()


def test_the_scatter_plot_by_keyboard(visit):
    data = search_data(rows=50)
    page = visit(data)
    ranked = column(data, "recipe")
    page.locator(".plot").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator(".tip").inner_text().startswith(f"Recipe {ranked[0]}:")
    page.keyboard.press("ArrowDown")
    assert page.locator(".tip").inner_text().startswith(f"Recipe {ranked[1]}:")
    page.keyboard.press("End")
    assert page.locator(".tip").inner_text().startswith(f"Recipe {ranked[-1]}:")
    page.keyboard.press("Escape")
    assert not page.locator(".tip").is_visible()
    page.keyboard.press("Home")
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    assert cells(page, "recipe") == [str(ranked[0])]
    assert page.evaluate("document.activeElement.id") == "filter"


def test_curves_show_values_by_slider_and_pointer(visit):
    data = search_data(rows=10)
    page = visit(data)
    figure = page.locator("figure[data-read='curve-0']")
    figure.locator("input").press("Home")
    first = data["curves"][0]
    assert figure.locator("output").inner_text() == (
        f"Epoch 1: training {first['train'][0]:.3g}, held out {first['valid'][0]:.3g}"
    )
    figure.locator("svg").scroll_into_view_if_needed()
    box = figure.locator("svg").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 306 / 380, box["y"] + 60)
    assert figure.locator("output").inner_text().startswith("Epoch 60:")
    assert figure.locator(".cursor").get_attribute("visibility") == "visible"
    assert figure.locator("input").get_attribute("aria-valuetext").startswith("Epoch 60:")


def test_gaps_and_single_epochs_in_curves(visit):
    data = search_data(rows=10)
    data["curves"][0]["valid"][3:6] = [None, math.nan, math.inf]
    data["curves"][1] |= {"epochs": [1], "train": [0.5], "valid": [None]}
    page = visit(data)
    drawn = page.locator("figure[data-read='curve-0'] path.valid").get_attribute("d")
    assert drawn.count("M") == 2
    assert page.locator("figure[data-read='curve-1'] output").inner_text() == "Epoch 1: training 0.5"


# ---- other tasks, missing parts, hostile names


@pytest.mark.parametrize(
    ("task", "there", "absent"),
    [
        ("classification", ["mistakes", "calibration"], []),
        ("regression", ["mistakes"], ["calibration"]),
        ("multilabel", ["calibration"], ["mistakes"]),
    ],
)
def test_every_task_has_its_own_sections(visit, task, there, absent):
    page = visit(search_data(task, rows=30))
    for address in [*there, "score", "searched", "board", "width", "curves", "luck", "ensemble", "data", "cost"]:
        assert page.locator(f"section#{address}").count() == 1, address
        assert page.locator(f"nav a[href='#{address}']").count() == 1, address
    for address in absent:
        assert page.locator(f"#{address}").count() == 0, address
    assert page.locator("#residual-figure").count() == (task == "regression")
    assert page.locator("#confusion").count() == (task == "classification")


OPTIONAL = ["explanation", "one_row", "luck", "confusion", "calibration"]


def test_parts_that_a_search_may_not_have(visit):
    data = {**search_data(rows=30), "curves": []}
    for absent in [*([part] for part in OPTIONAL), OPTIONAL]:
        page = visit({**data, **dict.fromkeys(absent)})
        assert page.locator("h1").inner_text()
        said = set(re.findall(r"\w+", page.locator("body").inner_text()))
        assert not {"None", "nan", "null", "undefined"} & said, absent


def test_numbers_that_are_not_known_are_left_out_or_shown_as_a_dash(visit):
    data = search_data(rows=30)
    data["score"] |= {"corrected": math.nan, "low": math.nan, "high": math.nan, "problem": "too few rows"}
    data["search"]["budget"] = None
    data["leaderboard"]["rows"] = [[row[0], *[None] * (len(row) - 1)] for row in data["leaderboard"]["rows"]]
    page = visit(data)
    assert not {"None", "nan", "null", "undefined"} & set(re.findall(r"\w+", page.locator("body").inner_text()))


def test_hostile_names_are_shown_as_text(visit):
    data = search_data(rows=30)
    data |= {"title": NASTY, "created": NASTY, "version": NASTY}
    data["data"] |= {"target": NASTY, "classes": [NASTY, "b"], "notes": [NASTY]}
    data["data"]["table"][0] |= {"name": NASTY, "kind": NASTY, "note": NASTY}
    data["confusion"]["classes"] = [NASTY, "b"]
    data["search"] |= {"strategy": NASTY, "cv": NASTY, "processor": NASTY, "space": {NASTY: NASTY}}
    data["search"]["phases"][0]["name"] = data["curves"][0]["label"] = data["ensemble"]["parts"][0]["label"] = NASTY
    data["score"] |= {"metric": NASTY, "others": {NASTY: 1.0}}
    data["leaderboard"]["rows"][0][6] = data["leaderboard"]["rows"][0][8] = NASTY
    data["leaderboard"]["columns"][15]["label"] = NASTY
    page = visit(data)
    page.locator(".plot").focus()
    page.keyboard.press("Home")
    head(page, "activation").locator("button").click()
    page.fill("#filter", NASTY)
    assert page.evaluate("window.hacked") is None
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 2
    visible = NASTY.rstrip("\u2028")
    assert visible in page.locator("h1").text_content()
    assert visible in page.locator("#columns").text_content()
    assert visible in page.locator("#confusion").text_content()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_many_classes_and_columns_stay_readable(visit):
    data = search_data(rows=10)
    classes = [f"class {place}" for place in range(100)]
    counts = [[50 if i == j else (i * 7 + j) % 3 for j in range(100)] for i in range(100)]
    data["confusion"] = {"classes": classes, "counts": counts}
    data["data"] |= {
        "classes": classes,
        "table": [{"name": f"x{n}", "kind": "number", "missing": 0.0, "note": ""} for n in range(3000)],
    }
    page = visit(data)
    assert page.locator("#confusion tbody tr").count() == 15
    assert page.locator("#columns tbody tr").count() == 25
    assert "2,000 more columns are not listed" in page.locator("#data").inner_text()


# ---- texts that depend on the values ----


def test_the_page_names_the_first_recipe_and_says_why_stopped_ones_come_last():
    data = search_data()
    board = data["leaderboard"]
    keys = [one["key"] for one in board["columns"]]
    score, activation, stopped, width = (keys.index(key) for key in ("score", "activation", "stopped", "width"))
    board["rows"] = board["rows"][:4]
    cases = [(0.7, "tanh", "", 8), (0.6, "elu", "", 16), (0.9, "elu", "yes", 32), (0.95, "gelu", "yes", 64)]
    for row, (value, name, end, neurons) in zip(board["rows"], cases, strict=True):
        row[score], row[activation], row[stopped], row[width] = value, name, end, neurons
    page = search_page(data)
    assert "The first recipe of the leaderboard uses tanh with 8 hidden neurons." in page
    assert "Recipes that stopped early (2 here) come last, whatever their score." in page
    table = page[page.index('id="activations"') :]
    assert (
        table.index("tanh")
        < table.index("elu")
        < table.index("60.0%")
        < table.index("gelu")
        < table.index("95.0% (stopped)")
    )
    for row in board["rows"]:
        row[stopped] = ""
    assert "come last" not in search_page(data)


def test_an_ensemble_that_scored_less_than_the_best_recipe_is_explained():
    data = search_data()
    data["ensemble"] |= {"used": True, "best_single": 0.8, "score": 0.79, "gain": -0.01}
    assert "The final model is still the ensemble." in search_page(data)
    data["ensemble"] |= {"score": 0.81, "gain": 0.01}
    assert "The final model is still the ensemble." not in search_page(data)


@pytest.mark.parametrize(
    ("gain", "said"),
    [
        (0.0123, "which raises the score by 1.2 points"),
        (-0.004, "which lowers the score by 0.4 points"),
        (0.0001, None),
    ],
)
def test_the_gain_of_averaging_over_folds_is_mentioned_unless_negligible(gain, said):
    from shoal.report.search.sections import correction_words

    score = {"metric": "accuracy", "raw": 0.9, "corrected": 0.89 + gain, "averaging": gain, "problem": ""}
    text = str(correction_words(score, 100))
    assert "Correcting for this lowers the score by 1.0 points" in text
    assert (said in text) if said else ("one fold at a time" not in text)


@pytest.mark.parametrize(("raw", "is_said"), [(0.9, False), (0.9003, False), (0.8, False), (0.9006, True)])
def test_a_bias_that_would_be_shown_as_zero_is_too_small_to_matter(raw, is_said):
    from shoal.report.search.sections import correction_words

    score = {"metric": "accuracy", "raw": raw, "corrected": 0.9, "averaging": 0.0, "problem": ""}
    text = str(correction_words(score, 100))
    assert ("lowers the score by 0.1 points" in text) == is_said
    assert ("too small to matter" in text) != is_said
