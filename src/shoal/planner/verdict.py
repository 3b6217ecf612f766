"""The verdict: whether more than one node pays, which, and what would have to be different."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from shoal.planner.cost.cluster import NodeLink
from shoal.planner.cost.times import CostModel
from shoal.planner.variants import find_variants
from shoal.report.shell.words import capitalised, rate

if TYPE_CHECKING:
    from shoal.parallel.cost import Variant
    from shoal.planner.options import PlanOptions
    from shoal.planner.planning import Row

USUAL_ERROR = 1.05  # a plan may be wrong by this factor: a smaller speed-up is called "barely"
SCORE_TOLERANCE = 0.005  # that more nodes may lose
LARGEST_STABLE_SPREAD = 0.05  # standard deviation over seeds; a larger one says nothing about the strategy
LARGEST_BATCH = 1 << 17
MOST_EPOCHS_NAMED = 10_000
NUMBERS = ("", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight")


@dataclass(frozen=True)
class Verdict:
    """`break_even`: from which bandwidth (bytes a second), batch size or epochs on another answer is right."""

    pays: bool
    strategy: str
    nodes: int
    text: str
    break_even: dict[str, Any] = field(default_factory=dict)


def judge(rows: Sequence[Row], model: CostModel, goal: tuple[str, float] | None) -> Verdict:
    """The fastest of what is as good as one node; one node unless more are faster.

    One number of a row decides, and is in the text: the seconds that the user waits. Folds are another task than
    training one network: they count where nothing else is asked for.
    """
    rows = [row for row in rows if not _variant(row).strategy.holds_out_rows] or rows
    one = min((row for row in rows if row.nodes == 1), key=lambda row: waited(row, goal))
    compared = Comparison(model, one, goal)
    many = [row for row in rows if row.nodes > 1 and math.isfinite(waited(row, goal))]
    good = [row for row in many if compared.as_good(row)]
    best = min(good, key=compared.waited, default=None)
    if best is not None and compared.waited(best) < compared.waited(one):
        found, chosen = compared.smallest_bandwidth(best), best
        notes = [compared.pays(best, found), compared.other_training([best]), compared.same_training(best, good)]
    else:
        found, chosen = compared.changes(good), one
        faster = [row for row in many if row not in good and compared.speedup(row) > USUAL_ERROR]
        notes = [*compared.does_not_pay(good, found), unreached(rows, goal), compared.worse(faster)]
    if any(unstable(row) for row in rows):
        notes.append("Scores differ too much between seeds at this learning rate: accuracies were not compared.")
    break_even = {name: value for name, (value, _) in found.items()}
    if break_even and chosen is one:
        break_even["nodes"] = min(row.nodes for row in good)
    return Verdict(chosen is not one, chosen.strategy, chosen.nodes, " ".join(filter(None, notes)), break_even)


def waited(row: Row, goal: tuple[str, float] | None) -> float:
    """What the user waits for: the seconds to the goal, else in all; both from the start of the workers on."""
    if goal is None or (row.seconds_to_goal is None and row.accuracy is None):
        return row.seconds
    return math.inf if row.seconds_to_goal is None else row.seconds_to_goal


# ---- accuracies ----


def unstable(row: Row) -> bool:
    """Whether the score differs so much between seeds that it cannot be compared."""
    return row.accuracy is not None and row.spread > LARGEST_STABLE_SPREAD


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


@dataclass(frozen=True)
class Comparison:
    """Rows of a plan beside its best row on one node."""

    model: CostModel
    one: Row
    goal: tuple[str, float] | None

    def waited(self, row: Row) -> float:
        return waited(row, self.goal)

    def speedup(self, row: Row) -> float:
        return self.waited(self.one) / self.waited(row)

    def as_good(self, row: Row) -> bool:
        """Whether its score is not worse than one node's by more than seeds differ, or half a point.

        Where training is unstable, only what is the same training as on one node is sure to be as good.
        """
        one = self.one
        if row.diverged or self.goal is not None or row.accuracy is None or one.accuracy is None:
            return not row.diverged
        if unstable(row) or unstable(one):
            return row.accuracy == one.accuracy
        high = row.accuracy_high if row.accuracy_high is not None else row.accuracy
        low = one.accuracy_low if one.accuracy_low is not None else one.accuracy
        near = row.accuracy >= one.accuracy - SCORE_TOLERANCE
        return near or (high >= one.accuracy and row.accuracy >= low - SCORE_TOLERANCE)

    def differs(self, row: Row) -> bool:
        """Whether it is another algorithm than training on one node, and nothing is known of its score."""
        variant = _variant(row)
        other = (variant.own_algorithm or self.model.batch_per_node) and not variant.strategy.holds_out_rows
        return row.accuracy is None and other

    # ---- sentences ----

    def pays(self, best: Row, found: dict[str, tuple[Any, Row]]) -> str:
        barely = self.speedup(best) < USUAL_ERROR
        text = f"{_number(best.nodes)} nodes pay{', but barely' * barely}: with {best.label} they "
        to = f" (to {self.goal[0]} {self.goal[1]:g})" if self.goal else ""
        if math.isinf(self.speedup(best)):
            text += f"take {self._waited(best)}{to}, and one node never gets there."
        else:
            text += f"are {self.speedup(best):.{3 + barely}g} times as fast as one{to}"
            text += ", which is less than the usual error of a plan." if barely else "."
            text += f" They take {self._waited(best)}; one takes {self._waited(self.one)}."
        return text + (f" Below {rate(found['bandwidth'][0])} one would be best." if found else "")

    def does_not_pay(self, rows: Sequence[Row], found: dict[str, tuple[Any, Row]]) -> list[str]:
        """One node, and what would have to be different for the fewest nodes that are as good."""
        reached = math.isfinite(self.waited(self.one))
        text = [f"One node is best: it takes {self._waited(self.one)}." if reached else "One node is best."]
        if not rows:
            return text
        next_best, fewest = min(rows, key=self.waited), _number(min(row.nodes for row in rows))
        text.append(f"{_number(next_best.nodes)} with {next_best.label} would take {self._waited(next_best)}.")
        if found:
            changes = [f"from {_in_words(name, value)} with {row.label}" for name, (value, row) in found.items()]
            text.append(f"{fewest} would pay {', or '.join(changes)}.")
            text.append(self.other_training([row for _, row in found.values()]))
        else:
            tried = "bandwidth or batch size" if self.model.cluster.link else "batch size"
            text.append(f"{fewest} would not pay at any {tried} that was tried.")
        return text

    def worse(self, rows: Sequence[Row]) -> str:
        """A sentence on the fastest of what is not as good as one node."""
        row, one = min(rows, key=self.waited, default=None), self.one
        if row is None or row.accuracy is None or one.accuracy is None or unstable(row) or unstable(one):
            return ""
        return (
            f"{_number(row.nodes)} with {row.label} would be {self.speedup(row):.3g} times as fast, but lose "
            f"{100 * (one.accuracy - row.accuracy):.1f} points of the score."
        )

    def other_training(self, rows: Sequence[Row]) -> str:
        """A sentence on what is recommended though its score is not known."""
        names = list(dict.fromkeys(row.label for row in rows if self.differs(row)))
        if not names:
            return ""
        larger = self.model.batch_per_node and not any(_variant(row).own_algorithm for row in rows)
        what = capitalised(" and ".join(names)) + " with larger batches" * larger
        several = len(names) > 1
        return (
            f"{what} {'are different algorithms' if several else 'is a different algorithm'} than training on one "
            f"node, and {'their' if several else 'its'} accuracy was not predicted: plan without --no-accuracy to "
            "compare it."
        )

    def same_training(self, best: Row, rows: Sequence[Row]) -> str:
        """A sentence on the fastest that trains as one node does, where what is recommended does not."""
        if not self.differs(best) or self.model.batch_per_node:
            return ""
        same = [row for row in rows if not self.differs(row) and self.speedup(row) > 1]
        if not same:
            return "Nothing that trains as one node does is faster than one node."
        other = min(same, key=self.waited)
        return (
            f"The fastest that trains as one node does is {other.label} on {other.nodes} nodes, "
            f"{self.speedup(other):.3g} times as fast."
        )

    def _waited(self, row: Row) -> str:
        """The seconds of a row in words, with those before the first epoch."""
        start = f", {_short(row.start_seconds)} s of it to start the workers" if row.start_seconds > 0 else ""
        return f"{_short(self.waited(row))} s{start}"

    # ---- what would have to be different ----

    def changes(self, rows: Sequence[Row]) -> dict[str, tuple[Any, Row]]:
        """From which epochs, bandwidth and batch size on the fewest nodes would pay, each alone, and by which row."""
        found: dict[str, tuple[Any, Row]] = {}
        fewest = min((row.nodes for row in rows), default=0)
        for row in (row for row in rows if row.nodes == fewest):
            for name, value in self._changes(row).items():
                if name not in found or value < found[name][0]:
                    found[name] = value, row
        return found

    def _changes(self, row: Row) -> dict[str, Any]:
        model, variant, link = self.model, _variant(row), self.model.cluster.link
        epochs = epochs_from(model, variant, row.nodes) if self.goal is None else None
        bandwidth = None if link is None else bandwidth_from(model, variant, row.nodes, self._epochs(row))
        batch = batch_from(model, variant, row.nodes, self._epochs(row))
        return {
            **({"epochs": epochs} if epochs is not None and epochs > model.job.epochs else {}),
            **({"bandwidth": bandwidth} if bandwidth is not None and link and bandwidth > link.bandwidth else {}),
            **({"batch_size": batch} if batch is not None else {}),
        }

    def smallest_bandwidth(self, best: Row) -> dict[str, tuple[Any, Row]]:
        """With which the best row pays, where the plan is about a link."""
        link = self.model.cluster.link
        found = bandwidth_from(self.model, _variant(best), best.nodes, self._epochs(best)) if link else None
        return {"bandwidth": (found, best)} if found and link and found < link.bandwidth else {}

    def _epochs(self, row: Row) -> Epochs | None:
        """Epochs behind the seconds of one node and of a row; None: unknown, or never."""
        rows = (self.one, row)
        ends = [self.model.estimate(_variant(one), one.nodes).finish for one in rows]
        one, many = (
            (self.waited(each) - each.start_seconds - end) / each.seconds_per_epoch
            for each, end in zip(rows, ends, strict=True)
        )
        return (one, many) if math.isfinite(one + many) else None


def _variant(row: Row) -> Variant:
    return find_variants(row.strategy)[0]


def _number(count: int) -> str:
    return NUMBERS[count] if count < len(NUMBERS) else f"{count:,}"


def _in_words(name: str, value: Any) -> str:
    if name == "bandwidth":
        return str(rate(value))
    return f"{value:,} epochs" if name == "epochs" else f"batch {value:,}"


def _short(seconds: float) -> str:
    """
    >>> _short(0.27312), _short(1234.5)
    ('0.273', '1,234')
    """
    return f"{seconds:.3g}" if seconds < 1000 else f"{seconds:,.0f}"


# ---- break-evens ----

Epochs = tuple[float, float]  # of one node, of many: to a goal or an error they need not be the same


def speedup(model: CostModel, variant: Variant, nodes: int, epochs: Epochs | None = None) -> float:
    """Of all that the user waits for; `epochs` if not those of the job."""
    one, many = epochs or (model.job.epochs, model.job.epochs)
    seconds = model.estimate(variant, nodes).total(many)
    return model.estimate(variant, 1).total(one) / seconds if seconds > 0 else math.inf


def epochs_from(model: CostModel, variant: Variant, nodes: int) -> int | None:
    """The fewest epochs that so many nodes pay for, since each of them saves some seconds; None: none does."""
    alone, many = model.estimate(variant, 1), model.estimate(variant, nodes)
    saved = alone.seconds - many.seconds
    needed = (many.start + many.finish - alone.start - alone.finish) / saved if saved > 0 else math.inf
    return math.floor(needed) + 1 if needed < MOST_EPOCHS_NAMED else None


def bandwidth_from(model: CostModel, variant: Variant, nodes: int, epochs: Epochs | None = None) -> float | None:
    """Bytes a second from which on so many nodes pay, by bisection; None: they never do."""
    latency = model.cluster.link.latency if model.cluster.link is not None else 0.0

    def pays(bandwidth: float) -> bool:
        other = replace(model, cluster=replace(model.cluster, link=NodeLink(bandwidth, latency)))
        return speedup(other, variant, nodes, epochs) > 1

    if not pays(math.inf):
        return None
    low, high = 1.0, 1e15
    if pays(low):
        return 0.0
    while high / low > 1.01:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if pays(middle) else (middle, high)
    return high


def batch_from(model: CostModel, variant: Variant, nodes: int, epochs: Epochs | None = None) -> int | None:
    """The smallest power of two from which on so many nodes pay, larger than the batch asked for; None: never."""
    size = 1 << model.job.batch_size.bit_length()
    while size <= min(LARGEST_BATCH, max(1, model.rows)):
        larger = replace(model, job=replace(model.job, batch_size=size))
        if speedup(larger, variant, nodes, epochs) > 1:
            return size
        size *= 2
    return None
