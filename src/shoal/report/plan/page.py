"""The page of a plan: its sections and the data for its script."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from shoal.json_values import plain
from shoal.report.plan import batch, estimate, sections, settings, timeline, verdict
from shoal.report.plan.readings import readings
from shoal.report.plan.strategies import Strategy, strategies
from shoal.report.shell import glossary
from shoal.report.shell.markup import Html, Section, tag
from shoal.report.shell.shell import Page, write

SCRIPTS = ("common.js", "cursor.js", "plan.js", "sorting.js", "timeline.js")
STYLES = ("page.css", "plan.css")
# What a plan may have. A part that is missing or None is empty.
OBJECTS = ("machine", "settings", "verdict", "goal", "timeline", "noise")
LISTS = ("rows", "curves", "notes")


def checked(data: dict[str, Any]) -> dict[str, Any]:
    """A copy with JSON values only, and with every part."""
    data = plain(data)
    for key in OBJECTS:
        data[key] = data.get(key) or {}
    for key in LISTS:
        data[key] = [part for part in data.get(key) or [] if part]
    for row in [*data["rows"], *data["curves"]]:
        if isinstance(row.get("nodes"), float):
            row["nodes"] = int(row["nodes"])
    data["what"] = data.get("what") or ""
    data["command"] = data.get("command") or ""
    data["metric"] = data.get("metric") or "accuracy"
    data["title"] = data["what"] or "plan"
    return data


def heading(data: dict[str, Any]) -> Html:
    if not data["what"]:
        return tag("h1", "Do more nodes pay?")
    return tag("h1", "Do more nodes pay for ", tag("em", data["what"]), "?")


def words_section(shown: list[Strategy]) -> Section:
    kinds = dict.fromkeys(re.split("[:-]", one.key)[0] for one in shown)  # local_sgd:8 is a local_sgd
    used = [glossary.STRATEGIES[kind] for kind in kinds if kind in glossary.STRATEGIES]
    return glossary.section([*glossary.PLAN[:2], *used, *glossary.PLAN[2:]])


def all_sections(data: dict[str, Any], shown: list[Strategy]) -> list[Section]:
    found = [
        verdict.opening(data, shown),
        sections.speed(data, shown),
        sections.accuracy(data, shown),
        sections.course(data, shown),
        timeline.section(data),
        settings.section(data, {one.key: one.place for one in shown}),
        estimate.section(data),
        batch.section(data),
        sections.notes(data),
        words_section(shown),
    ]
    return [section for section in found if section]


def plan_page(data: dict[str, Any]) -> str:
    """A plan as one HTML page, from JSON values."""
    data = checked(data)
    shown = strategies(data)
    return Page(
        name="plan",
        heading=heading(data),
        sections=all_sections(data, shown),
        scripts=SCRIPTS,
        script_data={"readings": readings(data, shown)},
        data=data,
        styles=STYLES,
    ).html()


def write_plan_page(path: str | Path, data: dict[str, Any]) -> Path:
    """Write the page of a plan; returns its path."""
    return write(plan_page(data), path)
