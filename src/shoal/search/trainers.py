"""Who trains the candidates of a rung: this process, or workers elsewhere. All give the same bits."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shoal.executors.interface import Status
from shoal.metrics.metric import Metric
from shoal.population import Population
from shoal.search.candidates import Candidate, Pool, networks_of
from shoal.search.matrices import Matrices
from shoal.search.samples import Samples
from shoal.search.shards import Order
from shoal.search.training import Assessment, Control, Work, train
from shoal.search.workplace import Workplace

SHARD_SECONDS = 2.0  # of training between two entries in the journal


@dataclass(frozen=True, eq=False)
class Batch:
    """Candidates that were trained together."""

    encoding: str
    orders: Sequence[Order]
    networks: Population | None  # None: not here; who needs them trains them again
    assessments: dict[int, Assessment]  # by place among the orders; those trained as far as asked
    seconds: float  # of training
    found: bool = False  # in the journal: nothing was trained
    set_aside: str = ""  # why nobody could train them

    @property
    def candidates(self) -> list[Candidate]:
        return [order.candidate for order in self.orders]

    def hand_over(self, matrices: Matrices, samples: Samples) -> list[Candidate]:
        """Give the candidates what was found out about them; those that were assessed."""
        if self.networks is not None:
            Pool(matrices, self.encoding, self.candidates, self.networks)
        elif not self.set_aside:
            for candidate in self.candidates:  # whatever weights it had are older than its assessment now
                candidate.pool = None
        for candidate in self.candidates:
            candidate.set_aside = self.set_aside
        for place, found in self.assessments.items():
            self.orders[place].candidate.note(found, samples)
        return [self.orders[place].candidate for place in self.assessments]


@dataclass
class Measured:
    """What training costs, as seen so far: seconds in one process for each unit of cost."""

    seconds: float = 0.0
    cost: float = 0.0
    recent: list[tuple[float, float]] = field(default_factory=list)

    def saw(self, cost: float, seconds: float) -> None:
        self.recent = [*self.recent[-19:], (cost, seconds)]
        self.cost, self.seconds = (sum(values) for values in zip(*self.recent, strict=True))

    @property
    def rate(self) -> float:
        """0: not known."""
        return self.seconds / self.cost if self.cost > 0 else 0.0


class Trainer(ABC):
    """Trains candidates as far as ordered."""

    status: Status | None = None  # of workers elsewhere
    workplace: Workplace | None = None  # where they are

    @abstractmethod
    def train(self, orders: Sequence[Order], control: Control, anew: bool = False) -> Generator[Batch, None, None]:
        """Batches as they are done. Whoever has heard enough closes the generator.

        `anew`: the networks are wanted; what an earlier attempt has found out without them is not enough.
        """

    def slots(self) -> int:
        """Shards that are trained at the same time."""
        return 1

    def describe(self) -> dict[str, Any]:
        """Who has trained, and what was measured on the way; nothing where it was this process."""
        return {}

    def keep(self, candidates: Sequence[Candidate]) -> None:  # noqa: B027, most keep nothing
        """The weights of all other candidates are not needed any more."""

    def close(self) -> None:  # noqa: B027, most have started nothing
        """End what was started."""


class InProcess(Trainer):
    """Trains here, all candidates of an encoding as one population; in pieces of `shard_seconds`, if given."""

    def __init__(
        self,
        matrices: Matrices,
        metric: Metric | None,
        seed: int,
        threads: int | None,
        shard_seconds: float | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.matrices, self.metric, self.seed, self.threads = matrices, metric, seed, threads
        self.shard_seconds, self.measured, self.now = shard_seconds, Measured(), now

    def train(self, orders: Sequence[Order], control: Control, anew: bool = False) -> Generator[Batch, None, None]:
        for encoding in self.matrices.inputs:
            left = [order for order in orders if order.candidate.recipe.encoding == encoding]
            while left:
                mine = self._next(left)
                del left[: len(mine)]
                candidates = [order.candidate for order in mine]
                begun = self.now()
                work = Work(
                    encoding, tuple(candidate.recipe.member for candidate in candidates),
                    np.array([order.until for order in mine]), self.seed,
                    networks_of(self.matrices, encoding, candidates),
                )  # fmt: skip
                trained = train(self.matrices, self.metric, work, self.threads, control)
                seconds = self.now() - begun
                if len(trained.assessments) == len(mine):
                    self.measured.saw(sum(order.cost for order in mine), seconds)
                yield Batch(encoding, mine, trained.networks, trained.assessments, seconds)

    def _next(self, left: Sequence[Order]) -> list[Order]:
        """All, or as many as take about so long; a few, while it is not known."""
        if self.shard_seconds is None:
            return list(left)
        goal = self.shard_seconds / self.measured.rate if self.measured.rate else FIRST_COST
        taken, cost = 0, 0.0
        for order in left:
            if taken and cost + order.cost > goal:
                break
            taken, cost = taken + 1, cost + order.cost
        return list(left[:taken])


FIRST_COST = 3e10  # of the first shard, before anything was measured: about a second of one core
