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
    has_nodes,
    key_of,
    label_of,
    one_node,
    quantities,
    time_of,
    with_time,
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
    "latency": ("latency", words.moment),
    "batch_size": ("batch size", words.count),
    "epochs": ("epochs", words.count),
    "rows": ("rows", words.count),
    "parameters": ("parameters", words.count),
    "seconds_per_row": ("time to compute a row", words.moment),
}


def headline(data: Data) -> Html:
    """The answer in large type, then the sentence of the plan."""
    verdict = data["verdict"]
    nodes, pays = verdict.get("nodes"), verdict.get("pays")
    answer = words.count(nodes, "node") if words.known(nodes) else {True: "Yes", False: "No"}.get(pays, "Open")
    does = {True: "More than one node pays.", False: "More than one node does not pay."}
    said = verdict.get("text") or does.get(pays, "The plan has no verdict.")
    return paragraph(tag("span", answer, class_="figure"), " ", tag("span", said), kind="headline")


def compared(data: Data, shown: list[StrategyRows], base: Row | None, choice: Row | None, key: str) -> list[Row]:
    """One node and the fastest row of each strategy, or the verdict, which may be chosen for another reason."""
    several = [[row for row in one.rows if row["nodes"] > 1] for one in shown]
    found = [row for rows in several if (row := fastest(rows, key))]
    if choice is not None and choice["nodes"] > 1 and words.known(choice.get(key)):
        found = [*(row for row in found if key_of(row) != key_of(choice)), choice]
    return sorted([*found, *([base] if base else [])], key=lambda row: row[key])


def bars(rows: list[Row], key: str, base: Row | None, choice: Row | None, what: str) -> Html:
    """The time of the fastest setting of each strategy, as bars; that of the verdict is emphasised."""
    if len(rows) < 2:
        return EMPTY
    longest = max(row[key] for row in rows)
    limit = min(longest, LONGEST_BAR * max(base[key], min(row[key] for row in rows))) if base else longest
    parts = []
    for place, row in enumerate(rows):
        y, emphasised = 34 * place, choice is not None and row is choice
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


def bar_name(row: Row, base: Row | None) -> str:
    name = f"{words.short(label_of(row), LONGEST_BAR_NAME)}, {words.count(row['nodes'], 'node')}"
    return "one node" if row is base else name


def break_even(data: Data) -> Html:
    """The values at which the verdict changes, each beside that of this plan."""
    compute = data["machine"].get("compute") or {}
    here = {**data["settings"], **(data["machine"].get("link") or {})}
    here["seconds_per_row"] = compute.get("seconds_per_row")
    rows, found = [], data["verdict"].get("break_even") or {}
    for key, value in found.items():
        if value is None or key == "nodes":
            continue
        name, formatted = BREAK_EVEN.get(key, (key.replace("_", " "), words.setting))
        now = formatted(here[key]) if here.get(key) is not None else words.NOTHING
        rows.append([name, now, strong(formatted(value))])
    if not rows:
        return EMPTY
    nodes = f" for {words.count(found['nodes'], 'node')}" if words.known(found.get("nodes")) else ""
    title = f"What would change the verdict{nodes}, each number alone"
    return data_table("break-even", title, [("", TEXT), ("here", NUMBER), ("changes at", NUMBER)], rows)


def comparison(data: Data, base: Row | None, other: Row | None) -> Html:
    """One node beside the choice, or beside the fastest of several nodes where one node is best."""
    if base is None or other is None or base is other:
        return EMPTY
    rows = []
    for key, name, formatted in quantities(data["metric"]):
        if key not in COMPARED:
            continue
        pair = [row.get(key) for row in (base, other)]
        if any(words.known(value) for value in pair):
            rows.append([name, *[formatted(value) if words.known(value) else words.NOTHING for value in pair]])
    title = "One node and the best choice" if other is chosen(data) else "One node and the fastest of several"
    name = join([label_of(other), tag("br"), words.count(other["nodes"], "node")])
    heads = [("", TEXT), ("one node", NUMBER), (name, NUMBER)]
    return data_table("comparison", title, heads, rows) if rows else EMPTY


def time_that_counts(data: Data, shown: list[StrategyRows]) -> tuple[str, str]:
    """The time to the goal, where one node and others reach it; else that of the whole training."""
    timed = with_time(data["rows"], "seconds_to_goal") if goal_of(data) is not None else []
    if any(row["nodes"] == 1 for row in timed) and any(row["nodes"] > 1 for row in timed):
        return "seconds_to_goal", "time to the goal"
    return time_of(shown)


def opening(data: Data, shown: list[StrategyRows]) -> Section | None:
    if not data["verdict"] and not data["rows"]:
        return None
    key, what = time_that_counts(data, shown)
    base, choice = one_node(data, key), chosen(data)
    choice = base if base and data["verdict"].get("nodes") == 1 else choice
    picture = bars(compared(data, shown, base, choice, key), key, base, choice, what)
    several = [row for row in data["rows"] if has_nodes(row) and row["nodes"] > 1]
    other = choice if choice is not None and choice["nodes"] > 1 else fastest(several, key)
    tables = join([comparison(data, base, other), break_even(data)])
    ended = paragraph(strong("The plan was interrupted."), " This report shows the results so far.")
    parts = [headline(data) if data["verdict"] else None, ended if data.get("interrupted") else None]
    parts.append(beside(tables, picture) if tables or picture else None)
    return Section("verdict", "Does it pay?", "Verdict", join(parts))
