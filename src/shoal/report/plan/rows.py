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
        """Nodes and value, where both are known; of rows with equal nodes the first."""
        found: dict[int, float] = {}
        for row in self.rows:
            if words.known(row.get(quantity)):
                found.setdefault(row["nodes"], row[quantity])
        return list(found.items())

    def row(self, nodes: int) -> Row:
        return next((row for row in self.rows if row["nodes"] == nodes), {})


def key_of(row: Row) -> str:
    return str(row.get("strategy") or row.get("label") or "training")


def label_of(row: Row) -> str:
    return str(row.get("label") or row.get("strategy") or "training")


def has_nodes(row: Row) -> bool:
    return words.known(row.get("nodes")) and row["nodes"] >= 1


def name_of(row: Row) -> str:
    """
    >>> name_of({"label": "local SGD", "nodes": 4}), name_of({"label": "one process", "nodes": 1})
    ('local SGD, 4 nodes', 'one process, 1 node')
    """
    return f"{label_of(row)}, {words.count(row['nodes'], 'node')}" if has_nodes(row) else label_of(row)


def by_strategy(data: Data) -> list[StrategyRows]:
    """In the order of the data. A curve may have a strategy that no row has."""
    found: dict[str, StrategyRows] = {}
    for row in [*data["rows"], *data["curves"]]:
        found.setdefault(key_of(row), StrategyRows(len(found), key_of(row), label_of(row)))
    for row in sorted(filter(has_nodes, data["rows"]), key=lambda row: row["nodes"]):
        found[key_of(row)].rows.append(row)
    return list(found.values())


def all_nodes(shown: list[StrategyRows]) -> list[int]:
    return sorted({row["nodes"] for one in shown for row in one.rows})


def time_of(shown: list[StrategyRows]) -> tuple[str, str]:
    """The key of the time to show, and what it is: the whole training if that is known, else an epoch."""
    whole = any(one.points("seconds") for one in shown)
    return ("seconds", "time of the whole training") if whole else ("seconds_per_epoch", "time of an epoch")


def with_time(rows: list[Row], key: str) -> list[Row]:
    return [row for row in rows if words.known(row.get(key)) and row[key] > 0 and has_nodes(row)]


def fastest(rows: list[Row], key: str) -> Row | None:
    return min(with_time(rows, key), key=lambda row: row[key], default=None)


def one_node(data: Data, key: str) -> Row | None:
    """The fastest row on one node, which all others are compared with."""
    return fastest([row for row in data["rows"] if row.get("nodes") == 1], key)


def chosen(data: Data) -> Row | None:
    """The row that the verdict names."""
    verdict = data["verdict"]
    rows = [row for row in data["rows"] if has_nodes(row) and row["nodes"] == verdict.get("nodes")]
    same = [row for row in rows if row.get("strategy") == verdict.get("strategy")]
    return (same or (rows if verdict.get("nodes") == 1 else []) or [None])[0]


def goal_of(data: Data) -> float | None:
    """The goal, if it is one for the metric that the page shows."""
    value, metric = data["goal"].get("value"), data["goal"].get("metric")
    return value if words.known(value) and metric in (None, data["metric"]) else None


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
    pairs = zip(curve.get("seconds") or [], curve.get("accuracy") or [], strict=False)
    return [(x, y) for x, y in pairs if words.known(x) and words.known(y) and x >= 0]


def same_setting(curve: Row, row: Row) -> bool:
    return key_of(row) == key_of(curve) and row.get("nodes") == curve.get("nodes")


def time_to_goal(data: Data, curve: Row) -> float | None:
    """As the rows have it, else the first point of the curve at the goal; None without a goal."""
    goal = goal_of(data)
    if goal is None:
        return None
    for row in data["rows"]:
        if same_setting(curve, row) and words.known(row.get("seconds_to_goal")):
            return float(row["seconds_to_goal"])
    return next((seconds for seconds, value in curve_points(curve) if value >= goal), None)


def soonest_first(data: Data, curves: list[Row]) -> list[Row]:
    """Runs by the time to the goal; those that do not reach it, and all without a goal, by their end."""

    def order(curve: Row) -> tuple[float, float]:
        reached = time_to_goal(data, curve)
        return (math.inf if reached is None else reached, curve_points(curve)[-1][0])

    return sorted(curves, key=order)


def shown_curves(data: Data) -> list[Row]:
    """All runs; of many the verdict, one node, and the soonest run of each strategy on several nodes."""
    found = [curve for curve in data["curves"] if any(x > 0 for x, _ in curve_points(curve))]
    if len(found) <= MOST_RUNS_DRAWN:
        return with_names(found)
    one = one_node(data, "seconds") or one_node(data, "seconds_per_epoch")
    kept = [curve for row in (one, chosen(data)) for curve in found if row and same_setting(curve, row)]
    for key in dict.fromkeys(key_of(curve) for curve in found):
        several = [curve for curve in found if key_of(curve) == key and (curve.get("nodes") or 2) > 1]
        if several and key not in [key_of(curve) for curve in kept if curve.get("nodes") != 1]:
            kept.append(soonest_first(data, several)[0])
    return with_names([curve for curve in found if any(curve is one for one in kept)])


def with_names(curves: list[Row]) -> list[Row]:
    """With a name for each run; one on one node alone is just that."""
    alone = [curve for curve in curves if curve.get("nodes") == 1]
    return [{**curve, "name": "one node" if [curve] == alone else name_of(curve)} for curve in curves]
