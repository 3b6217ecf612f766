"""The leaderboard, and the plot of score against width: compact columns for the script, and what works without it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

from shoal.report.shell import words
from shoal.report.shell.markup import (
    NUMBER,
    TEXT,
    Columns,
    Section,
    column_head,
    data_table,
    join,
    paragraph,
    table,
    table_row,
    tag,
)
from shoal.report.shell.scales import tick_texts, ticks

# Columns that readers compare row by row: the same number of decimals in every row.
ALIGNED_COLUMNS = frozenset({"score", "fold_spread", "seed_spread", "loss"})
# These columns come first, so that a phone shows them without scrolling sideways; the others keep their order.
FIRST_COLUMNS = ["rank", "recipe", "score", "hidden", "activation", "stopped"]
ROWS_WITHOUT_SCRIPT = 25


@dataclass(frozen=True)
class LeaderboardColumn:
    """A column of the leaderboard. A value that is None is shown as a dash."""

    key: str
    label: str
    kind: str | None  # TEXT or NUMBER
    values: list[Any]

    def formatted(self, values: list[Any]) -> list[str]:
        write = str if self.kind == TEXT else number_format(self.key, self.values)
        return [words.NOTHING if value is None else write(value) for value in values]

    def for_script(self) -> dict[str, Any]:
        """Cells as codes into a list of distinct texts, which is small and fast; the code of a missing value is -1."""
        distinct = sorted({value for value in self.values if value is not None})
        texts = self.formatted(distinct)
        kept = list(dict.fromkeys(texts))
        places = {text: place for place, text in enumerate(kept)}
        code: dict[Any, int] = {value: places[text] for value, text in zip(distinct, texts, strict=True)}
        codes = [code.get(value, -1) for value in self.values]
        return {"key": self.key, "label": self.label, "number": self.kind == NUMBER, "texts": kept, "codes": codes}


def number_format(key: str, values: list[Any]) -> Callable[[Any], str]:
    """How the numbers of a column are written: as integers, with fixed decimals, or with three significant digits."""
    present = [abs(value) for value in values if value is not None]
    if all(isinstance(value, int) for value in present):
        return words.count
    largest = max(present)
    if key in ALIGNED_COLUMNS and largest < 1e5:
        return partial(words.fixed, decimals=max(0, 4 - max(0, math.floor(math.log10(largest)) if largest > 0 else 0)))
    return words.significant


def leaderboard_columns(board: dict[str, Any]) -> list[LeaderboardColumn]:
    places = {key: place for place, key in enumerate(FIRST_COLUMNS)}
    columns = []
    for place, column in enumerate(board["columns"]):
        kind = TEXT if column["kind"] == "text" else NUMBER
        columns.append(LeaderboardColumn(column["key"], column["label"], kind, [row[place] for row in board["rows"]]))
    return sorted(columns, key=lambda column: places.get(column.key, len(places)))


def values_by_key(columns: list[LeaderboardColumn], key: str) -> list[Any]:
    """All values of one column; empty if the leaderboard has no such column."""
    return next((column.values for column in columns if column.key == key), [])


def order_words(columns: list[LeaderboardColumn]) -> str:
    stopped = sum(value == "yes" for value in values_by_key(columns, "stopped"))
    last = f"Recipes that stopped early ({words.count(stopped)} here) come last, whatever their score. "
    return "Every recipe that was tried, best first. " + (last if stopped else "")


def leaderboard(columns: list[LeaderboardColumn]) -> Section:
    """The first page of the leaderboard. The script makes it sortable and adds the other pages."""
    rows = len(columns[0].values)
    shown = min(rows, ROWS_WITHOUT_SCRIPT)
    kinds = [(column.label, column.kind) for column in columns]
    texts = zip(*(column.formatted(column.values[:shown]) for column in columns), strict=True)
    head = [column_head(column.label, column.kind == NUMBER, data_key=column.key) for column in columns]
    body = [table_row(kinds, line) for line in texts]
    intro = paragraph(
        order_words(columns),
        "The fold spread shows how much the score depends on which rows are held out. The seed spread shows how much "
        "it depends on the random initial weights. Differences smaller than these spreads mean little.",
    )
    board = table("Leaderboard", head, body, id="leaderboard", class_="board")
    first = "" if rows <= shown else f"The first {shown} of {words.count(rows)}. "
    status = tag("p", f"{first}Turn on JavaScript to sort and filter all.", id="board-status", role="status")
    controls = tag("div", id="board-controls", hidden=True)
    pages = tag("div", id="board-pages", hidden=True)
    return Section("board", "Leaderboard", "Leaderboard", join([intro, controls, status, board, pages]), wide=True)


# ---- score against width ----


def by_activation(columns: list[LeaderboardColumn]) -> list[dict[str, Any]]:
    """The scores of each activation, best first: the text alternative to the scatter plot.

    As in the leaderboard, recipes that were trained to the end come before those that were stopped.
    """
    groups: dict[str, list[tuple[bool, float, Any]]] = {}
    stopped = values_by_key(columns, "stopped") or [""] * len(values_by_key(columns, "score"))
    rows = zip(*(values_by_key(columns, key) for key in ("activation", "score", "width")), stopped, strict=False)
    for activation, score, width, end in rows:
        if activation is not None and score is not None:
            groups.setdefault(activation, []).append((end != "yes", score, width))
    summary = []
    for activation, recipes in groups.items():
        finished, best, width = max(recipes, key=lambda recipe: recipe[:2])
        middle = median(score for _, score, _ in recipes)
        found = {"activation": activation, "count": len(recipes), "best": best, "median": middle}
        summary.append(found | {"width": width, "finished": finished})
    return sorted(summary, key=lambda group: (not group["finished"], -group["best"]))


def scatter(columns: list[LeaderboardColumn], metric: str) -> Section | None:
    """An empty element in which the script draws the plot, and the same data as a table."""
    groups = by_activation(columns)
    if not groups:
        return None
    best = groups[0]
    text = f"The first recipe of the leaderboard uses {best['activation']}"
    if words.known(best["width"]) and best["width"] > 0:
        text += f" with {words.count(best['width'], 'hidden neuron')}"
    text += ". If dots of every width are about equally high, width barely matters here."
    numbers = ("Recipes", "Best score", "Median score", "Width of the best")
    heads: Columns = [("Activation", TEXT), *[(name, NUMBER) for name in numbers]]
    rows = []
    for group in groups:
        score = words.score(group["best"], metric) + ("" if group["finished"] else " (stopped)")
        middle, width = words.score(group["median"], metric), words.count(group["width"])
        rows.append([group["activation"], words.count(group["count"]), score, middle, width])
    summary = data_table("activations", "Scores by activation", heads, rows)
    return Section("width", "Width and activation", "Width", join([paragraph(text), tag("div", id="scatter"), summary]))


def score_scale(columns: list[LeaderboardColumn]) -> dict[str, Any]:
    """The range and ticks of the plot. Very low outliers would compress it: they are drawn on its lower edge."""
    points = zip(*(values_by_key(columns, key) for key in ("activation", "width", "score")), strict=False)
    scores = sorted(point[2] for point in points if None not in point)
    if not scores:
        return {}
    most, tenth, low = scores[-1], scores[len(scores) // 10], scores[0]
    if most - low > 2.5 * (most - tenth) > 0:
        low = tenth - 0.35 * (most - tenth)
    room = (most - low) * 0.05 or abs(most) * 0.05 or 0.5
    marks = ticks(low - room, most + room, 5)
    clipped = sum(score < low for score in scores)
    return {
        "low": low - room, "high": most + room, "clipped": clipped, "ticks": marks, "texts": tick_texts(marks),
    }  # fmt: skip
