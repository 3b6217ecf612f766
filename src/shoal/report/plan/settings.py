"""The full table: every setting of the plan, sortable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shoal.report.plan import numbers
from shoal.report.plan.strategies import Row, chosen, key_of, label_of
from shoal.report.shell import words
from shoal.report.shell.markup import Html, Section, column_head, join, paragraph, table, tag
from shoal.report.shell.prepare import compact

# Tables with more rows scroll in their own box.
LONG = 30


@dataclass(frozen=True)
class Column:
    key: str
    label: str
    formatted: Callable[[Any], str | None]
    numeric: bool = True


def columns(metric: str) -> list[Column]:
    def score(value: Any) -> str:
        return words.score(value, metric)

    name = words.metric_name(metric)
    return [
        Column("nodes", "nodes", words.count),
        Column("seconds", "time in all", numbers.duration),
        Column("start_seconds", "time to start", numbers.duration),
        Column("seconds_per_epoch", "time of an epoch", numbers.duration),
        Column("speedup", "speed-up", words.significant),
        Column("improvement_percent", "improvement (PI)", lambda value: f"{words.significant(value)}%"),
        Column("efficiency", "efficiency", numbers.percent),
        Column("communication_share", "waits for the link", numbers.percent),
        Column("accuracy", name, score),
        Column("accuracy_low", "from", score),
        Column("accuracy_high", "to", score),
        Column("seconds_to_goal", "time to the goal", numbers.duration),
        Column("bytes_per_node", "sent by a node", numbers.size),
        Column("memory_bytes", "memory of a node", numbers.size),
        Column("cost", "cost", words.significant),
        Column("note", "note", str, numeric=False),
    ]


def present(row: Row, column: Column) -> bool:
    value = row.get(column.key)
    return words.known(value) if column.numeric else bool(value)


def shown_columns(rows: list[Row], metric: str) -> list[Column]:
    """Without those that no row has a value for."""
    return [column for column in columns(metric) if any(present(row, column) for row in rows)]


def body_cell(row: Row, column: Column) -> Html:
    if not present(row, column):
        return tag("td", words.NOTHING if column.numeric else "", class_="number" if column.numeric else "note")
    value = row[column.key]
    order = compact(value, 9) if column.numeric else None
    return tag("td", column.formatted(value), class_="number" if column.numeric else "note", data_order=order)


def table_rows(data: dict[str, Any], found: list[Column], places: dict[str, int]) -> list[Html]:
    choice, rows = chosen(data), []
    for row in data["rows"]:
        label = label_of(row)
        named = join([label, tag("span", " verdict", class_="badge")]) if row is choice else label
        head = tag("th", named, scope="row", data_order=label)
        cells = [body_cell(row, column) for column in found]
        kind = "chosen" if row is choice else None
        rows.append(tag("tr", head, *cells, data_strategy=places[key_of(row)], class_=kind))
    return rows


def section(data: dict[str, Any], places: dict[str, int]) -> Section | None:
    if not data["rows"]:
        return None
    found = shown_columns(data["rows"], data["metric"])
    head = [column_head("strategy"), *[column_head(column.label, numeric=column.numeric) for column in found]]
    made = table(
        "Every setting of the plan", head, table_rows(data, found, places), id="settings", class_="board sortable"
    )
    long = len(data["rows"]) > LONG
    count = words.count(len(data["rows"]), "setting")
    text = f"All {count}." if len(data["rows"]) > 1 else "The only setting."
    intro = paragraph(
        text, tag("span", " A click on the name of a column sorts by it.", class_="with-script", hidden=True)
    )
    inner = tag("div", made, class_="tall" if long else None)
    return Section("table", "What does every setting cost?", "Table", join([intro, inner]), wide=True)
