"""The first section: does it pay, how sure is that, and which numbers would change it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shoal.report.plan import numbers
from shoal.report.plan.marks import shortened
from shoal.report.plan.strategies import (
    Row,
    Strategy,
    chosen,
    fastest,
    goal_of,
    has_nodes,
    key_of,
    label_of,
    one_node,
    time_of,
    with_time,
)
from shoal.report.shell import words
from shoal.report.shell.figures import WIDTH, drawing, text
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

# Bars longer than so many times the one of one node are cut off.
LONGEST_BAR = 3.0
# Characters of a strategy's name beside its time, on a phone.
LONGEST_NAME = 26


def headline(data: dict[str, Any]) -> Html:
    """The answer in large type, then the sentence of the plan."""
    verdict = data["verdict"]
    nodes = verdict.get("nodes")
    known = words.known(nodes)
    answer = numbers.nodes(nodes) if known else {True: "Yes", False: "No"}.get(verdict.get("pays"), "Open")
    said = verdict.get("text") or {
        True: "More than one node pays.",
        False: "More than one node does not pay.",
    }.get(verdict.get("pays"), "The plan has no verdict.")
    return paragraph(tag("span", answer, class_="figure"), " ", tag("span", said), kind="headline")


def best_of_each(shown: list[Strategy], key: str) -> list[Row]:
    """The fastest row of each strategy on several nodes."""
    several = [[row for row in one.rows if row["nodes"] > 1] for one in shown]
    return [row for rows in several if (row := fastest(rows, key))]


def bars(best: list[Row], key: str, base: Row | None, choice: Row | None, what: str) -> Html:
    """The time of the fastest setting of each strategy, as bars; that of the verdict is emphasised."""
    if len(best) < 2:
        return EMPTY
    longest = max(row[key] for row in best)
    limit = min(longest, LONGEST_BAR * max(base[key], min(row[key] for row in best))) if base else longest
    parts = []
    for place, row in enumerate(best):
        y, emphasised = 34 * place, choice is not None and row is choice
        kind = "row strong" if emphasised else "row"
        width = round(WIDTH * min(row[key], limit) / limit, 1)
        parts.append(text(0, y + 14, bar_name(row, base), kind))
        parts.append(text(WIDTH, y + 14, numbers.duration(row[key]), kind, "end"))
        if row[key] > limit:  # a torn end: the bar would be longer
            torn = f"M0 {y + 20}H{WIDTH - 6}l6 2l-6 2l6 2l-6 2H0z"
            parts.append(tag("path", d=torn, class_="rest-bar"))
        else:
            colour = "bar" if emphasised else "base-bar" if row is base else "rest-bar"
            parts.append(tag("rect", x=0, y=y + 20, width=width, height=8, class_=colour))
    description = "; ".join(f"{bar_name(row, base)} {numbers.duration(row[key])}" for row in best) + "."
    title = f"The fastest setting of each strategy: {what}"
    return drawing("verdict-figure", title, description, 34 * len(best), *parts)


def in_figure(best: list[Row], base: Row | None, choice: Row | None, key: str) -> list[Row]:
    """One node, and the verdict in place of the fastest of its strategy: it may be chosen for another reason."""
    found = best
    if choice is not None and choice["nodes"] > 1 and words.known(choice.get(key)):
        found = [*(row for row in best if key_of(row) != key_of(choice)), choice]
    return sorted([*found, *([base] if base else [])], key=lambda row: row[key])


def bar_name(row: Row, base: Row | None) -> str:
    return "one node" if row is base else f"{shortened(label_of(row), LONGEST_NAME)}, {numbers.nodes(row['nodes'])}"


UNITS = {
    "bandwidth": ("bandwidth", numbers.rate),
    "latency": ("latency", numbers.moment),
    "batch_size": ("batch size", words.count),
    "epochs": ("epochs", words.count),
    "rows": ("rows", words.count),
    "parameters": ("parameters", words.count),
    "seconds_per_row": ("time to compute a row", numbers.moment),
}


def break_even(data: dict[str, Any]) -> Html:
    """The values at which the verdict changes, each beside that of this plan."""
    link = data["machine"].get("link") or {}
    here = {
        **data["settings"],
        **link,
        "seconds_per_row": (data["machine"].get("compute") or {}).get("seconds_per_row"),
    }
    rows = []
    found = data["verdict"].get("break_even") or {}
    for key, value in found.items():
        if value is None or key == "nodes":
            continue
        name, formatted = UNITS.get(key, (key.replace("_", " "), numbers.value))
        now = formatted(here[key]) if here.get(key) is not None else words.NOTHING
        rows.append(tag("tr", row_head(name), cell(now, True), cell(strong(formatted(value)), True)))
    if not rows:
        return EMPTY
    head = [tag("td"), column_head("here", numeric=True), column_head("changes at", numeric=True)]
    nodes = f" for {numbers.nodes(found['nodes'])}" if words.known(found.get("nodes")) else ""
    title = f"What would change the verdict{nodes}, each number alone"
    return table(title, head, rows, id="break-even", class_="text")


def comparison(data: dict[str, Any], base: Row | None, other: Row | None) -> Html:
    """One node beside the choice, or beside the fastest of several nodes where one node is best."""
    if base is None or other is None or base is other:
        return EMPTY
    metric = data["metric"]
    lines: list[tuple[str, str, Callable[[Any], str | None]]] = [
        ("time in all", "seconds", numbers.duration),
        ("time to start", "start_seconds", numbers.duration),
        ("time of an epoch", "seconds_per_epoch", numbers.duration),
        (words.metric_name(metric), "accuracy", lambda value: words.score(value, metric)),
        ("time to the goal", "seconds_to_goal", numbers.duration),
        ("memory of a node", "memory_bytes", numbers.size),
        ("sent by a node", "bytes_per_node", numbers.size),
        ("cost", "cost", words.significant),
    ]
    rows = []
    for name, field, formatted in lines:
        pair = [row.get(field) for row in (base, other)]
        if any(words.known(value) for value in pair):
            cells = [cell(formatted(value) if words.known(value) else words.NOTHING, True) for value in pair]
            rows.append(tag("tr", row_head(name), *cells))
    title = "One node and the best choice" if other is chosen(data) else "One node and the fastest of several"
    name = join([label_of(other), tag("br"), numbers.nodes(other["nodes"])])
    head = [tag("td"), column_head("one node", True), column_head(name, True)]
    return table(title, head, rows, id="comparison", class_="text") if rows else EMPTY


def other_than(data: dict[str, Any], choice: Row | None, key: str) -> Row | None:
    """What one node is compared with."""
    if choice is not None and choice["nodes"] > 1:
        return choice
    return fastest([row for row in data["rows"] if has_nodes(row) and row["nodes"] > 1], key)


def time_that_counts(data: dict[str, Any], shown: list[Strategy]) -> tuple[str, str]:
    """The time to the goal, where one node and others reach it; else that of the whole training."""
    timed = with_time(data["rows"], "seconds_to_goal") if goal_of(data) is not None else []
    if any(row["nodes"] == 1 for row in timed) and any(row["nodes"] > 1 for row in timed):
        return "seconds_to_goal", "time to the goal"
    return time_of(shown)


def opening(data: dict[str, Any], shown: list[Strategy]) -> Section | None:
    if not data["verdict"] and not data["rows"]:
        return None
    key, what = time_that_counts(data, shown)
    base, choice = one_node(data, key), chosen(data)
    choice = base if base and data["verdict"].get("nodes") == 1 else choice
    best = in_figure(best_of_each(shown, key), base, choice, key)
    picture = bars(best, key, base, choice, what)
    if picture:
        others = "the verdict, one node, and each other strategy" if choice in best else "each strategy"
        cut = " Bars with a torn end are longer than shown." if 'd="M0 ' in picture else ""
        caption = f"The {what}: {others} at its fastest.{cut}"
        picture = tag("figure", picture, paragraph(caption, kind="small"))
    ended = paragraph(strong("The plan was interrupted."), " It shows what was known by then.")
    tables = join([comparison(data, base, other_than(data, choice, key)), break_even(data)])
    beside = tag("div", tag("div", tables), picture or None, class_="beside") if tables or picture else EMPTY
    return Section(
        "verdict",
        "Does it pay?",
        "Verdict",
        join([headline(data) if data["verdict"] else None, ended if data.get("interrupted") else None, beside]),
    )
