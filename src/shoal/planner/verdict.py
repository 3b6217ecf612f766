"""The verdict: whether more than one node pays, which, and what would have to be different."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from shoal.planner.links import Link, bandwidth_words
from shoal.planner.times import CostModel
from shoal.planner.variants import VARIANTS, find_variants

if TYPE_CHECKING:
    from shoal.planner.planning import Row
    from shoal.planner.variants import Variant

HARDLY = 1.05  # times as fast as one node: less is less than the usual error of a plan
AS_GOOD = 0.005  # of the score that more nodes may lose
LARGEST_BATCH = 1 << 17
WORDS = {1: "One", 2: "Two", 3: "Three", 4: "Four", 5: "Five", 6: "Six", 7: "Seven", 8: "Eight"}


@dataclass(frozen=True)
class Verdict:
    """`break_even`: from which bandwidth (bytes a second) or batch size on another answer is right."""

    pays: bool
    strategy: str
    nodes: int
    text: str
    break_even: dict[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return {"pays": self.pays, "strategy": self.strategy, "nodes": self.nodes, "text": self.text,
                "break_even": self.break_even}  # fmt: skip


def judge(
    rows: Sequence[Row], model: CostModel, goal: tuple[str, float] | None, batch_per_node: bool = False
) -> Verdict:
    """The fastest of what is as good as one node; one node unless more are faster.

    Folds are another task than training one network: they count where nothing else is asked for.
    """
    rows = [row for row in rows if row.strategy != "kfold"] or rows
    one = min((row for row in rows if row.nodes == 1), key=_seconds(goal))
    many = [row for row in rows if row.nodes > 1 and (math.isinf(row.seconds) or math.isfinite(_seconds(goal)(row)))]
    good = [row for row in many if as_good(row, one, goal)]
    best = min(good, key=_seconds(goal), default=None)
    if best is not None and _seconds(goal)(best) < _seconds(goal)(one):
        return _pays(best, one, model, goal, batch_per_node)
    faster = [row for row in many if row not in good and _seconds(goal)(row) * HARDLY < _seconds(goal)(one)]
    notes = [unreached(rows, goal), _worse(min(faster, key=_seconds(goal), default=None), one)]
    return _does_not_pay(good, one, model, [note for note in notes if note], batch_per_node)


def _worse(row: Row | None, one: Row) -> str:
    """A sentence on the fastest of what is not as good as one node."""
    if row is None or row.accuracy is None or one.accuracy is None:
        return ""
    return (
        f"{_number(row.nodes)} with {row.label} would be {row.speedup:.3g} times as fast, but lose "
        f"{100 * (one.accuracy - row.accuracy):.1f} points of the score."
    )


def _seconds(goal: tuple[str, float] | None) -> Callable[[Row], float]:
    """What is to be short: the time to the goal, else the time in all."""

    def seconds(row: Row) -> float:
        value = row.seconds if goal is None or row.seconds_to_goal is None else row.seconds_to_goal
        return math.inf if goal is not None and row.accuracy is not None and row.seconds_to_goal is None else value

    return seconds


def as_good(row: Row, one: Row, goal: tuple[str, float] | None) -> bool:
    """Whether its score is not worse than one node's by more than seeds differ, or half a point."""
    if goal is not None or row.accuracy is None or one.accuracy is None:
        return not row.diverged
    high = row.accuracy_high if row.accuracy_high is not None else row.accuracy
    low = one.accuracy_low if one.accuracy_low is not None else one.accuracy
    near = row.accuracy >= one.accuracy - AS_GOOD
    return not row.diverged and (near or (high >= one.accuracy and row.accuracy >= low - AS_GOOD))


def unreached(rows: Sequence[Row], goal: tuple[str, float] | None) -> str:
    """A sentence where no row reaches the goal: the best there is."""
    scored = [row for row in rows if row.accuracy is not None]
    if goal is None or not scored or any(row.seconds_to_goal is not None for row in scored):
        return ""
    best = max(scored, key=lambda row: row.accuracy or 0.0)
    return (
        f"No plan reaches {goal[0]} {goal[1]:g} in these epochs; the best is {best.accuracy:.4f}, by {best.label} on "
        f"{best.nodes} node{'s' * (best.nodes > 1)}."
    )


def _pays(best: Row, one: Row, model: CostModel, goal: tuple[str, float] | None, batch_per_node: bool) -> Verdict:
    faster = _seconds(goal)(one) / _seconds(goal)(best)
    hardly = faster < HARDLY
    text = f"{_number(best.nodes)} nodes pay{', but hardly' * hardly}: with {best.label} they are "
    text += f"{faster:.{3 + hardly}g} times as fast as one" + (f" (to {goal[0]} {goal[1]:g})" if goal else "")
    text += ", which is less than the usual error of a plan." if hardly else "."
    found: dict[str, Any] = {}
    variant = _variant(best)
    rate = bandwidth_from(model, variant, best.nodes, batch_per_node)
    if rate is not None and rate > 0 and model.cluster.link is not None:
        found["bandwidth"] = rate
        text += f" Below {bandwidth_words(rate)} one would be best."
    return Verdict(True, best.strategy, best.nodes, text, found)


def _does_not_pay(
    rows: Sequence[Row], one: Row, model: CostModel, notes: Sequence[str], batch_per_node: bool
) -> Verdict:
    """One node, and what would have to be different for the fewest nodes that are as good."""
    found: dict[str, Any] = {}
    fewest = min((row.nodes for row in rows), default=0)
    for row in (row for row in rows if row.nodes == fewest):
        for name, search in (("bandwidth", bandwidth_from), ("batch_size", batch_from)):
            asked = name != "bandwidth" or model.cluster.link
            value = search(model, _variant(row), fewest, batch_per_node) if asked else None
            if value and (name not in found or value < found[name]):
                found[name] = value
    changes = [f"from {bandwidth_words(found['bandwidth'])}"] if "bandwidth" in found else []
    changes += [f"from batch {found['batch_size']:,}"] if "batch_size" in found else []
    text = ["One node is best."]
    if changes:
        text.append(f"{_number(fewest)} would pay {', or '.join(changes)}.")
        found["nodes"] = fewest
    elif fewest:
        tried = "bandwidth or batch size" if model.cluster.link else "batch size"
        text.append(f"{_number(fewest)} would not pay at any {tried} that was tried.")
    return Verdict(False, one.strategy, 1, " ".join([*text, *notes]), found)


def _variant(row: Row) -> Variant:
    return VARIANTS.get(row.strategy) or find_variants(row.strategy)[0]


def _number(count: int) -> str:
    return WORDS.get(count, f"{count:,}")


def speedup(model: CostModel, variant: Variant, nodes: int, batch_per_node: bool = False) -> float:
    """Of an epoch; the epochs are the same for all."""
    alone = model.estimate(variant, 1)
    if batch_per_node and not variant.own_algorithm:
        model = replace(model, job=replace(model.job, batch_size=model.job.batch_size * nodes))
    found = model.estimate(variant, nodes)
    epochs = model.job.epochs
    many = epochs * found.seconds + found.finish
    return epochs * alone.seconds / many if many > 0 else math.inf


def bandwidth_from(model: CostModel, variant: Variant, nodes: int, batch_per_node: bool = False) -> float | None:
    """Bytes a second from which on so many nodes pay, by bisection; None: they never do."""
    latency = model.cluster.link.latency if model.cluster.link is not None else 0.0

    def pays(rate: float) -> bool:
        other = replace(model, cluster=replace(model.cluster, link=Link(rate, latency)))
        return speedup(other, variant, nodes, batch_per_node) > 1

    if not pays(math.inf):
        return None
    low, high = 1.0, 1e15
    if pays(low):
        return 0.0
    while high / low > 1.01:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if pays(middle) else (middle, high)
    return high


def batch_from(model: CostModel, variant: Variant, nodes: int, batch_per_node: bool = False) -> int | None:
    """The smallest power of two from which on so many nodes pay, larger than the batch asked for; None: never."""
    size = 1 << model.job.batch_size.bit_length()
    while size <= min(LARGEST_BATCH, max(1, model.rows)):
        larger = replace(model, job=replace(model.job, batch_size=size))
        if speedup(larger, variant, nodes, batch_per_node) > 1:
            return size
        size *= 2
    return None
