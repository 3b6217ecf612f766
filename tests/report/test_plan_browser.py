"""The page of a plan in a real browser: slider, legend, timeline, table, missing parts, accessibility."""

from __future__ import annotations

import itertools
import re

import pytest
from support.pages import CONTRAST, NASTY, STRUCTURE
from support.plan_data import plan_data

PHONE = {"viewport": {"width": 400, "height": 800}, "has_touch": True, "is_mobile": True}
FORBIDDEN = {"None", "nan", "null", "undefined", "Infinity", "inf"}


def words_of(page):
    return set(re.findall(r"\w+", page.locator("body").inner_text()))


def column(page, label):
    """What one column of the table shows, from top to bottom."""
    heads = page.eval_on_selector_all("#settings thead th", "all => all.map(one => one.textContent)")
    place = heads.index(label) + 1
    return page.eval_on_selector_all(f"#settings tbody tr > :nth-child({place})", "all => all.map(c => c.textContent)")


def shown(page):
    """The lines that stand out, by figure."""
    return page.eval_on_selector_all(
        "svg g[data-strategy]",
        "all => [...new Set(all.filter(g => getComputedStyle(g).opacity === '1').map(g => g.dataset.strategy))]",
    )


# ---- figures: slider, legend


def test_the_slider_says_the_values_at_each_number_of_nodes(visit_plan):
    data = plan_data()
    page = visit_plan(data)
    slider, output = page.locator("#speed .slider input"), page.locator("#speed output")
    assert output.inner_text().split("\n")[0] == "4 nodes"  # those of the verdict
    slider.press("End")
    lines = output.inner_text().split("\n")
    assert lines[0] == "16 nodes"
    assert lines[1] == "local SGD: 2.7 s, 6.39 times as fast"  # the fastest first
    assert len(lines) == 1 + 6
    assert slider.get_attribute("aria-valuetext") == "; ".join(lines)
    for figure in ("time-figure", "speedup-figure"):
        cursor = page.locator(f"#{figure} .cursor")
        marker = page.locator(f"#{figure} g[data-strategy='2'] path.route").get_attribute("d").split("L")[-1]
        assert float(cursor.get_attribute("x1")) == pytest.approx(float(marker.split(" ")[0]), abs=0.2)
        assert cursor.get_attribute("visibility") == "visible"


def test_the_pointer_over_a_figure_moves_its_slider(visit_plan):
    page = visit_plan(plan_data())
    image = page.locator("#accuracy-figure")
    image.scroll_into_view_if_needed()
    edge = image.bounding_box()
    _, _, start, end = (float(number) for number in image.get_attribute("data-plot").split())
    page.mouse.move(edge["x"] + edge["width"] * end / 380, edge["y"] + 60)
    assert page.locator("#accuracy output").inner_text().startswith("16 nodes")
    page.mouse.move(edge["x"] + edge["width"] * start / 380, edge["y"] + 60)
    assert page.locator("#accuracy output").inner_text() == "1 node\none process: 98.1% (98.0% to 98.2%)"


def test_accuracy_at_a_time_is_that_of_the_last_epoch_by_then(visit_plan):
    data = plan_data()
    page = visit_plan(data)
    slider = page.locator("#course .slider input")
    slider.press("Home")
    slider.press("ArrowRight")
    lines = page.locator("#course output").inner_text().split("\n")
    assert lines[0].startswith("After ")
    assert lines[1] == "one node: \N{EN DASH}"
    slider.press("End")
    lines = page.locator("#course output").inner_text().split("\n")
    assert [line.split(": ")[1] for line in lines[1:]] == [
        f"{100 * one['accuracy'][-1]:.1f}%" for one in data["curves"]
    ]


def test_the_legend_highlights_a_strategy_in_all_figures_and_in_the_table(visit_plan):
    page = visit_plan(plan_data())
    assert len(shown(page)) == 7
    button = page.locator("#speed .strategies button", has_text="local SGD")
    button.focus()
    page.keyboard.press("Enter")
    assert shown(page) == ["2"]
    for part in ("#speed", "#accuracy", "#course"):
        pressed = page.locator(f"{part} .strategies button[aria-pressed=true]")
        assert pressed.all_inner_texts() == ["local SGD"]
    assert page.locator("#settings tr.picked").count() == 4
    page.locator("#accuracy .strategies button", has_text="tensor").click()
    page.mouse.move(0, 0)
    assert sorted(shown(page)) == ["2", "6"]
    page.locator("#accuracy .strategies button", has_text="tensor").click()
    page.keyboard.press("Tab")
    button.click()
    page.mouse.move(0, 0)
    assert len(shown(page)) == 7
    page.locator("#speed .strategies button").first.hover()
    assert shown(page) == ["0"]


# ---- the timeline


def test_the_pointer_over_a_span_shows_its_name_and_time(visit_plan):
    page = visit_plan(plan_data())
    tip = page.locator(".timeline .tip")
    assert not tip.is_visible()
    page.locator(".span", has_text="gradients of layers 1 and 2").nth(2).hover()
    assert tip.inner_text() == "Node 2, link: gradients of layers 1 and 2: 8.4 ms, from 2.3 ms"
    page.locator(".lane-name").first.hover()
    assert not tip.is_visible()


def test_arrow_keys_move_between_spans_and_lanes(visit_plan):
    page = visit_plan(plan_data())
    place = page.locator(".timeline")
    place.focus()
    said = page.locator(".timeline .tip").inner_text
    assert said() == "Node 0, compute: forward: 0.5 ms, from 0 s"
    page.keyboard.press("ArrowRight")
    assert said().startswith("Node 0, compute: backward: 0.9 ms")
    page.keyboard.press("ArrowDown")
    assert said().startswith("Node 0, link: gradients of layer 3: 0.6 ms")
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    assert said().startswith("Node 1, link")
    for _ in range(9):
        page.keyboard.press("ArrowRight")
    assert said().startswith("Node 1, link: gradients of layers 1 and 2")
    assert page.locator(".span.on").count() == 1
    page.keyboard.press("Escape")
    assert page.locator(".span.on").count() == 0
    place.evaluate("place => place.blur()")
    assert not page.locator(".timeline .tip").is_visible()


def test_spans_are_where_their_times_are(visit_plan):
    data = plan_data()
    page = visit_plan(data)
    track = page.locator(".track").nth(1).bounding_box()
    span = page.locator(".track").nth(1).locator(".span").last.bounding_box()
    found = next(one for one in data["timeline"]["spans"] if one["name"].endswith("1 and 2"))
    end = data["timeline"]["seconds"]
    assert (span["x"] - track["x"]) / track["width"] == pytest.approx(found["start"] / end, abs=0.005)
    assert span["width"] / track["width"] == pytest.approx(found["seconds"] / end, abs=0.005)
    page.locator("summary").click()
    assert page.locator("#spans tbody tr").count() == len(data["timeline"]["spans"])


def test_many_nodes_and_many_names_keep_the_timeline_short(visit_plan):
    data = plan_data()
    spans = [
        {"node": n, "lane": "link", "name": f"part {k}", "start": k, "seconds": 1} for n in range(64) for k in range(20)
    ]
    page = visit_plan({**data, "timeline": {"label": "a", "nodes": 64, "seconds": 20, "spans": spans}})
    assert page.locator(".node-lanes").count() == 8
    assert "56 more nodes not drawn" in page.locator("#timeline-help").inner_text()
    page.locator("summary").click()
    assert page.locator("#spans tbody tr").count() == 200
    assert "200 of 1,280" in page.locator("#spans caption").inner_text()


# ---- the table


def test_the_table_sorts_by_number_not_by_text(visit_plan):
    data = plan_data()
    page = visit_plan(data)
    head = page.locator("#settings thead th", has_text="time in all")
    assert head.get_attribute("aria-sort") == "none"
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    times = column(page, "time in all")
    assert times[0] == "2.7 s"
    assert times[-1] == "1 min 13 s"
    page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    assert column(page, "time in all") == times[::-1]
    page.locator("#settings thead th", has_text="strategy").locator("button").click()
    names = [name.removesuffix(" verdict") for name in column(page, "strategy")]
    assert names == sorted(names, key=str.lower)
    assert page.locator("#settings [aria-sort=ascending], #settings [aria-sort=descending]").count() == 1


def test_missing_numbers_are_last_in_either_direction(visit_plan):
    page = visit_plan(plan_data())
    button = page.locator("#settings thead th", has_text="time to the goal").locator("button")
    for _ in range(2):
        button.click()
        goal = column(page, "time to the goal")
        assert goal[-1] == "\N{EN DASH}"
        assert "\N{EN DASH}" not in goal[:-1]


def test_a_long_table_scrolls_in_its_box_below_its_heads(visit_plan):
    page = visit_plan(plan_data(strategies=12, nodes=tuple(range(1, 17))))
    box = page.locator(".tall .scroll")
    assert box.bounding_box()["height"] < 700
    box.evaluate("box => { box.scrollTop = 1500; }")
    head = page.locator("#settings thead th").first.bounding_box()
    assert head["y"] == pytest.approx(box.bounding_box()["y"], abs=2)


# ---- missing parts, hostile texts


ABSENT = {"what": "", "goal": None, "noise": None, "curves": [], "notes": []}  # parts that a plan may lack


@pytest.mark.parametrize("absent", [*({part: value} for part, value in ABSENT.items()), ABSENT])
def test_a_part_may_be_missing(visit_plan, absent):
    page = visit_plan(plan_data() | absent)
    assert page.locator("h1").inner_text()
    assert not FORBIDDEN & words_of(page)


def test_some_numbers_may_be_unknown(visit_plan):
    """Without accuracies, a goal that is reached, or a link; of runs that diverge; where the noise has no end."""
    data = plan_data(strategies=3)
    interval = ["accuracy_low", "accuracy_high"]
    for keys in (interval, [*interval, "accuracy"], ["seconds_to_goal"], ["speedup"]):
        rows = [{**row, **dict.fromkeys(keys)} for row in data["rows"]]
        assert not FORBIDDEN & words_of(visit_plan({**data, "rows": rows})), keys
    for part, keys in (("noise", ["high"]), ("noise", ["critical_batch", "low", "high"]), ("machine", ["check"])):
        assert not FORBIDDEN & words_of(visit_plan({**data, part: {**data[part], **dict.fromkeys(keys)}})), keys
    absent = [*interval, "accuracy", "seconds_to_goal"]
    data["rows"] = [{**row, **dict.fromkeys(absent)} for row in data["rows"]]
    data["noise"] = {**data["noise"], "critical_batch": None, "low": 5.0, "high": None}
    data["machine"]["link"] = {"name": "measured on this machine", "bandwidth": None, "latency": None}
    data["curves"][0]["accuracy"] = [0.5, *[None] * 9]
    data["curves"][1]["accuracy"] = [None] * 10
    assert not FORBIDDEN & words_of(visit_plan(data))


@pytest.mark.parametrize("nodes", [(1,), (1, 2), (1, 1000)])
def test_any_numbers_of_nodes(visit_plan, nodes):
    page = visit_plan(plan_data(strategies=3, nodes=nodes))
    assert not FORBIDDEN & words_of(page)
    assert page.locator("#time-figure").count() == 1
    assert page.locator("#speed .slider").count() == (len(nodes) > 1)


def test_very_short_times_do_no_harm(visit_plan):
    data = plan_data(strategies=3)
    data["rows"][1] |= {"seconds": 1e-12, "speedup": 1e12}
    data["rows"][2] |= {"speedup": 1e-9}
    assert not FORBIDDEN & words_of(visit_plan(data))


def test_hostile_strings_are_shown_as_text(visit_plan):
    data = plan_data()
    data |= {"what": NASTY, "command": NASTY, "created": NASTY, "version": NASTY, "notes": [NASTY]}
    data["machine"] |= {"cpu": NASTY, "instruction_set": NASTY, "backend": NASTY, "versions": {NASTY: NASTY}}
    data["machine"]["link"]["name"] = data["machine"]["check"]["text"] = NASTY
    data["settings"] |= {NASTY: NASTY}
    data["verdict"] |= {"text": NASTY, "break_even": {NASTY: NASTY}}
    data["noise"]["text"] = data["timeline"]["label"] = NASTY
    for row in data["rows"]:
        row |= {"label": f"{row['label']}{NASTY}", "note": NASTY}
    for curve in data["curves"]:
        curve["label"] = NASTY
    for span in data["timeline"]["spans"]:
        span |= {"name": NASTY, "lane": span["lane"] if span["node"] else NASTY}
    page = visit_plan(data)
    page.locator("#speed .slider input").press("Home")
    page.locator("#settings thead button").first.click()
    page.locator(".strategies button").first.click()
    page.locator(".span").first.hover()
    assert page.evaluate("window.hacked") is None
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 2
    visible = NASTY.rstrip("\u2028")
    for selector in (
        "h1",
        "#verdict .headline",
        "#settings .note",
        "#estimate code",
        "#notes li",
        ".strategies",
        ".tip",
    ):
        assert visible in page.locator(selector).first.text_content(), selector
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


# ---- accessibility


@pytest.mark.parametrize("strategies", [7, 12])
def test_a_phone_never_scrolls_sideways_and_touch_shows_a_span(visit_plan, strategies):
    data = plan_data(strategies=strategies)
    data["what"] = "a_very_long_name_without_any_break_that_goes_on_and_on_and_on.csv"
    for row in data["rows"][1:5]:
        row["label"] = "a strategy with a very long name of its own, longer than a phone is wide"
    page = visit_plan(data, **PHONE)
    page.locator("summary").click()
    assert page.evaluate("document.documentElement.scrollWidth") == 400
    wide = page.evaluate(
        """() => [...document.querySelectorAll("body *")].filter((element) => {
          const box = element.getBoundingClientRect();
          return (box.right > 401 || box.left < -1) && box.width && !element.closest(".scroll, .skip");
        }).map((element) => element.outerHTML.slice(0, 120))"""
    )
    assert wide == []
    sizes = page.evaluate(
        """() => [...document.querySelectorAll("svg text")].map((text) =>
          parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a)"""
    )
    assert min(sizes) > 10
    page.locator(".track").nth(3).evaluate("track => track.scrollIntoView({ block: 'center' })")
    page.locator(".track").nth(3).locator(".span").last.tap()
    assert "8.4 ms" in page.locator(".timeline .tip").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") == 400


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_in_both_themes(visit_plan, scheme):
    page = visit_plan(plan_data(strategies=12), color_scheme=scheme)
    page.locator("summary").click()
    found = page.evaluate(CONTRAST)
    assert len(found) > 400
    assert [one for one in found if one[0] < (3 if one[1] else 4.5)] == []
    red = int(re.findall(r"\d+", page.evaluate("getComputedStyle(document.body).backgroundColor"))[0])
    assert red < 40 if scheme == "dark" else red > 240


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_names_in_spans_can_be_read_on_every_colour(visit_plan, scheme):
    data = plan_data()
    data["timeline"] |= {
        "seconds": 7,
        "spans": [{"node": 0, "lane": "link", "name": f"name {k}", "start": k, "seconds": 1} for k in range(7)],
    }
    page = visit_plan(data, color_scheme=scheme)
    assert page.locator(".span").all_inner_texts() == [f"name {k}" for k in range(7)]
    found = [one for one in page.evaluate(CONTRAST) if 'class="span' in one[2]]
    assert len(found) == 7
    assert [one for one in found if one[0] < 4.5] == []


def test_print_has_all_figures_and_the_whole_table(visit_plan):
    page = visit_plan(plan_data(strategies=12), color_scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    page.set_viewport_size({"width": 690, "height": 980})  # A4 between its margins
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(28, 34, 38)"
    assert not page.locator(".slider").first.is_visible()
    assert not page.locator("nav").is_visible()
    assert page.locator("main svg[role=img]:visible").count() == 7
    assert page.locator(".tall .scroll").evaluate("box => box.scrollHeight <= box.clientHeight + 1")
    assert page.evaluate("document.documentElement.scrollWidth") == 690


def test_headings_landmarks_and_labels_for_screen_readers(visit_plan):
    page = visit_plan(plan_data())
    assert {name: wrong for name, wrong in page.evaluate(STRUCTURE).items() if wrong} == {}
    assert [page.get_by_role(role).count() for role in ("banner", "main", "contentinfo", "slider")] == [1, 1, 1, 3]
    levels = page.eval_on_selector_all("h1, h2, h3", "all => all.map(one => Number(one.tagName[1]))")
    assert levels[:2] == [1, 2]
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    links = page.eval_on_selector_all("nav a", "all => all.map(one => one.hash)")
    assert links == page.eval_on_selector_all("section", "all => all.map(one => `#${one.id}`)")
    assert (
        "one process: 17 s on 1 node; all-reduce: 33 s on 2 nodes, 48 s on 16"
        in page.locator("#time-figure desc").text_content()
    )
    assert page.locator(".timeline").get_attribute("aria-label").startswith("One step of 4 nodes, 11.1 ms")


def test_without_javascript_the_content_is_complete(visit_plan):
    data = plan_data()
    page = visit_plan(data, java_script_enabled=False)
    assert page.locator("main svg[role=img]:visible").count() == 7
    assert page.locator("#settings tbody tr").count() == len(data["rows"])
    assert page.locator(".timeline[role=img] .span:visible").count() == len(data["timeline"]["spans"])
    assert page.locator("button, input").count() == 0
    assert "A click" not in page.locator("#table").inner_text()
