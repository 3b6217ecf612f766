"""The verdict: whether more than one node pays, which, and what would have to be different."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from shoal.planner.cost.links import Link, bandwidth_words
from shoal.planner.cost.times import CostModel
from shoal.planner.variants import VARIANTS, find_variants

if TYPE_CHECKING:
    from shoal.parallel.cost import Estimate, Variant
    from shoal.planner.options import PlanOptions
    from shoal.planner.planning import Row

HARDLY = 1.05  # times as fast as one node: less is less than the usual error of a plan
AS_GOOD = 0.005  # of the score that more nodes may lose
UNSTABLE = 0.05  # standard deviation of a score over seeds from which on it says nothing about the strategy
LARGEST_BATCH = 1 << 17
MOST_EPOCHS = 10_000  # that a verdict names
WORDS = {1: "One", 2: "Two", 3: "Three", 4: "Four", 5: "Five", 6: "Six", 7: "Seven", 8: "Eight"}


@dataclass(frozen=True)
class Verdict:
    """`break_even`: from which bandwidth (bytes a second), batch size or epochs on another answer is right."""

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

    One number of a row decides, and is in the text: the seconds that the user waits. Folds are another task than
    training one network: they count where nothing else is asked for.
    """
    rows = [row for row in rows if not _variant(row).strategy.holds_out_rows] or rows
    waited = _seconds(goal)
    one = min((row for row in rows if row.nodes == 1), key=waited)
    many = [row for row in rows if row.nodes > 1 and (math.isinf(row.seconds) or math.isfinite(waited(row)))]
    good = [row for row in many if as_good(row, one, goal)]
    best = min(good, key=waited, default=None)
    if best is not None and waited(best) < waited(one):
        text, found = _pays(best, one, model, goal, batch_per_node)
        notes = [_other_training([best], batch_per_node), _same_training(best, one, good, goal, batch_per_node)]
        chosen = best
    else:
        text, found = _does_not_pay(good, one, model, goal, batch_per_node)
        faster = [row for row in many if row not in good and waited(row) * HARDLY < waited(one)]
        notes = [unreached(rows, goal), _worse(min(faster, key=waited, default=None), one, goal)]
        chosen = one
    if any(unstable(row) for row in rows):
        notes.append("Scores differ too much between seeds at this learning rate: accuracies were not compared.")
    text = " ".join([text, *(note for note in notes if note)])
    return Verdict(chosen is not one, chosen.strategy, chosen.nodes, text, found)


# ---- accuracies ----


def unstable(row: Row) -> bool:
    """Whether the score differs so much between seeds that it cannot be compared."""
    return row.accuracy is not None and row.spread > UNSTABLE


def unstable_note(rows: Sequence[Row], options: PlanOptions) -> list[str]:
    """A sentence where scores depend on the seed more than on the strategy."""
    worst = max((row for row in rows if unstable(row)), key=lambda row: row.spread, default=None)
    if worst is None:
        return []
    where = "one node" if worst.nodes == 1 else f"{worst.label} on {worst.nodes} nodes"
    others = sum(unstable(row) for row in rows) - 1
    also = f" (and of {others} other setting{'s' * (others > 1)})" if others else ""
    return [
        f"The score of {where}{also} differs from seed to seed by {100 * worst.spread:.0f} points (standard "
        f"deviation): training is unstable at learning rate {options.learning_rate:g}, or not done after "
        f"{options.epochs} epoch{'s' * (options.epochs > 1)}, so accuracies cannot be compared. Give a lower "
        f"--learning-rate, such as {options.learning_rate / 10:g}, or more --epochs."
    ]


def as_good(row: Row, one: Row, goal: tuple[str, float] | None) -> bool:
    """Whether its score is not worse than one node's by more than seeds differ, or half a point.

    Where training is unstable, only what is the same training as on one node is sure to be as good.
    """
    if goal is not None or row.accuracy is None or one.accuracy is None:
        return not row.diverged
    if unstable(row) or unstable(one):
        return not row.diverged and row.accuracy == one.accuracy
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


def _worse(row: Row | None, one: Row, goal: tuple[str, float] | None) -> str:
    """A sentence on the fastest of what is not as good as one node."""
    if row is None or row.accuracy is None or one.accuracy is None or unstable(row) or unstable(one):
        return ""
    return (
        f"{_number(row.nodes)} with {row.label} would be {_seconds(goal)(one) / _seconds(goal)(row):.3g} times as "
        f"fast, but lose {100 * (one.accuracy - row.accuracy):.1f} points of the score."
    )


def _differs(row: Row, batch_per_node: bool) -> bool:
    """Whether it is another algorithm than training on one node, and nothing is known of its score."""
    variant = _variant(row)
    other = (variant.own_algorithm or batch_per_node) and not variant.strategy.holds_out_rows
    return row.accuracy is None and other


def _other_training(rows: Sequence[Row], batch_per_node: bool) -> str:
    """A sentence on what is recommended though its score is not known."""
    names = list(dict.fromkeys(row.label for row in rows if _differs(row, batch_per_node)))
    if not names:
        return ""
    what = " and ".join(name[:1].upper() + name[1:] if k == 0 else name for k, name in enumerate(names))
    what += " with larger batches" * (batch_per_node and not any(_variant(row).own_algorithm for row in rows))
    several = len(names) > 1
    return (
        f"{what} {'are different algorithms' if several else 'is a different algorithm'} than training on one node, "
        f"and {'their' if several else 'its'} accuracy was not predicted: plan without --no-accuracy to compare it."
    )


def _same_training(
    best: Row, one: Row, rows: Sequence[Row], goal: tuple[str, float] | None, batch_per_node: bool
) -> str:
    """A sentence on the fastest that trains as one node does, where what is recommended does not."""
    waited = _seconds(goal)
    same = [row for row in rows if not _differs(row, batch_per_node) and waited(row) < waited(one)]
    if not _differs(best, batch_per_node) or batch_per_node:
        return ""
    if not same:
        return "Nothing that trains as one node does is faster than one node."
    other = min(same, key=waited)
    return (
        f"The fastest that trains as one node does is {other.label} on {other.nodes} nodes, "
        f"{waited(one) / waited(other):.3g} times as fast."
    )


# ---- seconds ----


def _seconds(goal: tuple[str, float] | None) -> Callable[[Row], float]:
    """What the user waits for: the time to the goal, else the time in all; both from the start of the workers on."""

    def seconds(row: Row) -> float:
        value = row.seconds if goal is None or row.seconds_to_goal is None else row.seconds_to_goal
        return math.inf if goal is not None and row.accuracy is not None and row.seconds_to_goal is None else value

    return seconds


def _waited(row: Row, goal: tuple[str, float] | None) -> str:
    """The seconds of a row in words, with those before the first epoch."""
    total = _seconds(goal)(row)
    start = f", {_short(row.start_seconds)} s of it to start the workers" if row.start_seconds > 0 else ""
    return f"{_short(total)} s{start}" if math.isfinite(total) else "forever"


def _pays(
    best: Row, one: Row, model: CostModel, goal: tuple[str, float] | None, batch_per_node: bool
) -> tuple[str, dict[str, Any]]:
    faster = _seconds(goal)(one) / _seconds(goal)(best)
    hardly = faster < HARDLY
    text = f"{_number(best.nodes)} nodes pay{', but hardly' * hardly}: with {best.label} they "
    to = f" (to {goal[0]} {goal[1]:g})" if goal else ""
    if math.isinf(faster):
        text += f"take {_waited(best, goal)}{to}, and one node never gets there."
    else:
        text += f"are {faster:.{3 + hardly}g} times as fast as one{to}"
        text += ", which is less than the usual error of a plan." if hardly else "."
        text += f" They take {_waited(best, goal)}; one takes {_waited(one, goal)}."
    found: dict[str, Any] = {}
    finish = _estimates(model, _variant(best), best.nodes, batch_per_node)[1].finish
    rate = bandwidth_from(model, _variant(best), best.nodes, batch_per_node, _epochs_of(one, best, goal, finish))
    if rate is not None and model.cluster.link is not None and 0 < rate < model.cluster.link.bandwidth:
        found["bandwidth"] = rate
        text += f" Below {bandwidth_words(rate)} one would be best."
    return text, found


def _does_not_pay(
    rows: Sequence[Row], one: Row, model: CostModel, goal: tuple[str, float] | None, batch_per_node: bool
) -> tuple[str, dict[str, Any]]:
    """One node, and what would have to be different for the fewest nodes that are as good."""
    waited = _seconds(goal)
    text = [f"One node is best: it takes {_waited(one, goal)}." if math.isfinite(waited(one)) else "One node is best."]
    next_best = min(rows, key=waited, default=None)
    if next_best is not None and math.isfinite(waited(next_best)):
        text.append(f"{_number(next_best.nodes)} with {next_best.label} would take {_waited(next_best, goal)}.")
    fewest = min((row.nodes for row in rows), default=0)
    found: dict[str, Any] = {}
    by: dict[str, Row] = {}
    for row in (row for row in rows if row.nodes == fewest):
        for name, value in _changes(row, one, model, goal, batch_per_node).items():
            if name not in found or value < found[name]:
                found[name], by[name] = value, row
    in_words: dict[str, Callable[[Any], str]] = {
        "epochs": lambda value: f"{value:,} epochs", "bandwidth": bandwidth_words,
        "batch_size": lambda value: f"batch {value:,}",
    }  # fmt: skip
    if found:
        changes = [f"from {in_words[name](found[name])} with {by[name].label}" for name in found]
        text.append(f"{_number(fewest)} would pay {', or '.join(changes)}.")
        text.append(_other_training(list(by.values()), batch_per_node))
        found["nodes"] = fewest
    elif fewest:
        tried = "bandwidth or batch size" if model.cluster.link else "batch size"
        text.append(f"{_number(fewest)} would not pay at any {tried} that was tried.")
    return " ".join(part for part in text if part), found


def _changes(
    row: Row, one: Row, model: CostModel, goal: tuple[str, float] | None, batch_per_node: bool
) -> dict[str, Any]:
    """From which number of epochs, bandwidth and batch size on this row would pay, each number alone."""
    variant, nodes, link = _variant(row), row.nodes, model.cluster.link
    epochs = epochs_from(model, variant, nodes, batch_per_node) if goal is None else None
    trained = _epochs_of(one, row, goal, _estimates(model, variant, nodes, batch_per_node)[1].finish)
    rate = None if link is None else bandwidth_from(model, variant, nodes, batch_per_node, trained)
    batch = batch_from(model, variant, nodes, batch_per_node, trained)
    return {
        **({"epochs": epochs} if epochs is not None and epochs > model.job.epochs else {}),
        **({"bandwidth": rate} if rate is not None and link is not None and rate > link.bandwidth else {}),
        **({"batch_size": batch} if batch is not None else {}),
    }


def _variant(row: Row) -> Variant:
    return VARIANTS.get(row.strategy) or find_variants(row.strategy)[0]


def _number(count: int) -> str:
    return WORDS.get(count, f"{count:,}")


def _short(seconds: float) -> str:
    """
    >>> _short(0.27312), _short(1234.5)
    ('0.273', '1,234')
    """
    return f"{seconds:.3g}" if seconds < 1000 else f"{seconds:,.0f}"


# ---- what would have to be different ----

Epochs = tuple[float, float]  # of one node, of many: to a goal or an error they need not be the same


def _epochs_of(one: Row, many: Row, goal: tuple[str, float] | None, finish: float) -> Epochs | None:
    """Epochs behind the seconds of two rows, of which many nodes have some more at the end; None: unknown, or never."""
    found = [(_seconds(goal)(row) - row.start_seconds - end) / row.seconds_per_epoch
             for row, end in ((one, 0.0), (many, finish))
             if row.seconds_per_epoch > 0 and math.isfinite(_seconds(goal)(row))]  # fmt: skip
    return (found[0], found[1]) if len(found) == 2 else None


def _estimates(model: CostModel, variant: Variant, nodes: int, batch_per_node: bool) -> tuple[Estimate, Estimate]:
    """Of one node, and of many."""
    alone = model.estimate(variant, 1)
    if batch_per_node and not variant.own_algorithm:
        model = replace(model, job=replace(model.job, batch_size=model.job.batch_size * nodes))
    return alone, model.estimate(variant, nodes)


def speedup(
    model: CostModel, variant: Variant, nodes: int, batch_per_node: bool = False, epochs: Epochs | None = None
) -> float:
    """Of all that the user waits for; `epochs` if not those of the job."""
    alone, many = _estimates(model, variant, nodes, batch_per_node)
    one, other = epochs or (model.job.epochs, model.job.epochs)
    seconds = many.total(other)
    return alone.total(one) / seconds if seconds > 0 else math.inf


def epochs_from(model: CostModel, variant: Variant, nodes: int, batch_per_node: bool = False) -> int | None:
    """The fewest epochs that so many nodes pay for, since each of them saves some seconds; None: none does."""
    alone, many = _estimates(model, variant, nodes, batch_per_node)
    saved = alone.seconds - many.seconds
    needed = (many.start + many.finish - alone.start - alone.finish) / saved if saved > 0 else math.inf
    return math.floor(needed) + 1 if needed < MOST_EPOCHS else None


def bandwidth_from(
    model: CostModel, variant: Variant, nodes: int, batch_per_node: bool = False, epochs: Epochs | None = None
) -> float | None:
    """Bytes a second from which on so many nodes pay, by bisection; None: they never do."""
    latency = model.cluster.link.latency if model.cluster.link is not None else 0.0

    def pays(rate: float) -> bool:
        other = replace(model, cluster=replace(model.cluster, link=Link(rate, latency)))
        return speedup(other, variant, nodes, batch_per_node, epochs) > 1

    if not pays(math.inf):
        return None
    low, high = 1.0, 1e15
    if pays(low):
        return 0.0
    while high / low > 1.01:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if pays(middle) else (middle, high)
    return high


def batch_from(
    model: CostModel, variant: Variant, nodes: int, batch_per_node: bool = False, epochs: Epochs | None = None
) -> int | None:
    """The smallest power of two from which on so many nodes pay, larger than the batch asked for; None: never."""
    size = 1 << model.job.batch_size.bit_length()
    while size <= min(LARGEST_BATCH, max(1, model.rows)):
        larger = replace(model, job=replace(model.job, batch_size=size))
        if speedup(larger, variant, nodes, batch_per_node, epochs) > 1:
            return size
        size *= 2
    return None
