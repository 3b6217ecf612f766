"""A round of training as a sequence of phases: what a node computes, what goes over its link, how long each takes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

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
class Round:
    """One round of a node, and the bytes that it sends in it.

    >>> Round((Phase("step", COMPUTE, 2.0), Phase("all-reduce", LINK, 3.0, hidden=1.0))).seconds
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

    def changed(self, more: float) -> Round:
        """With some seconds more, as a phase of their own; or with fewer: all phases become shorter.

        >>> step = Round((Phase("step", COMPUTE, 2.0),))
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
    round: Round | None = None  # a typical one
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
