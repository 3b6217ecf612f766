"""What the paper on nodes prints (its tables 3 and 4 alone have numbers), and what follows from its seconds."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from benchmarks.papers.node_simulator.averaging import PAPER
from benchmarks.parallel.workers import performance_improvement

NOT_PUBLISHED = "not published"
SECONDS: dict[int, Mapping[int, float]] = {  # by table: seconds of so many nodes
    3: PAPER["1 hidden layer, 10 folds"],
    4: PAPER["3 hidden layers, split"],
}
PRINTED: dict[int, Mapping[int, float]] = {3: {2: 4.08, 4: 9.28, 8: 64.85}, 4: {2: 5.97, 4: -48.08}}  # PI
ROUNDED = 0.006  # what is printed with two digits may differ by so much


def against_one(seconds: Mapping[int, float]) -> dict[int, float]:
    """PI by the paper's formula.

    >>> {nodes: round(value, 2) for nodes, value in against_one(SECONDS[3]).items()}
    {2: 4.08, 4: 12.98, 8: 69.41}
    """
    return {nodes: performance_improvement(seconds[1], value) for nodes, value in seconds.items() if nodes > 1}


def against_previous(seconds: Mapping[int, float]) -> dict[int, float]:
    """By how much each row is faster than the row before it.

    >>> {nodes: round(value, 2) for nodes, value in against_previous(SECONDS[3]).items()}
    {2: 4.08, 4: 9.28, 8: 64.85}
    """
    return {
        nodes: performance_improvement(before, value)
        for (_, before), (nodes, value) in itertools.pairwise(sorted(seconds.items()))
    }


def printed_by(table: int) -> str:
    """How the PI that a table prints follows from its seconds: "formula", "previous row", or "neither"."""
    ways = {"formula": against_one, "previous row": against_previous}
    for name, way in ways.items():
        found = way(SECONDS[table])
        if all(abs(found[nodes] - value) < ROUNDED for nodes, value in PRINTED[table].items()):
            return name
    return "neither"


def seconds_cell(table: int, nodes: int) -> str:
    if table not in SECONDS:
        return NOT_PUBLISHED
    return f"{SECONDS[table][nodes]:,.2f}" if nodes in SECONDS[table] else "-"


def improvement_cell(table: int, nodes: int) -> str:
    """As printed; in brackets by the formula, where that is another number."""
    if table not in SECONDS:
        return NOT_PUBLISHED
    if nodes not in PRINTED[table]:
        return "-"
    printed, computed = PRINTED[table][nodes], against_one(SECONDS[table])[nodes]
    return f"{printed:.2f}" + (f" [{computed:.2f}]" if abs(printed - computed) >= ROUNDED else "")


def correction() -> str:
    """One sentence on the PI of table 3, computed from its seconds."""
    if printed_by(3) != "previous row":
        return "Table 3 prints PI by its own formula."
    wrong = [nodes for nodes, value in PRINTED[3].items() if abs(against_one(SECONDS[3])[nodes] - value) >= ROUNDED]
    printed = " and ".join(f"{PRINTED[3][nodes]:.2f}" for nodes in wrong)
    computed = " and ".join(f"{against_one(SECONDS[3])[nodes]:.2f}" for nodes in wrong)
    return (
        f"Table 3 of the paper prints PI against the previous row. By its own formula, against one node, its seconds "
        f"give {computed} in place of {printed}; table 4 agrees with the formula."
    )
