"""The first section: does it pay, how sure is that, and which numbers would change it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shoal.report.plan.rows import (
    Data,
    Row,
    StrategyRows,
    chosen,
    fastest,
    goal_of,
    name_of,
    one_node,
    quantities,
    several_nodes,
)
from shoal.report.shell import words
from shoal.report.shell.figures import WIDTH, drawing, text
from shoal.report.shell.markup import (
    EMPTY,
    NUMBER,
    TEXT,
    Html,
    Section,
    beside,
    data_table,
    join,
    paragraph,
    strong,
    tag,
)

# Bars longer than so many times the one of one node are cut off.
LONGEST_BAR = 3.0
# Characters of a strategy's name beside its time, on a phone.
LONGEST_BAR_NAME = 26
COMPARED = {"seconds", "start_seconds", "seconds_per_epoch", "accuracy", "seconds_to_goal", "cost"}
COMPARED |= {"bytes_per_node", "memory_bytes"}
# How the numbers that may change the verdict are named and formatted.
BREAK_EVEN: dict[str, tuple[str, Callable[[Any], str | None]]] = {
    "bandwidth": ("bandwidth", words.rate),
    "batch_size": ("batch size", words.count),
    "epochs": ("epochs", words.count),
}


def headline(data: Data) -> Html:
    """The answer in large type, then the sentence of the plan."""
    verdict = data["verdict"]
    answer = tag("span", words.count(verdict["nodes"], "node"), class_="figure")
    return paragraph(answer, " ", tag("span", verdict["text"]), kind="headline")


def compared(shown: list[StrategyRows], base: Row, choice: Row, key: str) -> list[Row]:
    """One node and the fastest row of each strategy, or the verdict, which may be chosen for another reason."""
    several = [[row for row in one.rows if row["nodes"] > 1] for one in shown]
    found = [row for rows in several if (row := fastest(rows, key))]
    if choice["nodes"] > 1 and words.known(choice[key]):
        found = [*(row for row in found if row["strategy"] != choice["strategy"]), choice]
    return sorted([*found, base], key=lambda row: row[key])


def bars(rows: list[Row], key: str, base: Row, choice: Row, what: str) -> Html:
    """The time of the fastest setting of each strategy, as bars; that of the verdict is emphasised."""
    if len(rows) < 2:
        return EMPTY
    longest = max(row[key] for row in rows)
    limit = min(longest, LONGEST_BAR * base[key])
    parts = []
    for place, row in enumerate(rows):
        y, emphasised = 34 * place, row is choice
        kind = "row strong" if emphasised else "row"
        parts.append(text(0, y + 14, bar_name(row, base), kind))
        parts.append(text(WIDTH, y + 14, words.duration(row[key]), kind, "end"))
        if row[key] > limit:  # a torn end: the bar would be longer
            parts.append(tag("path", d=f"M0 {y + 20}H{WIDTH - 6}l6 2l-6 2l6 2l-6 2H0z", class_="rest-bar"))
        else:
            colour = "bar" if emphasised else "base-bar" if row is base else "rest-bar"
            parts.append(tag("rect", x=0, y=y + 20, width=round(WIDTH * row[key] / limit, 1), height=8, class_=colour))
    description = "; ".join(f"{bar_name(row, base)} {words.duration(row[key])}" for row in rows) + "."
    title = f"The fastest setting of each strategy: {what}"
    drawn = drawing("verdict-figure", title, description, 34 * len(rows), *parts)
    others = "the verdict, one node, and each other strategy" if choice in rows else "each strategy"
    cut = " Bars with a torn end are longer than shown." if longest > limit else ""
    return tag("figure", drawn, paragraph(f"The {what}: {others} at its fastest.{cut}", kind="small"))


def bar_name(row: Row, base: Row) -> str:
    return "one node" if row is base else name_of({**row, "label": words.short(row["label"], LONGEST_BAR_NAME)})


def break_even(data: Data) -> Html:
    """The values at which the verdict changes, each beside that of this plan."""
    here, found = {**data["settings"], **data["machine"]["link"]}, data["verdict"]["break_even"]
    rows = [
        [name, formatted(here[key]), strong(formatted(found[key]))]
        for key, (name, formatted) in BREAK_EVEN.items()
        if key in found
    ]
    if not rows:
        return EMPTY
    nodes = f" for {words.count(found['nodes'], 'node')}" if "nodes" in found else ""
    title = f"What would change the verdict{nodes}, each number alone"
    return data_table("break-even", title, [("", TEXT), ("here", NUMBER), ("changes at", NUMBER)], rows)


def comparison(data: Data, base: Row, other: Row) -> Html:
    """One node beside the choice, or beside the fastest of several nodes where one node is best."""
    rows = []
    for key, name, formatted in quantities(data["metric"]):
        pair = [row[key] for row in (base, other)]
        if key in COMPARED and any(words.known(value) for value in pair):
            rows.append([name, *[formatted(value) if words.known(value) else words.NOTHING for value in pair]])
    title = "One node and the best choice" if other is chosen(data) else "One node and the fastest of several"
    name = join([other["label"], tag("br"), words.count(other["nodes"], "node")])
    return data_table("comparison", title, [("", TEXT), ("one node", NUMBER), (name, NUMBER)], rows)


def time_that_counts(data: Data) -> tuple[str, str]:
    """The time to the goal, where one node and others reach it; else that of the whole training."""
    reached = {row["nodes"] > 1 for row in data["rows"] if words.known(row["seconds_to_goal"])}
    if goal_of(data) is not None and len(reached) == 2:
        return "seconds_to_goal", "time to the goal"
    return "seconds", "time of the whole training"


def opening(data: Data, shown: list[StrategyRows]) -> Section:
    key, what = time_that_counts(data)
    base, choice = one_node(data, key), chosen(data)
    choice = base if choice["nodes"] == 1 else choice
    picture = bars(compared(shown, base, choice, key), key, base, choice, what)
    other = choice if choice["nodes"] > 1 else fastest(several_nodes(data), key)
    tables = join([comparison(data, base, other) if other else None, break_even(data)])
    ended = paragraph(strong("The plan was interrupted."), " This report shows the results so far.")
    parts = [headline(data), ended if data["interrupted"] else None]
    parts.append(beside(tables, picture) if tables or picture else None)
    return Section("verdict", "Does it pay?", "Verdict", join(parts))
