"""The page of `shoal explain`: for each row its prediction, and a bar for each column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shoal.json_values import plain
from shoal.report.search.columns import short
from shoal.report.shell import glossary, words
from shoal.report.shell.figures import line
from shoal.report.shell.markup import (
    Html,
    Section,
    cell,
    column_head,
    join,
    paragraph,
    row_head,
    strong,
    table,
    tag,
)
from shoal.report.shell.scales import Axis
from shoal.report.shell.shell import Page, write

COLUMNS_SHOWN = 10
BAR_WIDTH, BAR_HEIGHT = 300, 18
SCRIPTS = ("common.js",)
STYLES = ("page.css",)
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
    return words.significant(value, 4) if words.known(value) else short(value, 60)


def bar(one: Row, axis: Axis) -> Html:
    """From the middle to the right where a column raises the prediction, to the left where it lowers it."""
    zero, end, middle = axis(0.0), axis(one["adds"]), BAR_HEIGHT / 2
    kind = "bar" if one["adds"] >= 0 else "bar lowers"
    parts = [
        tag("rect", x=min(zero, end), y=3, width=round(abs(end - zero), 1), height=BAR_HEIGHT - 6, class_=kind),
        line(axis(one["adds"] - one["error"]), middle, axis(one["adds"] + one["error"]), middle, "whisker"),
        line(zero, 0, zero, BAR_HEIGHT, "axis"),
    ]
    box = f"0 0 {BAR_WIDTH} {BAR_HEIGHT}"
    return tag("svg", *parts, viewBox=box, preserveAspectRatio="none", class_="importance", aria_hidden="true")


def row_table(row: Row, columns: list[Row], caption: str, identity: str) -> Html:
    largest = max((abs(one["adds"]) + one["error"] for one in row["columns"]), default=0.0) or 1.0
    axis = Axis(-largest, largest, 2, BAR_WIDTH - 2)
    head = [
        column_head("Column"), column_head("Value in this row"), tag("td", class_="bars"),
        column_head("Adds", numeric=True), column_head("Give or take", numeric=True),
    ]  # fmt: skip
    rows = [
        tag(
            "tr",
            row_head(short(one["column"], 60)),
            cell(cell_words(one["value"])),
            cell(bar(one, axis), class_="bars"),
            cell(added(one["adds"], row["share"]), numeric=True),
            cell(added(one["error"], row["share"]).lstrip("+"), numeric=True),
        )
        for one in columns
    ]
    return table(caption, head, rows, id=identity, class_="text")


def row_words(row: Row, target: str) -> Html:
    """What the bars say, in a sentence or two."""
    share, first = row["share"], row["columns"][:2]
    parts: list[object] = [
        f"On average the model says {answer(row['mean'], share)}; for this row ",
        strong(answer(row["prediction"], share)), ". ",
    ]  # fmt: skip
    for place, one in enumerate(first):
        if one["adds"]:
            verb = "raises" if one["adds"] > 0 else "lowers"
            begin = "Most of all, " if not place else "Then "
            parts += [
                begin, tag("em", short(one["column"])), f" = {cell_words(one['value'])} {verb} it by ",
                added(abs(one["adds"]), share).lstrip("+"), ". ",
            ]  # fmt: skip
    return paragraph(*parts)


def row_section(row: Row, target: str) -> Section:
    said = answer(row["prediction"], row["share"])
    if row["answer"] is not None and row["share"]:
        said = f"{short(row['answer'])} ({said})"
    shown, rest = row["columns"][:COLUMNS_SHOWN], row["columns"][COLUMNS_SHOWN:]
    number = row["number"]
    parts = [
        row_words(row, target),
        row_table(row, shown, f"Row {number}: what each column adds", f"row-{number}-table"),
    ]
    if rest:
        total = added(sum(one["adds"] for one in rest), row["share"])
        more = row_table(row, rest, "Further columns", f"row-{number}-more")
        label = f"{words.count(len(rest), 'further column')}, together {total}"
        parts.append(tag("details", tag("summary", label), more))
    return Section(f"row-{number}", f"Row {number}: why {said}?", f"Row {number}", join(parts))


def reading(data: Row) -> Section:
    """How to read the bars."""
    how = (
        f"They are estimates from {words.count(data['walks'])} samples for each row; the line on a bar is the standard "
        "error, as is \N{LEFT DOUBLE QUOTATION MARK}give or take\N{RIGHT DOUBLE QUOTATION MARK}."
        if data.get("walks")
        else "They are exact."
    )
    body = paragraph(
        "Each row is compared with rows of the training data. A bar to the right: this value of the column raises the "
        "prediction; to the left: it lowers it. All bars of a row sum to its prediction less the average one. They say "
        f"what the model does with the columns, not what causes what. {how}"
    )
    return Section("reading", "How do I read this?", "How to read", body)


def why_page(data: dict[str, Any]) -> str:
    """The page of `shoal explain` as one HTML file, from JSON values."""
    data = plain(data)
    target = data.get("target") or "the target"
    sections = [reading(data), *[row_section(row, target) for row in data["rows"]], glossary.section(glossary.WHY)]
    return Page(
        name="explanation",
        heading=tag("h1", "Why this ", tag("em", target), "? Rows of ", tag("span", data["title"])),
        sections=sections,
        scripts=SCRIPTS,
        script_data={},
        data=data,
        styles=STYLES,
    ).html()


def write_why_page(data: dict[str, Any], path: str | Path) -> Path:
    """Write the page; returns its path."""
    return write(why_page(data), path)
