"""The page of a fine-tuning run, as a file and in a real browser: texts, slider, missing values, accessibility."""

from __future__ import annotations

import copy
import itertools
import math
import re
from importlib.resources import files

import pytest
from support.pages import CONTRAST, NASTY, STRUCTURE, Outline

from benchmarks.harness.report_data import SOLUTION, finetune_data
from shoal.report import finetune_page, write_finetune_page
from shoal.report.finetune.log import KINDS
from shoal.report.finetune.page import SCRIPTS, STYLES

PHONE = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}
SMALL = [key for key in KINDS if key not in ("loss", "eval_loss")]


def of_step(data, step):
    """The values of all records of a step."""
    return {key: value for record in data["log"] if record["step"] == step for key, value in record.items()}


def without(data, *keys):
    """The data without some keys in every record of the log."""
    log = [{key: value for key, value in record.items() if key not in keys} for record in data["log"]]
    return {**data, "log": log}


def text_of(page):
    """The text of a page, without a browser."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", page.split('<main id="main"')[1].split("</main>")[0]))


def words_of(page):
    return set(re.findall(r"\w+", page.locator("body").inner_text()))


def move_to(page, place):
    """Move the slider at once, without a key press per stop."""
    script = "(slider, place) => { slider.value = place; slider.dispatchEvent(new Event('input')); }"
    page.locator(".slider input").evaluate(script, place)


def cursors(page):
    """The position of each figure's cursor on its axis, and whether it is visible."""
    return page.eval_on_selector_all(
        ".course svg[data-plot]",
        """all => all.map(image => {
          const [low, high, start, end] = image.dataset.plot.split(" ").map(Number);
          const line = image.querySelector(".cursor");
          const step = low + (Number(line.getAttribute("x1")) - start) / (end - start) * (high - low);
          return [Math.round(step * 1000) / 1000, line.getAttribute("visibility")];
        })""",
    )


# ---- the page as a file


def test_the_page_is_one_small_file_with_its_own_scripts_only(tmp_path):
    data = finetune_data()
    before = copy.deepcopy(data)
    page = finetune_page(data)
    outline = Outline()
    outline.feed(page)
    assert outline.addresses
    assert all(address.startswith(("#", "data:")) for address in outline.addresses)
    assert outline.tags.count("script") == 2
    assert len(page.encode()) < 100_000
    assert "startCursor" in page
    assert "leaderboard" not in page.split("<script>")[1]
    assert data == before
    assert write_finetune_page(data, tmp_path / "page.html").read_text(encoding="utf-8") == page
    assert all(files("shoal.report").joinpath("assets", name).is_file() for name in (*SCRIPTS, *STYLES))


def test_the_headline_shows_loss_and_perplexity_after_and_before():
    data = finetune_data()
    data["log"] += [{"step": 0, "eval_loss": 6.93}, {"step": 120, "eval_loss": 2.41}]
    page = finetune_page(data)
    assert '<span class="figure">2.41</span>' in page
    assert "on 24 test rows that it did not learn from; before, it was 6.93." in text_of(page)
    assert "had to choose among 11.1 equally likely tokens; before training, among 1,022" in text_of(page)


@pytest.mark.parametrize(
    ("losses", "said", "unsaid"),
    [
        ([6.9, 4.0, 2.5, 2.4, 2.9], "lowest, 2.4, at step 90 (after 2.3 epochs) and has risen since", "falling"),
        ([6.9, 5.9, 4.9, 3.9, 3.0], "still falling at the end: more epochs", "risen"),
        ([6.9, 4.0, 2.42, 2.4, 2.41], "levelled off by the end", "risen"),
        ([2.0, 2.4, 3.0, 3.5, 4.0], "no lower than before training", "falling"),
        ([6.9, 2.4], "evaluation loss after training", "levelled off"),
    ],
)
def test_advice_to_train_longer_or_shorter(losses, said, unsaid):
    data = without(finetune_data(), "eval_loss")
    steps = [round(120 * place / (len(losses) - 1)) for place in range(len(losses))]
    data["log"] += [{"step": step, "eval_loss": loss} for step, loss in zip(steps, losses, strict=True)]
    text = text_of(finetune_page(data)).split("Step by step")[0]
    assert said in text
    assert unsaid not in text
    assert ("too optimistic" in text) == ("risen" in said)


def test_an_interrupted_run_says_so_and_shows_what_it_last_measured():
    data = finetune_data()
    data["log"] = [record for record in data["log"] if record["step"] <= 84]
    data["run"] |= {"interrupted": True, "steps": 84}
    text = text_of(finetune_page(data))
    assert "The run was interrupted at step 84 of 120." in text
    assert "evaluation loss at step 80, where it was last measured" in text
    assert "interrupted" not in text_of(finetune_page(finetune_data()))


def test_a_resumed_run_is_marked_and_the_later_record_of_a_step_counts():
    data = finetune_data()
    data["run"]["resumed_at"] = [40, 80, 5000]
    data["log"].insert(0, {**of_step(data, 40), "loss": 98765.0})
    page = finetune_page(data)
    assert page.count('class="resumed"') == 2
    assert "was resumed at steps 40 and 80" in text_of(page)
    assert "98,765" not in page
    assert "98765" not in page
    assert 'class="resumed"' not in finetune_page(finetune_data())


def test_a_hundred_thousand_records_make_a_small_page():
    data = finetune_data(steps=1000)
    data["log"] = [{**one, "step": one["step"] + 1000 * turn} for turn in range(92) for one in data["log"]]
    assert len(data["log"]) > 100_000
    page = finetune_page(data)
    assert len(page.encode()) < 600_000
    assert page.count("<tr>") <= 51
    assert "92,000" in page


def test_grouped_points_keep_every_peak():
    data = finetune_data(steps=2000)
    before = finetune_page(data)
    next(record for record in data["log"] if record["step"] == 1007)["loss"] += 3
    bands = [re.search(r'<path d="([^"]*)" class="band"', page)[1] for page in (before, finetune_page(data))]
    edges = [re.findall(r"([\d.]+) ([\d.]+)", band) for band in bands]
    moved = [(float(old), float(new)) for (_, old), (_, new) in zip(*edges, strict=True) if old != new]
    assert len(moved) == 1  # one point of the band's upper edge
    assert moved[0][1] < moved[0][0] - 50
    assert "means of up to 10 values" in before


def test_the_table_has_the_first_and_the_last_step_and_the_evaluations():
    data = finetune_data(steps=950, every=100)
    table = finetune_page(data).split('id="log"')[1].split("</table>")[0]
    steps = [int(step.replace(",", "")) for step in re.findall(r'<th scope="row" class="number">([\d,]+)', table)]
    assert len(steps) <= 50
    assert {0, 950, *range(100, 1000, 100)} <= set(steps)
    assert steps == sorted(steps)
    assert f"{len(steps)} of 951 steps" in table
    assert f"{of_step(data, 500)['eval_runtime']:.3g} s</td>" in table


def test_the_share_of_weights_that_lora_trains():
    data = finetune_data()
    data["run"] |= {"trained": 294912, "lora": 8}
    text = text_of(finetune_page(data))
    assert "124 million weights, of which 294,912 (0.237%) were trained (LoRA)" in text
    assert "rank 8" in text


def test_very_long_samples_are_cut_with_a_note():
    data = finetune_data()
    data["samples"] = [{"prompt": "x", "after": "x" * 10_000}] * 30
    page = finetune_page(data)
    assert len(page) < 300_000
    assert "4,000 more characters are not shown." in page
    assert "10 more samples are not shown." in page


# ---- one slider for all figures


def test_the_slider_moves_the_cursor_in_all_figures_and_the_words_match_the_data(visit_run):
    data = finetune_data()
    page = visit_run(data)
    assert {seen for _, seen in cursors(page)} == {"hidden"}
    slider = page.locator(".slider input")
    slider.press("Home")
    assert page.locator(".slider output").inner_text() == (
        f"Step 0, epoch 0: training loss \N{EN DASH}, evaluation loss {of_step(data, 0)['eval_loss']:.3g}"
    )
    move_to(page, 38)
    slider.press("ArrowRight")
    slider.press("ArrowRight")
    assert cursors(page) == [[40, "visible"]] * 10
    found = of_step(data, 40)
    said = f"Step 40, epoch 1: training loss {found['loss']:.3g}, evaluation loss {found['eval_loss']:.3g}"
    assert page.locator(".slider output").inner_text() == said
    assert slider.get_attribute("aria-valuetext") == said
    for key in SMALL:
        number = float(page.locator(f"[data-series={key}]").inner_text().replace(",", "").split(" ")[0])
        assert number == pytest.approx(found[key], rel=6e-3), key


def test_the_pointer_over_any_figure_moves_all_and_older_evaluations_name_their_step(visit_run):
    data = finetune_data()
    page = visit_run(data)
    image = page.locator("#figure-grad-norm")
    image.scroll_into_view_if_needed()
    edge, plot = image.bounding_box(), [float(n) for n in image.get_attribute("data-plot").split()]
    across = plot[2] + 75 / 120 * (plot[3] - plot[2])
    page.mouse.move(edge["x"] + edge["width"] * across / 240, edge["y"] + 30)
    assert cursors(page) == [[75, "visible"]] * 10
    assert page.locator(".slider input").input_value() == "75"
    evaluated = of_step(data, 70)
    assert page.locator(".slider output").inner_text().endswith(f"loss {evaluated['eval_loss']:.3g} (step 70)")
    runtime = page.locator("[data-series=eval_runtime]").inner_text()
    assert runtime == f"{evaluated['eval_runtime']:.3g} s (step 70)"


def test_the_slider_is_in_sight_while_the_figures_are(visit_run):
    page = visit_run(finetune_data())
    for selector in ("#loss-figure", "#figure-learning-rate", "#figure-tokens-per-second"):
        page.locator(selector).evaluate("image => image.scrollIntoView({ block: 'center' })")
        box = page.locator(".slider").bounding_box()
        assert 0 <= box["y"] <= 900 - box["height"] + 1, selector


def test_a_long_run_stops_at_real_steps_with_their_exact_numbers(visit_run):
    data = finetune_data(steps=30_000, every=1000)
    page = visit_run(data)
    stops = int(page.locator(".slider input").get_attribute("max")) + 1
    assert 300 < stops <= 400
    assert page.locator(".slider output").inner_text().startswith("Step 30,000, epoch 3:")
    for place in (stops // 3, stops // 2, stops - 2):
        move_to(page, place)
        said = page.locator(".slider output").inner_text()
        found = of_step(data, int(re.match(r"Step ([\d,]+)", said)[1].replace(",", "")))
        assert f"training loss {found['loss']:.3g}," in said
    assert page.evaluate("document.querySelectorAll('*').length") < 1500


# ---- gaps, missing parts, hostile texts


def test_missing_values_are_gaps_in_lines_and_dashes_in_text(visit_run):
    data = finetune_data()
    for record in data["log"]:
        if 50 <= record["step"] < 60:
            record |= {"loss": [None, math.nan, math.inf][record["step"] % 3], "grad_norm": math.nan}
    page = visit_run(data)
    assert page.locator("#loss-figure path.train").get_attribute("d").count("M") == 2
    assert page.locator("#figure-grad-norm path.plain").get_attribute("d").count("M") == 2
    assert page.locator("#figure-learning-rate path.plain").get_attribute("d").count("M") == 1
    move_to(page, 55)
    assert "training loss \N{EN DASH}, evaluation loss" in page.locator(".slider output").inner_text()
    assert page.locator("[data-series=grad_norm]").inner_text() == "\N{EN DASH}"


def test_one_record_only(visit_run):
    data = finetune_data()
    data["log"] = [{"step": 7, "loss": 3.25, "epoch": 0.5, "learning_rate": 0.0}]
    page = visit_run(data)
    assert page.locator(".slider output").inner_text() == "Step 7, epoch 0.5: training loss 3.25"
    assert re.fullmatch(r"M[\d.]+ [\d.]+h0.1", page.locator("#loss-figure path.train").get_attribute("d"))
    move_to(page, 0)
    assert cursors(page) == [[7, "visible"]] * 3
    assert page.locator("[data-series=learning_rate]").inner_text() == "0"


def test_what_is_not_known_yet_is_left_out(visit_run):
    """The first report is written before training; the workers send some of the facts."""
    data = finetune_data()
    for name in ("trained", "device", "threads", "context"):
        del data["run"][name]
    for name in ("tokens", "cut"):
        del data["data"][name]
    data |= {"samples": [], "log": data["log"][:1]}
    data["run"]["seconds"] = None
    page = visit_run(data)
    assert "Before training, the evaluation loss was" in page.locator("#result").inner_text()
    assert not {"None", "nan", "null", "undefined", "Infinity"} & words_of(page)
    assert not {"None", "nan", "null", "undefined"} & words_of(visit_run({**data, "log": []}))


def test_hostile_strings_are_shown_as_text(visit_run):
    data = finetune_data()
    data |= {"title": NASTY, "created": NASTY, "version": NASTY, "samples": [dict.fromkeys(data["samples"][0], NASTY)]}
    data["run"] |= {"model": NASTY, "processor": NASTY, "schedule": NASTY, "device": NASTY}
    data["data"] |= {"file": NASTY, "columns": [NASTY], "format": NASTY, "notes": [NASTY]}
    page = visit_run(data)
    page.locator(".slider input").press("Home")
    assert page.evaluate("window.hacked") is None
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 2
    visible = NASTY.rstrip("\u2028")
    for selector in ("h1", "#samples .after", "#training", "#data pre", "#data li"):
        assert visible in page.locator(selector).first.text_content(), selector
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_samples_keep_line_breaks_and_show_control_characters(visit_run):
    data = finetune_data()
    data["samples"][0]["before"] = "\n\n  two lines down\x00\x1b\tend"
    page = visit_run(data)
    assert page.locator(".expected pre").first.text_content() == SOLUTION
    assert page.locator(".before pre").first.text_content() == "\n\n  two lines down\u2400\u241b\tend"
    assert "Gr\u00fc\u00dfe \u4f60\u597d" in page.locator(".prompt pre").nth(1).text_content()
    assert page.locator(".after").nth(1).locator(".empty").inner_text() == "nothing"


# ---- accessibility


def test_a_phone_never_scrolls_sideways_and_touch_moves_the_cursor(visit_run):
    data = finetune_data(steps=2000, every=100)
    data["title"] = data["run"]["model"] = "a_very_long_name_without_any_break_that_goes_on_and_on_and_on.csv"
    data["samples"][0]["after"] = "x = " + "very_long_name" * 40
    page = visit_run(data, **PHONE)
    page.locator("summary").click()
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    wide = page.evaluate(
        """() => [...document.querySelectorAll("body *")].filter((element) => {
          const box = element.getBoundingClientRect();
          return box.right > 361 && box.width && !element.closest(".scroll, .skip");
        }).map((element) => element.outerHTML.slice(0, 80))"""
    )
    assert wide == []
    sizes = page.evaluate(
        """() => [...document.querySelectorAll("svg text")].map((text) =>
          parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a)"""
    )
    assert min(sizes) > 9
    tops = page.eval_on_selector_all(".sample:first-of-type .sides > div", "all => all.map(one => one.offsetTop)")
    assert tops == sorted(set(tops))
    page.locator("#figure-epoch").evaluate("image => image.scrollIntoView({ block: 'center' })")
    box = page.locator("#figure-epoch").bounding_box()
    page.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + 40)
    assert {seen for _, seen in cursors(page)} == {"visible"}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_in_both_themes(visit_run, scheme):
    page = visit_run(finetune_data(), color_scheme=scheme)
    page.locator("summary").click()
    found = page.evaluate(CONTRAST)
    assert len(found) > 300
    assert [one for one in found if one[0] < (3 if one[1] else 4.5)] == []
    tops = page.eval_on_selector_all(".sample:first-of-type .sides > div", "all => all.map(one => one.offsetTop)")
    assert len(tops) == 3
    assert len(set(tops)) == 1  # side by side on a desk


def test_print_has_all_figures_and_no_slider(visit_run):
    page = visit_run(finetune_data(), color_scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    page.set_viewport_size({"width": 690, "height": 980})  # A4 between its margins
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(28, 34, 38)"
    assert not page.locator(".slider").is_visible()
    assert not page.locator("nav").is_visible()
    assert page.locator(".course svg:visible").count() == 10
    assert page.evaluate("document.documentElement.scrollWidth") == 690


def test_headings_landmarks_and_labels_for_screen_readers(visit_run):
    page = visit_run(finetune_data())
    assert {name: wrong for name, wrong in page.evaluate(STRUCTURE).items() if wrong} == {}
    assert [page.get_by_role(role).count() for role in ("banner", "main", "contentinfo", "slider")] == [1, 1, 1, 1]
    levels = page.eval_on_selector_all("h1, h2, h3, h4", "all => all.map(one => Number(one.tagName[1]))")
    assert levels[:2] == [1, 2]
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    links = page.eval_on_selector_all("nav a", "all => all.map(one => one.hash)")
    assert links == ["#result", "#course", "#samples", "#training", "#data", "#words"]


def test_without_javascript_the_content_is_complete(visit_run):
    data = finetune_data()
    page = visit_run(data, java_script_enabled=False)
    assert page.locator(".course svg:visible").count() == 10
    assert page.locator("input, button").count() == 0
    text = [page.locator(f"[data-series={key}]").inner_text() for key in SMALL]
    page.locator("summary").click()
    assert page.locator("#log tbody tr").count() == 50
    awake = visit_run(data)
    awake.locator(".slider input").press("Home")
    awake.locator(".slider input").press("End")
    assert [awake.locator(f"[data-series={key}]").inner_text() for key in SMALL] == text
