"""The card of a plan."""

from __future__ import annotations

from typing import Any

from shoal.report.notebook.card import card, heading, small
from shoal.report.shell import words
from shoal.report.shell.markup import EMPTY, NUMBER, TEXT, Html, data_table, large_figure, paragraph, tag

ROWS_SHOWN = 8


def plan_card(plan: Any) -> Html:
    """The verdict, and the fastest rows."""
    scored = any(row.accuracy is not None for row in plan.rows)
    heads = [("Strategy", TEXT), ("Nodes", NUMBER), ("Time", NUMBER), ("Speed-up", NUMBER)]
    heads += [(words.capitalised(words.metric_name(plan.metric)), NUMBER)] if scored else []
    rows = sorted(plan.rows, key=lambda row: row.seconds)
    shown = [row for row in rows[:ROWS_SHOWN] if row is not plan.best]
    table = []
    for row in [plan.best, *shown]:
        cells = [row.label, words.count(row.nodes), words.duration(row.seconds), words.significant(row.speedup)]
        table.append(cells + ([words.score(row.accuracy, plan.metric)] if scored else []))
    rest = len(rows) - len(table)
    caption = "The best row first, then the fastest"
    return card(
        heading("Plan", words.short(plan.what, 80)), large_figure(words.count(plan.verdict.nodes, "node"), EMPTY),
        paragraph(plan.verdict.text), data_table("plan", caption, heads, table),
        small(f"{words.count(rest, 'more row')} in ", tag("code", "rows"), ".") if rest else EMPTY,
    )  # fmt: skip
