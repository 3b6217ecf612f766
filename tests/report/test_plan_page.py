"""The page of a plan as a file: its numbers, figures, tables and words. `test_plan_browser` opens it."""

from __future__ import annotations

import copy
import itertools
import math
import re
from importlib.resources import files

import numpy as np
import pytest
from support.pages import Outline
from support.plan_data import curve, plan_data

from shoal.report import plan_page, write_plan_page
from shoal.report.plan.figures import STYLES, shape
from shoal.report.plan.page import SCRIPTS
from shoal.report.plan.page import STYLES as SHEETS
from shoal.report.plan.timeline import Span, shares
from shoal.report.shell.figures import grid
from shoal.report.shell.scales import Axis, LogAxis

SECTIONS = ["verdict", "speed", "accuracy", "course", "step", "table", "estimate", "batch", "notes", "words"]


def text_of(page):
    """The text of a page, without a browser."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page.split('<main id="main"')[1].split("</main>")[0]))


def section(page, name):
    return page.split(f'<section id="{name}"')[1].split("</section>")[0]


def row_of(data, strategy, nodes):
    return next(row for row in data["rows"] if (row["strategy"], row["nodes"]) == (strategy, nodes))


# ---- the page as a file


def test_the_page_is_one_small_file_with_its_own_scripts_only(tmp_path):
    data = plan_data()
    before = copy.deepcopy(data)
    page = plan_page(data)
    outline = Outline()
    outline.feed(page)
    assert outline.addresses
    assert all(address.startswith(("#", "data:")) for address in outline.addresses)
    assert outline.tags.count("script") == 2
    assert len(page.encode()) < 130_000
    assert data == before
    assert write_plan_page(tmp_path / "page.html", data).read_text(encoding="utf-8") == page
    assert all(files("shoal.report").joinpath("assets", name).is_file() for name in (*SCRIPTS, *SHEETS))


def test_every_heading_is_a_question_and_the_verdict_comes_first():
    page = plan_page(plan_data())
    headings = re.findall(r'<h2 id="(\w+)-heading">([^<]*)', page)
    assert [address for address, _ in headings] == SECTIONS
    assert all(text.endswith("?") for _, text in headings[:-1])
    assert "Do more nodes pay for <em>mlp:784-1024-1024-10 on mnist</em>?" in page


def test_the_verdict_has_the_answer_and_what_would_change_it():
    data = plan_data()
    first = section(plan_page(data), "verdict")
    assert '<span class="figure">4 nodes</span>' in first
    assert data["verdict"]["text"] in first
    rows = re.findall(r"<tr>(.*?)</tr>", first.split('id="break-even"')[1])
    cells = [re.findall(r">([^<>]+)<", row) for row in rows]
    assert "for 2 nodes, each number alone" in first
    assert cells == [["here", "changes at"], ["bandwidth", "10 Gbit/s", "32 Gbit/s"], ["batch size", "128", "400"]]
    assert "local SGD<br>4 nodes" in first.split('id="comparison"')[1]


def test_where_one_node_is_best_it_is_compared_with_the_fastest_of_several():
    data = plan_data(pays=False)
    first = section(plan_page(data), "verdict")
    assert '<span class="figure">1 node</span>' in first
    best = min((row for row in data["rows"] if row["nodes"] > 1), key=lambda row: row["seconds"])
    assert f"{best['label']}<br>{best['nodes']} nodes" in first
    assert "No number of nodes is faster than" in plan_page(data)


def test_bars_of_slow_strategies_are_cut_off_and_the_caption_says_so():
    data = {**plan_data(), "goal": None}
    assert "torn end" not in plan_page(data)
    for row in data["rows"]:
        if row["strategy"] == "sharded":
            row["seconds"] *= 50
    page = section(plan_page(data), "verdict")
    assert "torn end" in page
    verdict, one = map(float, re.findall(r'width="([\d.]+)" height="8" class="ba(?:se-ba)?r"', page))
    seconds = [row_of(data, *key)["seconds"] for key in (("serial", 1), ("local_sgd", 4))]
    assert one / verdict == pytest.approx(seconds[0] / seconds[1], rel=0.01)


def test_with_a_goal_the_time_to_it_counts():
    data = plan_data()
    first = section(plan_page(data), "verdict")
    assert "The time to the goal: the verdict, one node, and each other strategy at its fastest" in first
    assert "one node 7.2 s" in first
    first = section(plan_page({**data, "goal": None}), "verdict")
    assert "The time of the whole training" in first
    assert "one node 17 s" in first


def test_one_node_is_one_bar_though_every_strategy_has_a_row_for_it():
    data = plan_data(strategies=4)
    alone = data["rows"][0]
    data["rows"] += [{**alone, "strategy": name, "label": name} for name in ("allreduce", "local_sgd", "sharded")]
    desc = re.search(r'id="verdict-figure-description">([^<]*)', plan_page(data))[1]
    assert desc.count("one node") == 1
    assert "1 node" not in desc.replace("1 nodes", "")
    assert "local SGD, 4 nodes 2.8 s" in desc


def test_an_interrupted_plan_says_so():
    assert "The plan was interrupted." in plan_page({**plan_data(), "interrupted": True})
    assert "interrupted" not in text_of(plan_page({**plan_data(), "interrupted": False}))


def test_of_many_runs_the_soonest_of_each_strategy_is_drawn():
    data = plan_data()
    few = section(plan_page(data), "course")
    assert "shows its soonest run" not in few
    data["curves"] = [curve(row["strategy"], row["nodes"]) for row in data["rows"]]
    many = section(plan_page(data), "course")
    assert "shows its soonest run" in many
    names = re.findall(r'<th scope="row">([^<]*)', many)
    assert len(names) == len({row["strategy"] for row in data["rows"]}) == 7
    # Local SGD on 4 nodes is the verdict; on 8 it is sooner at the goal.
    assert {"one node", "local SGD, 4 nodes", "pipeline, 8 nodes", "all-reduce, 2 nodes"} < set(names)


def test_numbers_of_the_data_are_in_the_table():
    data = plan_data()
    table = section(plan_page(data), "table")
    assert table.count("<tr data-strategy") == len(data["rows"])
    row = table.split('class="chosen"')[1].split("</tr>")[0]
    found = row_of(data, "local_sgd", 4)
    for text in ("4", "5.6 s", "3.08", "67.5%", "77%", "97.8%", "97.6%", "98.0%", "2.8 s", "131 MB"):
        assert f">{text}<" in row, text
    assert f'data-order="{found["seconds"]:.9g}"' in row
    assert "verdict" in row


def test_columns_without_any_value_are_left_out():
    data = plan_data()
    assert ">cost<" not in section(plan_page(data), "table")
    data["rows"][3]["cost"] = 0.25
    assert ">cost<" in section(plan_page(data), "table")
    for row in data["rows"]:
        row |= {"memory_bytes": None, "note": "", "efficiency": math.nan}
    heads = section(plan_page(data), "table").split("</thead>")[0]
    assert [name for name in ("memory", "note", "efficiency") if name in heads] == []
    assert "speed-up" in heads


def test_accuracy_that_is_lost_is_named_with_its_strategy():
    text = text_of(plan_page(plan_data()))
    assert "More nodes lose some of it with local SGD (up to 0.6 points, on 16). The others keep it." in text
    assert "No strategy loses any of it." in text_of(plan_page(plan_data(pays=False, strategies=4)))


def test_another_metric_has_its_own_name_and_no_percent_sign():
    data = plan_data(metric="r2")
    page = plan_page(data)
    assert "On one node the R\N{SUPERSCRIPT TWO} is 0.981" in text_of(page).replace(" .", ".").replace("  ", " ")
    assert "98.1%" not in page
    assert "98.1%" in plan_page(plan_data())


def test_a_goal_is_a_line_and_rings_where_runs_reach_it():
    data = plan_data()
    page = plan_page(data)
    reaching = [curve for curve in data["curves"] if max(curve["accuracy"]) >= 0.975]
    course = section(page, "course")
    assert course.count('class="goal"') == 1
    assert course.count('class="ring"') == len(reaching) == 5
    data["goal"]["value"] = 0.98
    for row in data["rows"]:
        row["seconds_to_goal"] = row["seconds"] if row["accuracy"] >= 0.98 else None
    assert section(plan_page(data), "course").count('class="ring"') == 3
    assert section(plan_page(data), "course").count(">never<") == 2
    page = plan_page({**data, "goal": None})
    assert 'class="goal"' not in page
    assert 'class="ring"' not in page


@pytest.mark.parametrize("count", [2, 12])
def test_strategies_differ_in_more_than_colour(count):
    page = plan_page(plan_data(strategies=count))
    items = re.findall(r'<li data-pick="\d+">(.*?)</li>', section(page, "speed"))
    assert len(items) == count
    signs = [re.findall(r'd="([^"]*)" class="(?:mark|route)', item)[1] for item in items]
    assert len(set(signs)) == count
    labels = re.findall(r'class="label">([^<]*)', section(page, "speed"))
    assert len(labels) == 2 * count  # a label at the end of each line, in both figures


def test_there_are_as_many_shapes_as_styles():
    sheet = files("shoal.report").joinpath("assets", "page.css").read_text(encoding="utf-8")
    assert len({shape(place, 0, 0, 1) for place in range(STYLES)}) == STYLES
    assert [place for place in range(STYLES + 1) if f".hue{place} {{" not in sheet] == [STYLES]


def test_labels_at_the_ends_of_lines_never_overlap():
    page = plan_page(plan_data(strategies=12, nodes=(1, 2, 4, 8, 16, 32, 64)))
    for figure in ("time-figure", "speedup-figure", "accuracy-figure", "course-figure"):
        drawn = page.split(f'id="{figure}"')[1].split("</svg>")[0]
        heights = sorted(float(y) for y in re.findall(r'y="([\d.]+)" class="label', drawn))
        assert len(heights) > 3
        assert min(after - before for before, after in itertools.pairwise(heights)) >= 12.9, figure
        assert 25 < heights[0] < heights[-1] < 260


def test_lines_are_at_the_positions_of_their_values():
    data = plan_data(strategies=2)
    drawn = plan_page(data).split('id="speedup-figure"')[1].split("</svg>")[0]
    path = re.search(r'd="M([^"]*)" class="route hue1"', drawn)[1]
    points = [tuple(map(float, spot.split())) for spot in path.split("L")]
    values = [row["speedup"] for row in data["rows"][1:]]
    steps = [after[0] - before[0] for before, after in itertools.pairwise(points)]
    assert max(steps) - min(steps) < 0.3  # twice the nodes are the same distance
    (x1, y1), (_, y2) = points[0], points[-1]
    ideal = re.search(r'd="M([^"]*)" class="ideal-line"', drawn)[1].split("L")
    (a, b), (c, d) = (tuple(map(float, ideal[place].split())) for place in (0, -1))
    assert (c - a) / (points[1][0] - x1) == pytest.approx(4, rel=0.05)  # from 1 to 16: four doublings
    unit = (b - d) / 4  # the height of a factor of two
    assert (y1 - y2) / unit == pytest.approx(math.log2(values[-1] / values[0]), abs=0.05)


def test_a_step_is_divided_into_computing_and_waiting():
    spans = [
        Span(node=0, lane="compute", name="a", start=0.0, seconds=4.0),
        Span(node=0, lane="link", name="b", start=3.0, seconds=3.0),  # one second is hidden
        Span(node=1, lane="compute", name="a", start=0.0, seconds=5.0),
    ]
    assert shares(spans, 10.0) == pytest.approx({"computing": 0.45, "waiting": 0.1, "idle": 0.45})
    assert "compute in 16% of that time and wait for the link in 80%; 4% is idle" in text_of(plan_page(plan_data()))


def test_a_bad_check_is_said_in_bold():
    data = plan_data()
    good = section(plan_page(data), "estimate")
    assert data["machine"]["check"]["text"] in good
    assert "Do not trust it" not in good
    data["machine"]["check"] = {"text": "Predicted 1 s, measured 2 s: 50% off.", "error": 0.5}
    assert "<strong>Predicted 1 s, measured 2 s: 50% off. Do not trust it" in section(plan_page(data), "estimate")


def test_the_fit_has_all_measured_points_and_its_numbers():
    data = plan_data()
    page = section(plan_page(data), "estimate")
    assert page.split('id="fit-figure"')[1].count('class="open"') == len(data["machine"]["compute"]["points"]) == 8
    assert "<strong>0.4 ms</strong> plus <strong>31 µs</strong> for each row" in page
    assert "each a machine like this one" in page
    data["machine"]["own_machines"] = False
    assert "share the cores of this machine" in plan_page(data)


def test_a_fit_with_a_large_spread_is_drawn_all_the_same():
    data = plan_data()
    data["machine"]["compute"]["spread"] = 0.8
    drawn = section(plan_page(data), "estimate").split('id="fit-figure"')[1]
    line = re.search(r'd="([^"]*)" class="valid"', drawn)[1]
    assert line.count("L") > 50


def test_settings_are_short_and_not_said_twice():
    data = plan_data(nodes=tuple(range(1, 17)))
    data["settings"] |= {"strategy": ["allreduce", "gossip"], "link": "a link"}
    page = section(plan_page(data), "estimate")
    assert "<dd>1 to 16</dd>" in page
    assert "gossip" not in page
    assert "a link" not in page


def test_several_steps_of_a_node_are_a_round():
    data = plan_data()
    assert "One step of all-reduce" in plan_page(data)
    data["timeline"]["spans"][0]["name"] = "1,200 steps"
    assert "One round of all-reduce" in plan_page(data)


def test_the_glossary_explains_the_strategies_of_the_plan_only():
    few = section(plan_page(plan_data(strategies=2)), "words")
    assert [term for term in ("Node", "All-reduce", "Efficiency", "Time saved (PI)") if term not in few] == []
    assert "Local SGD" not in few
    data = plan_data(strategies=2)
    data["rows"] += [{**row, "strategy": name} for row in data["rows"] for name in ("local_sgd:8", "local_sgd:epoch")]
    assert section(plan_page(data), "words").count("<dt>Local SGD</dt>") == 1
    assert "Local SGD" in section(plan_page(plan_data()), "words")


def test_many_settings_make_a_page_of_a_fair_size():
    data = plan_data(strategies=12, nodes=tuple(range(1, 65)))
    page = plan_page(data)
    assert len(data["rows"]) == 694
    assert len(page.encode()) < 900_000
    assert 'class="tall"' in page
    assert 'class="tall"' not in plan_page(plan_data())


def test_an_axis_of_logarithms_has_equal_distances_for_equal_factors():
    axis = LogAxis(1, 1000, 0, 300)
    assert [axis(value) for value in (1, 10, 100, 1000)] == [0, 100, 200, 300]
    assert [text for _, text in axis.marks(4)] == ["1", "10", "100", "1,000"]
    assert [text for _, text in LogAxis(0.2, 18, 0, 300).marks(4)] == ["0.3", "1", "3", "10"]
    assert [text for _, text in LogAxis(0.01, 0.03, 0, 300).marks(4)] == ["0.01", "0.02"]
    for low, high in ((1.1, 1.9), (3, 4), (1e-7, 1e7), (101, 102)):
        marks = LogAxis(low, high, 0, 300).marks(4)
        assert 1 <= len(marks) <= 7
        assert all(0 <= x <= 300 for x, _ in marks)
    assert "1,000" in grid(axis, Axis(0, 1, 100, 0), "", "")


def test_numbers_of_numpy_are_taken():
    data = plan_data(strategies=2)
    data["rows"] = [{**row, "nodes": np.int64(row["nodes"]), "speedup": np.float32(2.5)} for row in data["rows"]]
    data["curves"][0]["accuracy"] = np.asarray(data["curves"][0]["accuracy"])
    page = plan_page(data)
    assert ">2.5<" in section(page, "table")
    assert ">16<" in section(page, "table")


@pytest.mark.parametrize(("backend", "named"), [("threads", "threads"), ("processes", "processes"),
                                                ("mpi", "MPI processes")])  # fmt: skip
def test_nodes_on_one_machine_are_what_the_backend_makes_them(backend, named):
    data = plan_data()
    data["machine"] |= {"backend": backend, "own_machines": False}
    page = plan_page(data)
    assert f"The nodes are {named} that share the cores" in text_of(page)
    assert f"{named} on this machine" in text_of(page)
    for other in {"threads", "processes"} - {backend, named.split()[-1]}:
        assert other not in text_of(page.split('<section id="words"')[0] + "</main>")


def test_the_start_of_the_workers_is_in_the_tables():
    data = plan_data()
    for row in data["rows"]:
        row["start_seconds"] = 1.9 * (row["nodes"] > 1)
    data["verdict"]["break_even"] |= {"epochs": 85}
    page = plan_page(data)
    assert "time to start" in section(page, "table")
    assert re.search(r"time to start.*1\.9 s", section(page, "verdict"), re.DOTALL)
    assert re.search(r"epochs.*10.*85", section(page, "verdict"), re.DOTALL)


def test_scores_that_depend_on_the_seed_are_not_called_better_or_worse():
    data = {**plan_data(), "unstable": True}
    text = text_of(f'<main id="main"{section(plan_page(data), "accuracy")}</main>')
    assert "scores differ too much between seeds" in text
    assert "lose some of it" not in text


def test_figures_with_one_slider_have_the_same_nodes_across():
    data = plan_data(strategies=2)
    for row in data["rows"]:
        row["speedup"] = None if row["nodes"] == 16 else row["speedup"]
    page = plan_page(data)
    scales = [re.search(f'id="{name}-figure"[^>]*data-plot="([^"]*)"', page)[1] for name in ("time", "speedup")]
    assert scales[0] == scales[1]
