"""The page of a fine-tuning run: its sections and the data for its script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shoal.files.json_values import plain
from shoal.report.finetune import result as finetune_result
from shoal.report.finetune import sections
from shoal.report.finetune.log import STOPS, Series, all_series, merged, script_series, stops
from shoal.report.shell import glossary
from shoal.report.shell.markup import Html, Section, tag
from shoal.report.shell.shell import Page, write

SCRIPTS = ("common.js", "cursor.js", "course.js")
STYLES = ("page.css", "finetune.css")


def heading(data: dict[str, Any]) -> Html:
    model = (data.get("run") or {}).get("model")
    if not model:
        return tag("h1", data["title"])
    return tag("h1", "Fine-tuning ", tag("em", model), " on ", tag("span", data["title"]))


def all_sections(data: dict[str, Any], series: dict[str, Series]) -> list[Section]:
    found = [
        finetune_result.opening(data, series),
        sections.course(data, series),
        sections.samples(data),
        sections.training(data),
        sections.data_understood(data),
        glossary.section(glossary.FINETUNE),
    ]
    return [section for section in found if section]


def finetune_page(data: dict[str, Any]) -> str:
    """The report of a fine-tuning run as one HTML page, from JSON values."""
    series = all_series(merged(data.get("log")))
    # `merged` has converted the log; a second pass over it would take most of the time of a long run.
    data = plain({key: value for key, value in data.items() if key != "log"})
    data["title"] = data.get("title") or "fine-tuning"
    steps = stops(series, STOPS)
    return Page(
        name="fine-tuning",
        heading=heading(data),
        sections=all_sections(data, series),
        scripts=SCRIPTS,
        script_data={"steps": steps, "series": [script_series(one, steps) for one in series.values()]},
        data=data,
        styles=STYLES,
    ).html()


def write_finetune_page(data: dict[str, Any], path: str | Path) -> Path:
    """Write the report of a fine-tuning run; returns its path."""
    return write(finetune_page(data), path)
