"""The vocabulary of a strategy's cost formulas: phases, rounds and estimates, and what a formula may ask for.

A strategy says what a round of training costs on n nodes (`Strategy.round_cost`). It asks for seconds of steps and
messages, which the planner measures on this machine (`shoal.planner.cost.times.CostModel`). Nothing here loads PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.parallel.strategies.base import Strategy
    from shoal.planner.cost.times import CostModel

FORWARD = 1 / 3  # of the time of a gradient; the backward pass has two products for each one of the forward pass
FIRST_BUCKET, BUCKET = 1 << 20, 25 << 20  # bytes; those of torch's DistributedDataParallel
COMPUTE, LINK = "compute", "link"
SHORTEST = 0.3  # of a round: what small steps took less than the model says may not make it shorter than that


@dataclass(frozen=True)
class Phase:
    """Something that a node does for some seconds; `hidden` of them go on beside the phases before it."""

    name: str
    lane: str
    seconds: float
    hidden: float = 0.0

    @property
    def counted(self) -> float:
        """Seconds by which a round is longer because of it."""
        return self.seconds - self.hidden


@dataclass(frozen=True)
class TrainingRound:
    """One round of a node, and the bytes that it sends in it.

    >>> TrainingRound((Phase("step", COMPUTE, 2.0), Phase("all-reduce", LINK, 3.0, hidden=1.0))).seconds
    4.0
    """

    phases: tuple[Phase, ...]
    sent: float = 0.0

    @property
    def seconds(self) -> float:
        return sum(phase.counted for phase in self.phases)

    @property
    def communicating(self) -> float:
        return sum(phase.counted for phase in self.phases if phase.lane == LINK)

    def times(self, count: int) -> tuple[float, float]:
        """Seconds of so many rounds, and those of them spent communicating; none of an endless round are none."""
        return (count * self.seconds, count * self.communicating) if count else (0.0, 0.0)

    def changed(self, more: float) -> TrainingRound:
        """With some seconds more, as a phase of their own; or with fewer: all phases become shorter.

        >>> step = TrainingRound((Phase("step", COMPUTE, 2.0),))
        >>> step.changed(1.0).seconds, step.changed(-0.5).seconds
        (3.0, 1.5)
        """
        if more > 0 and self.phases:
            return replace(self, phases=(*self.phases, compute("overhead", more)))
        kept = self.kept(more)
        return replace(self, phases=tuple(replace(phase, seconds=kept * phase.seconds, hidden=kept * phase.hidden)
                                          for phase in self.phases))  # fmt: skip

    def kept(self, more: float) -> float:
        """The share that is left of each phase: all, unless there are to be fewer seconds."""
        if more >= 0 or not 0 < self.seconds < math.inf:
            return 1.0
        return max(SHORTEST, 1 + more / self.seconds)

    def spans(self, node: int = 0) -> list[dict[str, object]]:
        """The phases on a time axis that starts at zero, for a page or a trace."""
        now, found = 0.0, []
        for phase in self.phases:
            begun = now - phase.hidden
            now = begun + phase.seconds
            if phase.seconds > 0:
                found.append({"node": node, "lane": phase.lane, "name": phase.name, "start": begun,
                              "seconds": phase.seconds})  # fmt: skip
        return found


@dataclass(frozen=True)
class Estimate:
    """What an epoch of one strategy costs on n nodes."""

    seconds: float
    communicating: float  # seconds of it
    sent: float  # bytes of a node
    memory: float  # bytes of a node
    round: TrainingRound | None = None  # a typical one
    note: str = ""
    spans: list[dict[str, object]] = field(default_factory=list)  # where nodes differ: all of them
    start: float = 0.0  # seconds before the first epoch: workers start, and load their data
    finish: float = 0.0  # seconds after the last epoch
    sent_at_end: float = 0.0

    def total(self, epochs: float) -> float:
        """Seconds that the user waits for so many epochs: from the start of the workers to the finished network.

        >>> Estimate(2.0, 0.0, 0.0, 0.0, start=1.5, finish=0.5).total(10)
        22.0
        """
        return self.start + epochs * self.seconds + self.finish


def compute(name: str, seconds: float) -> Phase:
    return Phase(name, COMPUTE, seconds)


def link(name: str, seconds: float, hidden: float = 0.0) -> Phase:
    return Phase(name, LINK, seconds, hidden)


def gradient_phases(seconds: float, update: float) -> tuple[Phase, ...]:
    """A gradient as a forward and a backward pass, then the step of the optimiser."""
    phases = (compute("forward", FORWARD * seconds), compute("backward", (1 - FORWARD) * seconds))
    return (*phases, compute("update", update)) if update else phases


def overlapped(backward: float, summed: float, share: float) -> float:
    """Seconds of both together, `share` of the sums beside the backward pass: (b^g + s^g)^(1/g) as in AdaptDL.

    g is 1 where nothing overlaps (one bucket, complete only at the end), and large where nearly all does.

    >>> overlapped(3.0, 4.0, 0.0), overlapped(3.0, 4.0, 0.5)
    (7.0, 5.0)
    """
    if share >= 1 or math.isinf(summed):
        return max(backward, summed)
    power = 1 / (1 - share)
    largest = max(backward, summed)
    if largest == 0:
        return 0.0
    return largest * ((backward / largest) ** power + (summed / largest) ** power) ** (1 / power)


# ---- the network ----


@dataclass(frozen=True)
class Layer:
    """A layer of an nn.Sequential; flops are those of a row, forward and backward."""

    kind: str
    parameters: int
    flops: float
    inputs: int  # numbers a row
    outputs: int


@dataclass(frozen=True)
class LinearPair:
    """Linear layers that are split over workers with one sum for both; or a single one.

    Outputs are summed forward; inputs backward, unless they are the network's own: nobody asks for their gradient.
    """

    sums: tuple[int, ...]  # numbers a row of each sum
    flops: float  # of a row, forward and backward


@dataclass(frozen=True)
class Facts:
    """What a formula has to know of a network: its sizes, in bytes unless said otherwise."""

    parameters: int  # how many
    tensors: tuple[int, ...]  # bytes of each tensor of parameters
    width: int  # of the vector of gradients, loss and buffers
    averaged: int  # what is averaged: weights, buffers, moments of the optimiser
    state: int  # of the optimiser
    activations: int  # kept for the backward pass, of each row
    row: int  # of a row of the data
    flops: float  # of a row, forward and backward
    layers: tuple[Layer, ...]  # empty unless the model is an nn.Sequential
    pairs: tuple[LinearPair, ...] = ()

    @property
    def overlapped(self) -> float:
        """The share of the gradients that is sent while the backward pass goes on: all buckets but the last."""
        buckets = buckets_of(self.tensors)
        return 1 - buckets[-1] / sum(buckets)


def buckets_of(tensors: Sequence[int], first: int = FIRST_BUCKET, cap: int = BUCKET) -> list[int]:
    """Bytes of the buckets in which gradients are summed: from the last tensor to the first, closed when full.

    >>> buckets_of([3, 4, 2, 1], first=2, cap=5)
    [3, 7]
    """
    buckets: list[int] = []
    size = 0
    for count in reversed(tensors):
        size += count
        if size >= (first if not buckets else cap):
            buckets.append(size)
            size = 0
    return [*buckets, size] if size or not buckets else buckets


# ---- what a strategy is asked, and may ask ----


@dataclass(frozen=True, eq=False)
class Variant:
    """A strategy with the settings that make it what it is in a plan; `name` is a word of `shoal plan --strategy`."""

    name: str
    label: str
    strategy: Strategy
    options: Mapping[str, Any] = field(default_factory=dict)
    own_algorithm: bool = False  # the result depends on the number of nodes; else it is one training whatever n
    by_default: bool = False  # a plan that names no strategy compares it
    can_fold: bool = False  # each node may cross-validate its rows
    measured_as: str = ""  # the name under which its small steps are measured, if another

    def __str__(self) -> str:
        return self.name

    @property
    def settings(self) -> dict[str, Any]:
        """Of a `Job`."""
        return {"strategy": self.strategy.name, **self.options}

    @property
    def small_name(self) -> str:
        return self.measured_as or self.name


def synchronous(costs: CostModel, variant: Variant, nodes: int) -> Estimate:
    """An epoch of a strategy whose rounds are batches."""
    more, batch = costs.unexplained(variant), costs.job.batch_size
    whole, rest = divmod(costs.rows, batch)
    typical = variant.strategy.round_cost(costs, variant, min(batch, costs.rows), nodes).changed(more)
    last = variant.strategy.round_cost(costs, variant, rest, nodes).changed(more) if rest else TrainingRound(())
    scattered = costs.scattering(nodes)
    seconds, communicating = typical.times(whole)
    return Estimate(
        seconds + last.seconds + scattered, communicating + last.communicating + scattered,
        (whole + (rest > 0)) * typical.sent, variant.strategy.memory(costs, variant, nodes), typical,
    )  # fmt: skip


def memory_of(
    costs: CostModel, nodes: int, *, vectors: float = 0, replicas: int = 1, split: int = 1, split_rows: int = 1
) -> float:
    """Bytes of a node: the process itself, the data, weights, gradients, the optimiser, activations.

    vectors     flat copies of the weights that a worker holds besides
    replicas    parts into which a batch is cut
    split       parts of the model, of which a node holds one; split_rows: parts of the activations of a row
    """
    facts, job = costs.facts, costs.job
    held = (2 * sum(facts.tensors) + facts.state) / split
    activations = facts.activations * -(-job.batch_size // replicas) / split_rows
    data = facts.row * costs.rows / (nodes if job.backend == "mpi" else 1)
    return costs.calibration.base + data + held + vectors * facts.width + activations
