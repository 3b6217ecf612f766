"""The rows of a plan by strategy: what figures, tables and sentences read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from shoal.report.plan import numbers
from shoal.report.shell import words

Row = dict[str, Any]


@dataclass(frozen=True)
class Strategy:
    """A strategy: its place decides colour, dashes and marker; its rows are sorted by nodes."""

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


def strategies(data: dict[str, Any]) -> list[Strategy]:
    """In the order of the data. A curve may have a strategy that no row has."""
    found: dict[str, Strategy] = {}
    for row in [*data["rows"], *data["curves"]]:
        key = key_of(row)
        if key not in found:
            found[key] = Strategy(len(found), key, label_of(row))
    for row in data["rows"]:
        if has_nodes(row):
            found[key_of(row)].rows.append(row)
    for one in found.values():
        one.rows.sort(key=lambda row: row["nodes"])
    return list(found.values())


def all_nodes(shown: list[Strategy]) -> list[int]:
    return sorted({row["nodes"] for one in shown for row in one.rows})


def time_of(shown: list[Strategy]) -> tuple[str, str]:
    """The key of the time to show, and what it is: the whole training if that is known, else an epoch."""
    whole = any(one.points("seconds") for one in shown)
    return ("seconds", "time of the whole training") if whole else ("seconds_per_epoch", "time of an epoch")


def with_time(rows: list[Row], key: str) -> list[Row]:
    return [row for row in rows if words.known(row.get(key)) and row[key] > 0 and has_nodes(row)]


def one_node(data: dict[str, Any], key: str) -> Row | None:
    """The fastest way on one node, which all others are compared with."""
    alone = [row for row in with_time(data["rows"], key) if row["nodes"] == 1]
    return min(alone, key=lambda row: row[key]) if alone else None


def fastest(rows: list[Row], key: str) -> Row | None:
    timed = with_time(rows, key)
    return min(timed, key=lambda row: row[key]) if timed else None


def name_of(row: Row) -> str:
    """
    >>> name_of({"label": "local SGD", "nodes": 4}), name_of({"label": "one process", "nodes": 1})
    ('local SGD, 4 nodes', 'one process, 1 node')
    """
    return f"{label_of(row)}, {numbers.nodes(row['nodes'])}" if has_nodes(row) else label_of(row)


def chosen(data: dict[str, Any]) -> Row | None:
    """The row that the verdict names."""
    verdict = data["verdict"]
    rows = [row for row in data["rows"] if has_nodes(row) and row["nodes"] == verdict.get("nodes")]
    same = [row for row in rows if row.get("strategy") == verdict.get("strategy")]
    return (same or (rows if verdict.get("nodes") == 1 else []) or [None])[0]


def goal_of(data: dict[str, Any]) -> float | None:
    """The goal, if it is one for the metric that the page shows."""
    value, metric = data["goal"].get("value"), data["goal"].get("metric")
    return value if words.known(value) and metric in (None, data["metric"]) else None
