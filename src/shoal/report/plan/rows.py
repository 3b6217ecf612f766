"""The rows of a plan by strategy: what figures, tables and sentences read."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from shoal.report.shell import words

# Up to so many runs are all drawn against time.
MOST_RUNS_DRAWN = 8
Data = dict[str, Any]
Row = dict[str, Any]
Points = list[tuple[float, float]]


@dataclass(frozen=True)
class StrategyRows:
    """The rows of a strategy, sorted by nodes; `place` decides its colour, dashes and marker."""

    place: int
    key: str
    label: str
    rows: list[Row] = field(default_factory=list)

    def points(self, quantity: str) -> list[tuple[int, float]]:
        """Nodes and value, where the value is known."""
        return [(row["nodes"], row[quantity]) for row in self.rows if words.known(row[quantity])]

    def row(self, nodes: int) -> Row | None:
        return next((row for row in self.rows if row["nodes"] == nodes), None)


def name_of(row: Row) -> str:
    """
    >>> name_of({"label": "local SGD", "nodes": 4}), name_of({"label": "one process", "nodes": 1})
    ('local SGD, 4 nodes', 'one process, 1 node')
    """
    return f"{row['label']}, {words.count(row['nodes'], 'node')}"


def by_strategy(data: Data) -> list[StrategyRows]:
    """In the order of the data."""
    found: dict[str, StrategyRows] = {}
    for row in data["rows"]:
        key = row["strategy"]
        found.setdefault(key, StrategyRows(len(found), key, row["label"])).rows.append(row)
    for one in found.values():
        one.rows.sort(key=lambda row: row["nodes"])
    return list(found.values())


def all_nodes(shown: list[StrategyRows]) -> list[int]:
    return sorted({row["nodes"] for one in shown for row in one.rows})


def fastest(rows: list[Row], key: str = "seconds") -> Row | None:
    return min((row for row in rows if words.known(row[key])), key=lambda row: row[key], default=None)


def several_nodes(data: Data) -> list[Row]:
    return [row for row in data["rows"] if row["nodes"] > 1]


def one_node(data: Data, key: str = "seconds") -> Row:
    """The fastest row on one node, which all others are compared with."""
    alone = [row for row in data["rows"] if row["nodes"] == 1]
    return fastest(alone, key) or alone[0]


def chosen(data: Data) -> Row:
    """The row that the verdict names."""
    named = data["verdict"]["strategy"], data["verdict"]["nodes"]
    return next(row for row in data["rows"] if (row["strategy"], row["nodes"]) == named)


def goal_of(data: Data) -> float | None:
    return data["goal"]["value"] if data["goal"] else None


# ---- the numbers of a row ----

# The key of a quantity, its name and its format.
Quantity = tuple[str, str, Callable[[Any], str | None]]


def quantities(metric: str) -> list[Quantity]:
    """The numbers of a row, in the order of the columns."""

    def score(value: Any) -> str:
        return words.score(value, metric)

    return [
        ("nodes", "nodes", words.count),
        ("seconds", "time in all", words.duration),
        ("start_seconds", "time to start", words.duration),
        ("seconds_per_epoch", "time of an epoch", words.duration),
        ("speedup", "speed-up", words.significant),
        ("improvement_percent", "time saved (PI)", words.saved),
        ("efficiency", "efficiency", words.small_percent),
        ("communication_share", "waits for the link", words.small_percent),
        ("accuracy", words.metric_name(metric), score),
        ("accuracy_low", "from", score),
        ("accuracy_high", "to", score),
        ("seconds_to_goal", "time to the goal", words.duration),
        ("bytes_per_node", "sent by a node", words.size),
        ("memory_bytes", "memory of a node", words.size),
        ("cost", "cost", words.significant),
    ]


# ---- runs: accuracy against time ----


def curve_points(curve: Row) -> Points:
    """The epochs before a run diverges."""
    return [(x, y) for x, y in zip(curve["seconds"], curve["accuracy"], strict=True) if words.known(y)]


def same_setting(curve: Row, row: Row) -> bool:
    return (row["strategy"], row["nodes"]) == (curve["strategy"], curve["nodes"])


def time_to_goal(data: Data, curve: Row) -> float | None:
    """None: never, or the plan has no goal."""
    return next(row["seconds_to_goal"] for row in data["rows"] if same_setting(curve, row))


def soonest_first(data: Data, curves: list[Row]) -> list[Row]:
    """Runs by the time to the goal; those that do not reach it, and all without a goal, by their end."""

    def order(curve: Row) -> tuple[float, float]:
        reached = time_to_goal(data, curve)
        return (math.inf if reached is None else reached, curve_points(curve)[-1][0])

    return sorted(curves, key=order)


def shown_curves(data: Data) -> list[Row]:
    """All runs; of many the verdict, one node, and the soonest run of each strategy on several nodes."""
    found = [curve for curve in data["curves"] if curve_points(curve)]
    if len(found) <= MOST_RUNS_DRAWN:
        return with_names(found)
    kept = [curve for row in (one_node(data), chosen(data)) for curve in found if same_setting(curve, row)]
    for key in dict.fromkeys(curve["strategy"] for curve in found):
        several = [curve for curve in found if curve["strategy"] == key and curve["nodes"] > 1]
        if several and not any(curve["strategy"] == key and curve["nodes"] > 1 for curve in kept):
            kept.append(soonest_first(data, several)[0])
    return with_names([curve for curve in found if any(curve is one for one in kept)])


def with_names(curves: list[Row]) -> list[Row]:
    """With a name for each run; one on one node alone is just that."""
    alone = [curve for curve in curves if curve["nodes"] == 1]
    return [{**curve, "name": "one node" if [curve] == alone else name_of(curve)} for curve in curves]
