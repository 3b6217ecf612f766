"""The section on the columns: which of them matter, and which carry the same information."""

from __future__ import annotations

from typing import Any

from shoal.report.shell import words
from shoal.report.shell.figures import line
from shoal.report.shell.markup import (
    EMPTY,
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
from shoal.report.shell.scales import Axis, padded

COLUMNS_SHOWN = 12
COLUMNS_WRITTEN = 500
GROUPS_SHOWN = 5
BAR_WIDTH, BAR_HEIGHT = 300, 18
LONGEST_NAME = 40
Part = dict[str, Any]


def short(name: object, most: int = LONGEST_NAME) -> str:
    shown = str(name)
    return shown if len(shown) <= most else shown[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"


def drop(value: float, metric: str) -> str:
    """An importance: points where the score is a percentage, else a number.

    >>> drop(0.0417, "accuracy"), drop(0.0417, "r2"), drop(-0.0001, "accuracy")
    ('4.2', '0.042', '0.0')
    """
    value, decimals = (100 * value, 1) if words.is_share(metric) else (value, 3)
    if abs(value) >= 10 and decimals == 3:
        return words.significant(value)
    return words.fixed(round(value, decimals) or 0.0, decimals)


def importance_bar(one: Part, axis: Axis) -> Html:
    """The importance as a bar and its interval as a line; the numbers are in the table."""
    zero, middle = axis(0.0), BAR_HEIGHT / 2
    end = axis(max(one["importance"], 0.0))
    parts = [
        tag(
            "rect",
            x=zero,
            y=3,
            width=round(max(end - zero, 0), 1),
            height=BAR_HEIGHT - 6,
            class_="bar" if one["low"] > 0 else "idle",
        ),
        line(axis(one["low"]), middle, axis(one["high"]), middle, "whisker"),
        line(zero, 0, zero, BAR_HEIGHT, "axis"),
    ]
    return tag("svg", *parts, viewBox=f"0 0 {BAR_WIDTH} {BAR_HEIGHT}", preserveAspectRatio="none", class_="importance",
               aria_hidden="true")  # fmt: skip


def importance_table(caption: str, identity: str, columns: list[Part], metric: str, axis: Axis) -> Html:
    unit = "points" if words.is_share(metric) else words.metric_name(metric)
    head = [
        column_head("Column"), column_head(f"Worse by ({unit})", numeric=True), tag("td", class_="bars"),
        column_head("Likely between", numeric=True),
    ]  # fmt: skip
    rows = [
        tag(
            "tr",
            row_head(" + ".join(one["columns"])),
            cell(drop(one["importance"], metric), numeric=True),
            cell(importance_bar(one, axis), class_="bars"),
            cell(f"{drop(one['low'], metric)} and {drop(one['high'], metric)}", numeric=True),
            class_=None if one["low"] > 0 else "weak",
        )
        for one in columns
    ]
    return table(caption, head, rows, id=identity, class_="text")


def named(columns: list[str]) -> list[object]:
    """Names as a list in words.

    >>> "".join(named(["a", "b", "c"]))
    '<em>a</em>, <em>b</em> and <em>c</em>'
    """
    parts: list[object] = []
    for place, name in enumerate(columns):
        parts += ["" if not place else " and " if place == len(columns) - 1 else ", ", tag("em", short(name))]
    return parts


def first_words(found: Part, metric: str, target: str) -> Html:
    """What the table says, in two sentences."""
    columns = found["columns"]
    matter = [one for one in columns if one["low"] > 0]
    if not matter and not found["groups"]:
        return paragraph(
            strong("No column matters by itself, as far as can be told."), f" Shuffling any one of them changes the "
            f"predictions of {target} no more than chance would."
        )  # fmt: skip
    if not matter:
        return paragraph("No column matters by itself, but some do together: see below.")
    first = matter[0]
    rest = len(columns) - len(matter)
    parts: list[object] = [
        strong(short(first["columns"][0])), f" matters most for predicting {target}. ",
    ]  # fmt: skip
    if len(matter) > 1:
        parts += ["Next come ", *named([one["columns"][0] for one in matter[1:4]]), ". "] if len(matter) > 2 else [
            "Next comes ", *named([matter[1]["columns"][0]]), ". "
        ]  # fmt: skip
    if rest:
        of_all = f"{words.count(rest, 'column')} of {words.count(len(columns))}"
        parts.append(f"{of_all} {'is' if rest == 1 else 'are'} no help, as far as can be told (faint).")
    return paragraph(*parts)


def method_words(found: Part, metric: str) -> Html:
    times, rows = words.count(found["rounds"], "time"), words.count(found["rows"], "row")
    return paragraph(
        f"How it was measured: the cells of a column were shuffled among {rows} that the networks had not been trained "
        f"on, {times}, and the {words.metric_name(metric)} fell by so much. The line is the "
        f"{words.percent(found['confidence'])} confidence interval.",
        kind="small",
    )


def group_words(groups: list[Part], metric: str) -> Html:
    """Columns that stand in for each other."""
    if not groups:
        return EMPTY
    intro = paragraph(
        strong("Some columns carry the same information. "),
        "Without one of them the others fill in for it, so each looks less important than it is. Shuffled together:",
    )
    unit = " points" if words.is_share(metric) else ""
    items = [
        tag(
            "li",
            *named(list(group["columns"])),
            ": ",
            strong(drop(group["importance"], metric) + unit),
            f" (likely between {drop(group['low'], metric)} and {drop(group['high'], metric)})",
        )
        for group in groups[:GROUPS_SHOWN]
    ]
    return join([intro, tag("ul", *items, id="groups")])


def what_matters(data: Part) -> Section | None:
    found = (data.get("explanation") or {}).get("importance")
    if not found or not found.get("columns"):
        return None
    metric = found["metric"]
    target = (data.get("data") or {}).get("target") or "the target"
    columns = found["columns"][:COLUMNS_WRITTEN]
    axis = Axis(*padded([0.0, *[one[end] for one in columns for end in ("low", "high")]], 0.02), 2, BAR_WIDTH - 2)
    parts = [
        first_words(found, metric, target),
        importance_table(
            "How much worse the score gets without a column", "importance", columns[:COLUMNS_SHOWN], metric, axis
        ),
    ]
    rest = columns[COLUMNS_SHOWN:]
    if rest:
        more = importance_table("Further columns", "more-importance", rest, metric, axis)
        parts.append(tag("details", tag("summary", words.count(len(rest), "further column")), more))
    parts += [group_words(found.get("groups") or [], metric), method_words(found, metric)]
    if found.get("left_out"):
        count = words.count(len(found["left_out"]), "column")
        parts.append(paragraph(f"There was no time for {count}: give --explain-seconds.", kind="small"))
    return Section("matters", "What matters?", "What matters", join(parts))
