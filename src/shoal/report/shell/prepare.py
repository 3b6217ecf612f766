"""Prepare a run's data for the page: plain values, a compact leaderboard, JSON that is safe inside a script element."""

from __future__ import annotations

import json
import math
from statistics import median
from typing import Any

# Columns that readers compare row by row: the same number of decimals in every row.
ALIGNED = frozenset({"score", "fold_spread", "seed_spread", "loss"})
# These columns come first, so that a phone shows them without scrolling sideways; the others keep their order.
FIRST = ["rank", "recipe", "score", "hidden", "activation", "stopped"]
LONGEST_CURVE = 400


def script_json(value: Any) -> str:
    """JSON for a script element: no `<`, so that neither `</script>` nor `<!--` in a user's string can end it.

    >>> script_json({"name": "</script>"})
    '{"name":"\\\\u003c/script\\\\u003e"}'
    """
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def compact(number: float | None, digits: int) -> float | int | None:
    """A number rounded to so many significant digits, to keep the page small.

    >>> compact(0.123456789, 4), compact(3.0, 4), compact(None, 4)
    (0.1235, 3, None)
    """
    if number is None or isinstance(number, int):
        return number
    shorter = float(f"{number:.{digits}g}")
    return int(shorter) if shorter.is_integer() and abs(shorter) < 1e15 else shorter


def number_style(key: str, values: list[Any]) -> tuple[str, int]:
    """Style and decimals of a column of numbers: integers, fixed decimals, or three significant digits."""
    present = [abs(value) for value in values if value is not None]
    if all(isinstance(value, int) for value in present):
        return "integer", 0
    largest = max(present)
    if key in ALIGNED and largest < 1e5:
        return "fixed", max(0, 4 - max(0, math.floor(math.log10(largest)) if largest > 0 else 0))
    return "significant", 0


def leaderboard_columns(board: dict[str, Any]) -> list[dict[str, Any]]:
    """Columns with their values. Texts are stored as codes into a list of distinct texts, which is small and fast."""
    columns = []
    keys = [column["key"] for column in board["columns"]]
    places = sorted(
        range(len(keys)), key=lambda place: FIRST.index(keys[place]) if keys[place] in FIRST else len(FIRST)
    )
    for place in places:
        column = board["columns"][place]
        values = [row[place] for row in board["rows"]]
        key = column["key"]
        described = {"key": key, "label": column.get("label") or key.replace("_", " ")}
        numbers = all(value is None or isinstance(value, int | float) for value in values)
        if column.get("kind") == "number" and numbers:
            values = [compact(value, 6 if key in ALIGNED else 4) for value in values]
            style, decimals = number_style(key, values)
            described |= {"style": style, "decimals": decimals, "values": values}
        else:
            texts = [None if value is None else str(value) for value in values]
            distinct = sorted({text for text in texts if text is not None})
            code = {text: index for index, text in enumerate(distinct)}
            described |= {"style": "text", "decimals": 0, "texts": distinct}
            described["codes"] = [-1 if text is None else code[text] for text in texts]
        columns.append(described)
    return columns


def cell_value(column: dict[str, Any], row: int) -> Any:
    if column["style"] == "text":
        code = column["codes"][row]
        return None if code < 0 else column["texts"][code]
    return column["values"][row]


def column_values(columns: list[dict[str, Any]], key: str) -> list[Any]:
    """All values of one column; empty if the leaderboard has no such column."""
    for column in columns:
        if column["key"] == key:
            length = len(column["codes"] if column["style"] == "text" else column["values"])
            return [cell_value(column, row) for row in range(length)]
    return []


def by_activation(columns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The scores of each activation, best first: the text alternative to the scatter plot.

    As in the leaderboard, recipes that were trained to the end come before those that were stopped.
    """
    groups: dict[str, list[tuple[bool, float, Any]]] = {}
    stopped = column_values(columns, "stopped") or [""] * len(column_values(columns, "score"))
    rows = zip(*(column_values(columns, key) for key in ("activation", "score", "width")), stopped, strict=False)
    for activation, score, width, end in rows:
        if activation is not None and score is not None:
            groups.setdefault(activation, []).append((end != "yes", score, width))
    summary = []
    for activation, members in groups.items():
        finished, best, width = max(members, key=lambda member: member[:2])
        middle = median(score for _, score, _ in members)
        summary.append(
            {
                "activation": activation,
                "count": len(members),
                "best": best,
                "median": middle,
                "width": width,
                "finished": finished,
            }
        )
    return sorted(summary, key=lambda group: (not group["finished"], -group["best"]))


def thinned(curve: dict[str, Any]) -> dict[str, Any]:
    """A curve with about LONGEST_CURVE points at most, all that a figure can show. The last epoch is kept."""
    epochs = curve["epochs"]
    step = math.ceil(len(epochs) / LONGEST_CURVE) or 1
    kept = [*range(0, len(epochs) - 1, step), len(epochs) - 1] if epochs else []
    series = {}
    for name in ("train", "valid"):
        values = curve.get(name) or []
        series[name] = [compact(values[place], 5) if place < len(values) else None for place in kept]
    return {**curve, "epochs": [epochs[place] for place in kept], **series}
