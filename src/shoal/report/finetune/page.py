"""The page of a fine-tuning run: its sections and the data for its script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shoal.files.json_values import plain
from shoal.report.finetune import sections
from shoal.report.finetune.log import all_series, merged, readings
from shoal.report.finetune.result import opening
from shoal.report.shell import glossary
from shoal.report.shell.markup import tag
from shoal.report.shell.shell import Page, write

SCRIPTS = ("elements.js", "common.js", "cursor.js")
STYLES = ("page.css", "finetune.css")


def finetune_page(data: dict[str, Any]) -> str:
    """The report of a fine-tuning run as one HTML page, from JSON values."""
    data = plain(data)
    series = all_series(merged(data["log"]))
    found = [
        opening(data, series),
        sections.course(data, series),
        sections.samples(data),
        sections.training(data),
        sections.data_understood(data),
        glossary.section(glossary.FINETUNE),
    ]
    heading = tag("h1", "Fine-tuning ", tag("em", data["run"]["model"]), " on ", tag("span", data["title"]))
    shown = [section for section in found if section]
    return Page("fine-tuning", heading, shown, SCRIPTS, {"readings": readings(series)}, data, STYLES).html()


def write_finetune_page(data: dict[str, Any], path: str | Path) -> Path:
    """Write the report of a fine-tuning run; returns its path."""
    return write(finetune_page(data), path)
