"""For each table of the paper one sentence: whether what is concluded from it differs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from benchmarks.papers.node_simulator.lookup import Entry, averaging_share, find, improvement, lost, points
from benchmarks.papers.node_simulator.printed import PRINTED, SECONDS, against_one
from benchmarks.papers.node_simulator.start import Mean, cause, losses

if TYPE_CHECKING:
    from benchmarks.papers.node_simulator.study import Study

SAME, OTHER = "as in the paper", "unlike in the paper"


def agreed(same: bool) -> str:
    return SAME if same else OTHER


def falls(change: Mean) -> bool:
    return change.sure and change.value > 0


def fallen(change: Mean) -> str:
    """What became of accuracy, in words."""
    return f"falls by {points(change)}" if falls(change) else f"does not fall for sure (by {points(change)})"


def table2(study: Study, text: list[Entry]) -> str:
    """The paper: accuracy falls; from 4 nodes on, averaging takes more time than splitting saves."""
    many = max(study.nodes)
    wanted: dict[str, Any] = {"layers": 1, "variant": "split, end"}
    last = find(text, nodes=many, **wanted)
    change = lost(find(text, nodes=1, **wanted), last)
    own, shared = averaging_share(last, "own"), averaging_share(last, "shared")
    dominates = improvement(text, many, "own", **wanted) <= 0 and own > 0.5
    words = "dominates" if dominates else "does not dominate"
    return (
        f"Table 2: from 1 to {many} nodes accuracy {fallen(change)}, {agreed(falls(change))}; averaging takes "
        f"{own:.2%} of the predicted seconds on machines of their own and {shared:.2%} where nodes share this one, so "
        f"it {words} what splitting saves, {agreed(dominates)}."
    )


def table3(study: Study, text: list[Entry]) -> str:
    """The paper: without the time of averaging, 8 nodes save 65%; folds on each node keep the accuracy of one node."""
    many = max(study.nodes)
    wanted: dict[str, Any] = {"layers": 1, "variant": "split, folds"}
    saved = improvement(text, many, "own", "computing", **wanted)
    one, folds = find(text, nodes=1, **wanted), find(text, nodes=many, **wanted)
    change = lost(one, folds)
    against = lost(find(text, nodes=many, layers=1, variant="split, end"), folds)
    better = against.sure and against.value < 0
    theirs = f"; the paper: {PRINTED[3][many]:.2f}, by its formula {against_one(SECONDS[3])[many]:.2f}" \
        if many in PRINTED[3] else ""  # fmt: skip
    return (
        f"Table 3: without averaging, {many} nodes have a PI of {saved:.1f} ({folds['epochs']:.0f} epochs, one node "
        f"{one['epochs']:.0f}{theirs}): they are {'faster' if saved > 0 else 'not faster'}, {agreed(saved > 0)}; "
        f"with folds on each node accuracy {fallen(change)}, {agreed(not falls(change))}, and folds make the average "
        f"{'better' if better else 'no better for sure'} than none do."
    )


def table4(study: Study, text: list[Entry]) -> str:
    """The paper: with 3 hidden layers 2 nodes are a little faster, 4 nodes are slower than one."""
    counts = [nodes for nodes in study.nodes if nodes in PRINTED[4]] or [max(study.nodes)]
    wanted: dict[str, Any] = {"layers": 3, "variant": "split, end"}
    found = {nodes: improvement(text, nodes, "own", **wanted) for nodes in counts}
    same = all((found[nodes] > 0) == (PRINTED[4].get(nodes, 0) > 0) for nodes in counts)
    change = lost(find(text, nodes=1, **wanted), find(text, nodes=counts[-1], **wanted))
    listed = ", ".join(f"{found[nodes]:.1f} on {nodes}" for nodes in counts)
    theirs = ", ".join(f"{PRINTED[4][nodes]:.2f}" for nodes in counts if nodes in PRINTED[4]) or "none"
    return (
        f"Table 4: with 3 hidden layers PI is {listed} nodes (the paper: {theirs}): more nodes are "
        f"{'faster' if found[counts[-1]] > 0 else 'not faster'} than one, {agreed(same)}; accuracy {fallen(change)}, "
        f"{'unlike' if falls(change) else 'as'} in the paper, which says that it is kept."
    )


def noise(accuracy: float, rows: int) -> float:
    """By how many points two accuracies of so many rows differ by chance, at most, in 95 of 100 cases."""
    share = min(max(accuracy, 1 / rows), 1 - 1 / rows)
    return 100 * 1.96 * math.sqrt(2 * share * (1 - share) / rows)


def table5(study: Study, cnn: dict[str, Any]) -> list[str]:
    """The paper: 10 folds give a higher training accuracy than 5, for each number of nodes."""
    few, many = min(study.cnn_folds), max(study.cnn_folds)
    gains = []
    for nodes in study.nodes:
        low, high = (find(cnn["accuracy"], nodes=nodes, folds=folds)["train_accuracy"] for folds in (few, many))
        gains.append((100 * (high - low), noise(high, cnn["training_rows"])))
    best, sure = sum(gain > 0 for gain, _ in gains), sum(gain > chance for gain, chance in gains)
    always = sure == len(gains)
    return [
        f"Table 5: {many} folds have a higher training accuracy than {few} on {best} of {len(gains)} numbers of nodes, "
        f"on {sure} of them by more than chance: {many} folds are {'' if always else 'not '}always the best, "
        f"{agreed(always)}.",
        "Table 6: the same on GPUs; there is none here, so nothing was measured and nothing can be said.",
    ]  # fmt: skip


def tables78(study: Study, cnn: dict[str, Any]) -> list[str]:
    """The paper: splitting costs a little accuracy, and saves up to 60% of the time."""
    many, folds = max(study.nodes), max(study.cnn_folds)
    whole, split = (find(cnn["accuracy"], nodes=nodes, folds=folds)["accuracy"] for nodes in (1, many))
    chance = noise(split, cnn["test_rows"])
    change = 100 * (whole - split)
    saved = {kind: improvement(cnn["times"], many, "own", folds=folds, split=kind) for kind in (False, True)}
    size = "no sure" if change <= chance else "a small" if change <= 5 else "a large"
    return [
        f"Table 7: without data splitting, folds over nodes are the same networks for any number of nodes; {many} "
        f"nodes have a PI of {saved[False]:.1f}: parallel folds are {'faster' if saved[False] > 0 else 'not faster'}, "
        f"{agreed(saved[False] > 0)}.",
        f"Table 8: with data splitting, {many} nodes have a PI of {saved[True]:.1f} (the paper: up to 60), and "
        f"accuracy is {change:.1f} points lower than without: {size} loss, {agreed(size == 'a small')}.",
    ]  # fmt: skip


def starts(entries: list[Entry]) -> list[str]:
    """For each network, on most nodes: where the loss of accuracy comes from."""
    found = []
    for layers in sorted({entry["layers"] for entry in entries}):
        mine = [entry for entry in entries if entry["layers"] == layers]
        entry = max(mine, key=lambda entry: int(entry["nodes"]))
        parts = losses(entry)
        found.append(
            f"Starts, {layers} hidden layer{'s' * (layers > 1)}, {entry['nodes']} nodes: of the "
            f"{points(parts.altogether)} that averaging from own starts loses, less data costs a node by itself "
            f"{points(parts.less_data)}, averaging from the same start costs {points(parts.averaging)} more (below "
            f"zero: gains), own starts {points(parts.starts)} more: the cause is {cause(entry)}."
        )
    return found


def conclusions(study: Study, data: dict[str, Any]) -> list[str]:
    found = []
    if "text" in data:
        found += [table2(study, data["text"]), table3(study, data["text"]), table4(study, data["text"])]
    if "cnn" in data:
        found += [*table5(study, data["cnn"]), *tables78(study, data["cnn"])]
    return found + (starts(data["start"]) if data.get("start") else [])
