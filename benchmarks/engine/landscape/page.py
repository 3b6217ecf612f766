"""The page of a landscape: its sections and the data for its script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.engine.landscape import sections
from shoal.files.json_values import plain
from shoal.report.shell import glossary, words
from shoal.report.shell.markup import tag
from shoal.report.shell.shell import Page, write

HERE = Path(__file__).parent
SCRIPTS = ("elements.js", "common.js", "sorting.js", HERE / "landscape.js")
STYLES = ("page.css", HERE / "landscape.css")
WORDS = {
    "Seed": glossary.SEARCH["Seed"],
    "Recipe": "Width, activation and learning rate: all that networks here differ in, but for their seed.",
    "Width": "The number of hidden neurons.",
    "Learning rate": "How far the weights move in a step.",
    "Epoch": "One pass over the rows a network is trained on.",
    "Rows to pick by": "Rows that no network is trained on, and by which the best one is found.",
    "Fresh rows": "Rows that nothing is trained on or decided by: what a network has on these is what it "
    "has on new data.",
    "Share of the variance": "How much smaller the differences between networks would be if this one choice "
    "were the same for all.",
}


def script_data(data: dict[str, Any]) -> dict[str, Any]:
    """Every recipe in the order of the maps' cells, activation by activation, and when tints begin."""
    names, rates, widths = data["activations"], len(data["rates"]), len(data["widths"])
    cells = []
    for k in range(len(names)):
        for place in ((w * len(names) + k) * rates + r for w in range(widths) for r in range(rates)):
            one = data["recipes"][place]
            means = [round(10_000 * float(value)) for value in one["by_epoch"].split()]
            end = f"{words.percent(one['lowest'], 1)} to {words.percent(one['highest'], 1)}"
            fresh = words.percent(one["fresh"], 1)
            cells.append({"name": sections.recipe_words(one), "means": means, "range": end, "fresh": fresh})
    starts = [round(10_000 * start, 2) for start in sections.tints_of(data).starts]
    return {"cells": cells, "starts": starts, "rates": rates, "widths": widths, "seeds": data["seeds"]}


def landscape_page(data: dict[str, Any]) -> str:
    """A landscape as one HTML page, from JSON values."""
    data = plain(data)
    shown = [
        sections.opening(data), sections.landscape_map(data), sections.choices(data), sections.picking(data),
        sections.recipes(data), sections.method(data), glossary.section(WORDS),
    ]  # fmt: skip
    heading = tag("h1", f"{words.count(data['networks'], 'network')} on ", tag("em", data["title"]))
    return Page(
        name="landscape", heading=heading, sections=shown, scripts=SCRIPTS, script_data=script_data(data), data=data,
        styles=STYLES,
    ).html()  # fmt: skip


def write_landscape_page(path: str | Path, data: dict[str, Any]) -> Path:
    """Write the page of a landscape; returns its path."""
    return write(landscape_page(data), path)
