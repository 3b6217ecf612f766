"""The report of a search: its sections and the data for its script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shoal.report.search import columns, leaderboard, results, sections
from shoal.report.shell import glossary
from shoal.report.shell.figures import MARKER_SHAPES
from shoal.report.shell.markup import Html, Section, tag
from shoal.report.shell.shell import Page, checked, write
from shoal.report.shell.words import metric_name

TASKS = ("classification", "regression", "multilabel")
SCRIPTS = ("common.js", "columns.js", "filter.js", "board.js", "scatter.js", "cursor.js")
OBJECTS = ("data", "search", "score", "explanation", "one_row", "ensemble", "luck", "calibration")


def checked_search(data: dict[str, Any]) -> dict[str, Any]:
    """A copy of the data as plain values, with a supported task, a title, a target and every part."""
    data = checked(data, OBJECTS, ("curves",))
    task = data.get("task")
    if task not in TASKS:
        raise ValueError(f"The task of a report is one of {', '.join(TASKS)}, got {task!r}; give one of these.")
    data["title"] = data.get("title") or "search"
    if isinstance(data["data"].get("target"), list):  # several outputs
        data["data"]["target"] = ", ".join(map(str, data["data"]["target"]))
    data["target"] = data["data"].get("target") or "the target"
    data["curves"] = [results.thinned(curve) for curve in data["curves"] if curve.get("epochs")]
    data["leaderboard"] = data.get("leaderboard") or {"columns": [], "rows": []}
    return data


def all_sections(data: dict[str, Any], board: list[leaderboard.Column]) -> list[Section]:
    mistakes = None
    if data.get("confusion"):
        mistakes = results.confusion(data["confusion"])
    elif data.get("residuals"):
        mistakes = results.residuals(data["residuals"], data["target"])
    found = [
        sections.opening(data),
        columns.what_matters(data),
        columns.effects(data),
        columns.pairs(data),
        results.one_row(data["one_row"], data["target"]),
        sections.searched(data),
        leaderboard.leaderboard(board, len(data["leaderboard"]["rows"])),
        leaderboard.scatter(board, data["score"].get("metric") or ""),
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


def heading(data: dict[str, Any]) -> Html:
    target = data["data"].get("target")
    if target is None:
        return tag("h1", data["title"])
    return tag("h1", "Predicting ", tag("em", target), " in ", tag("span", data["title"]))


def search_page(data: dict[str, Any]) -> str:
    """The report of a search as one HTML page, from JSON values."""
    data = checked_search(data)
    board = leaderboard.leaderboard_columns(data["leaderboard"])
    parts = data["ensemble"].get("parts") or [] if data["ensemble"].get("used") else []
    script_data = {
        "columns": board,
        "metric": metric_name(data["score"].get("metric") or ""),
        "chance": data["score"].get("chance"),
        "ensemble": [part["recipe"] for part in parts],
        "scale": leaderboard.score_scale(board),
        "shapes": MARKER_SHAPES,
        "readings": columns.effect_readings(data) | results.curve_readings(data["curves"]),
    }
    return Page("search", heading(data), all_sections(data, board), SCRIPTS, script_data, data).html()


def write_search_page(data: dict[str, Any], path: str | Path) -> Path:
    """Write the report of a search; returns its path."""
    return write(search_page(data), path)
