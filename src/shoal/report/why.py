"""The page of `shoal explain`: for each row its prediction, and a bar for each column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shoal.report.shell import glossary, words
from shoal.report.shell.figures import BAR_WIDTH, signed_bar
from shoal.report.shell.markup import (
    BAR,
    NUMBER,
    TEXT,
    Html,
    Section,
    data_table,
    details,
    join,
    paragraph,
    strong,
    tag,
)
from shoal.report.shell.scales import Axis
from shoal.report.shell.shell import Page, checked, write

COLUMNS_SHOWN = 10
LONGEST_VALUE = 60
SCRIPTS = (
    "elements.js",
    "common.js",
)
Row = dict[str, Any]


def answer(value: float, share: bool) -> str:
    return words.percent(value, 1) if share else words.significant(value, 4)


def added(value: float, share: bool) -> str:
    """
    >>> added(0.1234, True), added(-1.5, False), added(0.0, True)
    ('+12.3 points', '-1.5', '0.0 points')
    """
    shown = words.fixed(100 * value, 1) + " points" if share else words.significant(value)
    return f"+{shown}" if value > 0 else shown


def cell_words(value: Any) -> str:
    if value is None:
        return "missing"
    return words.significant(value, 4) if words.known(value) else words.short(value, LONGEST_VALUE)


def row_table(row: Row, columns: list[Row], caption: str, identity: str) -> Html:
    """A bar to the right where a column raises the prediction, to the left where it lowers it."""
    largest = max((abs(one["adds"]) + one["error"] for one in row["columns"]), default=0.0) or 1.0
    axis = Axis(-largest, largest, 2, BAR_WIDTH - 2)
    heads = [("Column", TEXT), ("Value in this row", TEXT), ("", BAR), ("Adds", NUMBER), ("Standard error", NUMBER)]
    rows = []
    for one in columns:
        adds, error = one["adds"], one["error"]
        bar = signed_bar(axis, adds, adds - error, adds + error, "bar" if adds >= 0 else "bar lowers")
        numbers = [added(adds, row["share"]), added(error, row["share"]).lstrip("+")]
        rows.append([words.short(one["column"], LONGEST_VALUE), cell_words(one["value"]), bar, *numbers])
    return data_table(identity, caption, heads, rows)


def row_words(row: Row) -> Html:
    """What the bars say, in a sentence or two."""
    share, first = row["share"], row["columns"][:2]
    parts: list[object] = [f"On average the model predicts {answer(row['mean'], share)}; for this row "]
    parts += [strong(answer(row["prediction"], share)), ". "]
    for place, one in enumerate(first):
        if one["adds"]:
            verb = "raises" if one["adds"] > 0 else "lowers"
            parts += ["Most of all, " if not place else "Next, ", tag("em", words.short(one["column"]))]
            change = added(abs(one["adds"]), share).lstrip("+")
            parts.append(f" = {cell_words(one['value'])} {verb} it by {change}. ")
    return paragraph(*parts)


def row_section(row: Row) -> Section:
    said = answer(row["prediction"], row["share"])
    if row["answer"] is not None and row["share"]:
        said = f"{words.short(row['answer'])} ({said})"
    shown, rest = row["columns"][:COLUMNS_SHOWN], row["columns"][COLUMNS_SHOWN:]
    number = row["number"]
    parts = [
        row_words(row),
        row_table(row, shown, f"Row {number}: what each column adds", f"row-{number}-table"),
    ]
    if rest:
        total = added(sum(one["adds"] for one in rest), row["share"])
        more = row_table(row, rest, "Further columns", f"row-{number}-more")
        label = f"{words.count(len(rest), 'further column')}, together {total}"
        parts.append(details(label, more))
    return Section(f"row-{number}", f"Row {number}: why {said}?", f"Row {number}", join(parts))


def reading(data: Row) -> Section:
    """How to read the bars."""
    how = "They are exact."
    if data.get("walks"):
        how = f"They are estimates from {words.count(data['walks'])} samples; the line on a bar is the standard error."
    body = paragraph(
        "Each row is compared with rows of the training data. A bar to the right means that the value of the column "
        "raises the prediction, a bar to the left that it lowers it. The bars of a row sum to the difference between "
        f"its prediction and the average. They explain the model and do not show causes. {how}"
    )
    return Section("reading", "How to read this report", "How to read", body)


def why_page(data: dict[str, Any]) -> str:
    """The page of `shoal explain` as one HTML file, from JSON values."""
    data = checked(data, (), ("rows",))
    target = data.get("target") or "the target"
    sections = [reading(data), *[row_section(row) for row in data["rows"]], glossary.section(glossary.WHY)]
    heading = tag("h1", "Why this ", tag("em", target), "? Rows of ", tag("span", data["title"]))
    return Page("explanation", heading, sections, SCRIPTS, {}, data).html()


def write_why_page(data: dict[str, Any], path: str | Path) -> Path:
    """Write the page; returns its path."""
    return write(why_page(data), path)
