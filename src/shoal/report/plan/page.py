"""The report of a plan: its sections and the data for its script."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from shoal.files.json_values import plain
from shoal.report.plan import estimate, sections, timeline, verdict
from shoal.report.plan.rows import StrategyRows, by_strategy
from shoal.report.shell import glossary
from shoal.report.shell.markup import Html, Section, tag
from shoal.report.shell.shell import Page, write

SCRIPTS = ("elements.js", "common.js", "cursor.js", "plan.js", "sorting.js", "timeline.js")
STYLES = ("page.css", "plan.css")


def heading(data: dict[str, Any]) -> Html:
    if not data["what"]:
        return tag("h1", "Do more nodes pay?")
    return tag("h1", "Do more nodes pay for ", tag("em", data["what"]), "?")


def words_section(shown: list[StrategyRows]) -> Section:
    kinds = dict.fromkeys(re.split("[:-]", one.key)[0] for one in shown)  # local_sgd:8 is a local_sgd
    used = [glossary.STRATEGIES[kind] for kind in kinds if kind in glossary.STRATEGIES]
    return glossary.section(glossary.PLAN | dict(used))


def plan_page(data: dict[str, Any]) -> str:
    """A plan as one HTML page, from `Plan.as_dict` and the command that made it."""
    data = plain(data)
    shown = by_strategy(data)
    found = [
        verdict.opening(data, shown),
        sections.speed(data, shown),
        sections.accuracy(data, shown),
        sections.course(data, shown),
        timeline.section(data["timeline"]),
        sections.every_setting(data, shown),
        estimate.section(data),
        estimate.batch(data),
        sections.notes(data),
        words_section(shown),
    ]
    data["title"] = data["what"] or "plan"
    script_data = {"readings": sections.readings(data, shown)}
    return Page("plan", heading(data), [one for one in found if one], SCRIPTS, script_data, data, STYLES).html()


def write_plan_page(path: str | Path, data: dict[str, Any]) -> Path:
    """Write the page of a plan; returns its path."""
    return write(plan_page(data), path)
