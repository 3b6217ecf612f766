"""The report of a search: its sections and the data for its script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shoal.files.json_values import plain
from shoal.report.search import columns, leaderboard, results, sections
from shoal.report.shell import glossary
from shoal.report.shell.figures import MARKER_SHAPES
from shoal.report.shell.markup import Section, tag
from shoal.report.shell.shell import Page, write
from shoal.report.shell.words import metric_name

SCRIPTS = ("elements.js", "common.js", "columns.js", "filter.js", "board.js", "scatter.js", "cursor.js")


def prepared(data: dict[str, Any]) -> dict[str, Any]:
    """A copy of the data as plain values, with shorter curves."""
    data = plain(data)
    curves = [results.thinned(curve) for curve in data["curves"]]
    return data | {"target": data["data"]["target"], "curves": curves}


def all_sections(data: dict[str, Any], board: list[leaderboard.LeaderboardColumn]) -> list[Section]:
    mistakes = None
    if data["confusion"]:
        mistakes = results.confusion(data["confusion"])
    elif data["residuals"]:
        mistakes = results.residuals(data["residuals"], data["target"])
    found = [
        sections.opening(data),
        columns.what_matters(data),
        columns.effects(data),
        columns.pairs(data),
        results.one_row(data["one_row"], data["target"]),
        sections.searched(data),
        leaderboard.leaderboard(board),
        leaderboard.scatter(board, data["score"]["metric"]),
        results.curves(data["curves"]),
        results.luck(data["luck"]),
        mistakes,
        results.calibration(data["calibration"]),
        sections.ensemble(data),
        sections.data_understood(data),
        sections.cost(data),
        glossary.section(glossary.SEARCH),
    ]
    return [section for section in found if section]


def search_page(data: dict[str, Any]) -> str:
    """The report of a search as one HTML page, from JSON values."""
    data = prepared(data)
    board = leaderboard.leaderboard_columns(data["leaderboard"])
    parts = data["ensemble"]["parts"] if data["ensemble"]["used"] else []
    heading = tag("h1", "Predicting ", tag("em", data["target"]), " in ", tag("span", data["title"]))
    script_data = {
        "columns": [column.for_script() for column in board],
        "metric": metric_name(data["score"]["metric"]),
        "chance": data["score"]["chance"],
        "ensemble": [part["recipe"] for part in parts],
        "scale": leaderboard.score_scale(board),
        "shapes": MARKER_SHAPES,
        "readings": columns.effect_readings(data) | results.curve_readings(data["curves"]),
    }
    return Page("search", heading, all_sections(data, board), SCRIPTS, script_data, data).html()


def write_search_page(data: dict[str, Any], path: str | Path) -> Path:
    """Write the report of a search; returns its path."""
    return write(search_page(data), path)
