"""The page of a search: its sections and the data for its script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shoal.json_values import plain
from shoal.report.search import effects, results, sections
from shoal.report.search.columns import what_matters
from shoal.report.search.one_row import one_row
from shoal.report.shell import glossary
from shoal.report.shell.markup import Html, Section, tag
from shoal.report.shell.prepare import leaderboard_columns, thinned
from shoal.report.shell.shell import Page, scripts, write
from shoal.report.shell.words import metric_name

TASKS = ("classification", "regression", "multilabel")
SCRIPTS = ("common.js", "columns.js", "filter.js", "board.js", "scatter.js", "cursor.js", "curves.js", "effects.js")


def script_text() -> str:
    return scripts(SCRIPTS)


def all_sections(data: dict[str, Any], columns: list[dict[str, Any]], curves: list[dict[str, Any]]) -> list[Section]:
    metric = (data.get("score") or {}).get("metric") or ""
    target = (data.get("data") or {}).get("target") or "the target"
    rows = (data.get("leaderboard") or {}).get("rows") or []
    mistakes = None
    if data.get("confusion"):
        mistakes = results.confusion(data["confusion"])
    elif data.get("residuals"):
        mistakes = results.residuals(data["residuals"], target)
    found = [
        sections.opening(data),
        what_matters(data),
        effects.effects(data),
        effects.pairs(data),
        one_row(data.get("one_row"), target),
        sections.searched(data),
        results.leaderboard(columns, len(rows)),
        results.scatter(columns, metric),
        results.curves(curves),
        results.luck(data.get("luck")),
        mistakes,
        results.calibration(data.get("calibration")),
        sections.ensemble(data),
        sections.data_understood(data),
        sections.cost(data),
        glossary.section(glossary.SEARCH),
    ]
    return [section for section in found if section]


def heading(data: dict[str, Any]) -> Html:
    target = (data.get("data") or {}).get("target")
    if target is None:
        return tag("h1", data["title"])
    return tag("h1", "Predicting ", tag("em", target), " in ", tag("span", data["title"]))


def checked(data: dict[str, Any]) -> dict[str, Any]:
    """A copy of the data as plain values, with a supported task and a title."""
    data = plain(data)
    task = data.get("task")
    if task not in TASKS:
        raise ValueError(f"The task of a report is one of {', '.join(TASKS)}, got {task!r}; give one of these.")
    data["title"] = data.get("title") or "search"
    if data.get("data") and isinstance(data["data"].get("target"), list):  # several outputs
        data["data"]["target"] = ", ".join(map(str, data["data"]["target"]))
    return data


def script_data(data: dict[str, Any], columns: list[dict[str, Any]], curves: list[dict[str, Any]]) -> dict[str, Any]:
    """The data for the script: every recipe, and the values of the learning curves."""
    score, ensemble = data.get("score") or {}, data.get("ensemble") or {}
    parts = ensemble.get("parts") or [] if ensemble.get("used") else []
    return {
        "columns": columns,
        "metric": metric_name(score.get("metric") or ""),
        "chance": score.get("chance"),
        "ensemble": [part["recipe"] for part in parts],
        "effects": effects.script_effects(data),
        "curves": [{key: curve[key] for key in ("epochs", "train", "valid")} for curve in curves],
    }


def search_page(data: dict[str, Any]) -> str:
    """The report of a search as one HTML page, from JSON values."""
    data = checked(data)
    columns = leaderboard_columns(data.get("leaderboard") or {"columns": [], "rows": []})
    curves = [thinned(curve) for curve in data.get("curves") or [] if curve.get("epochs")]
    shown = all_sections(data, columns, curves)
    return Page(
        name="search",
        heading=heading(data),
        sections=shown,
        scripts=SCRIPTS,
        script_data=script_data(data, columns, curves),
        data=data,
    ).html()


def write_search_page(data: dict[str, Any], path: str | Path) -> Path:
    """Write the report of a search; returns its path."""
    return write(search_page(data), path)
