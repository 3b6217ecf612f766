"""A search on many workers, simulated: what the process of the search, its link and its workers are busy with.

Time goes from event to event. The process of the search does one thing at a time: it packs and submits a shard, or it
takes in a result and writes it to the journal. Its link carries one message at a time in each direction. A worker does
one shard at a time. A rung begins when the one before it has ended, and so does a round. Shards are cut as
`shoal.search.shards` cuts them: a third of what each worker has left to do, the largest first; a recipe that is larger
than that by its folds.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from shoal.search.shards import LEAST_SECONDS, LEAST_TURNS, SHARE
from shoal.search.strategies import HALVING, Rung

AHEAD = 2  # shards that are submitted beyond the number of workers
SUBMIT, ARRIVED, DONE, CAME_BACK = range(4)


@dataclass(frozen=True)
class Costs:
    """Seconds and bytes, as measured on a real search."""

    recipe: float  # seconds of training a recipe to its end on one worker, all folds
    folds: int
    submit: float = 0.0  # seconds of the search for each shard: pack and hand over
    collect: float = 0.0  # for each shard: check, unpack
    note: float = 0.0  # for each recipe of a shard
    journal: float = 0.0  # for each shard: a file, on the disk
    watch: float = 0.0  # for each shard and each shard in flight: who is still there, who hangs
    sent: int = 0  # bytes of a recipe to a worker
    sent_state: int = 0  # more, for a recipe that goes on from its weights
    received: int = 0  # bytes of a recipe's results
    received_state: int = 0  # more, of a recipe that may go on
    shard: int = 0  # bytes of any message, more
    job: int = 0  # bytes of what every worker needs once
    link: float = math.inf  # bytes per second, in each direction


@dataclass
class Outcome:
    """What a simulated search took."""

    workers: int
    seconds: float = 0.0
    shards: int = 0
    messages: int = 0
    sent: float = 0.0  # bytes
    received: float = 0.0
    busy: float = 0.0  # seconds of the process of the search
    link: float = 0.0  # seconds of the busier direction
    training: float = 0.0  # seconds, over all workers

    @property
    def efficiency(self) -> float:
        """The share of the workers' time that is training."""
        return self.training / (self.workers * self.seconds) if self.seconds else 1.0


@dataclass(frozen=True)
class Shard:
    recipes: float  # a part of one, where it was cut by folds
    seconds: float  # of training
    sent: float  # bytes
    received: float


def cut(recipes: int, seconds: float, folds: int, workers: int, least: float) -> list[float]:
    """Recipes in each shard; parts of one, where a recipe is cut by its folds. All recipes cost the same.

    >>> [round(size, 1) for size in cut(20, 1.0, 5, workers=2, least=0.1)]
    [3.0, 2.0, 2.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.4, 0.6, 0.4, 0.6]
    """
    left, sizes = recipes, []
    while left:
        goal = max(least, left * seconds / (SHARE * workers))
        taken = min(left, max(1, int(goal / seconds)))
        parts = 1
        if taken == 1 and seconds > 1.5 * goal:
            parts = min(folds, math.ceil(seconds / goal))
        edges = [taken * (folds * k // parts) / folds for k in range(parts + 1)]
        sizes += [end - start for start, end in itertools.pairwise(edges)]
        left -= taken
    return sizes


def simulate(costs: Costs, recipes: int, workers: int, round_of: int, rungs: Sequence[Rung] = HALVING) -> Outcome:
    """A whole search: rounds of up to so many recipes, rung by rung."""
    run = _Run(costs, workers)
    left = recipes
    while left > 0:
        going, before = min(left, round_of), 0.0
        left -= going
        for share, kept in rungs:
            run.rung(going, share - before, begun=before > 0, ends=share >= 1)
            going, before = max(1, round(kept * going)), share
    return run.outcome


@dataclass
class _Run:
    """A simulated search under way."""

    costs: Costs
    workers: int
    now: float = 0.0
    up: float = 0.0  # when the link to the workers is free
    down: float = 0.0
    knowing: int = 0  # workers that have the job
    outcome: Outcome = field(init=False)

    def __post_init__(self) -> None:
        self.outcome = Outcome(self.workers)
        self.turn = self.costs.submit + self.costs.collect + self.costs.journal + self.costs.watch * self.workers

    def rung(self, recipes: int, share: float, begun: bool, ends: bool) -> None:
        """Until the last shard is back and written down."""
        waiting = deque(self._shards(recipes, share, begun, ends))
        there: deque[Shard] = deque()  # with the workers, not begun
        idle, flying = self.workers, 0
        events: list[tuple[float, int, int, Shard | None]] = []
        count = itertools.count()
        free = self.now  # when the process of the search has time again
        back: deque[Shard] = deque()  # results that it has not looked at

        def at(time: float, kind: int, shard: Shard | None = None) -> None:
            heapq.heappush(events, (time, kind, next(count), shard))

        at(self.now, SUBMIT)
        while events:
            now, kind, _, shard = heapq.heappop(events)
            if kind == ARRIVED:
                assert shard is not None
                there.append(shard)
            elif kind == DONE:
                assert shard is not None
                idle += 1
                at(self._receive(now, shard), CAME_BACK, shard)
            elif kind == CAME_BACK:
                assert shard is not None
                back.append(shard)
            while idle and there:
                idle -= 1
                mine = there.popleft()
                at(now + mine.seconds, DONE, mine)
            if now < free:
                continue
            if back:  # results first, as in the real loop
                result = back.popleft()
                flying -= 1
                free = now + self._busy(self.costs.collect + self.costs.journal + self.costs.watch * flying
                                        + self.costs.note * result.recipes)  # fmt: skip
                at(free, SUBMIT)
            elif waiting and flying < self.workers + AHEAD:
                flying += 1
                free = now + self._busy(self.costs.submit)
                sent = waiting.popleft()
                at(self._send(free, sent), ARRIVED, sent)
                at(free, SUBMIT)
            self.now = max(self.now, now, free)
        self.outcome.seconds = self.now

    def _shards(self, recipes: int, share: float, begun: bool, ends: bool) -> list[Shard]:
        costs = self.costs
        seconds = share * costs.recipe
        sent = costs.sent + begun * costs.sent_state
        received = costs.received + (not ends) * costs.received_state
        least = max(LEAST_SECONDS, LEAST_TURNS * self.turn)
        sizes = cut(recipes, seconds, costs.folds, self.workers, least)
        sizes.sort(reverse=True)
        return [Shard(size, size * seconds, size * sent + costs.shard, size * received + costs.shard) for size in sizes]

    def _busy(self, seconds: float) -> float:
        self.outcome.busy += seconds
        return seconds

    def _send(self, now: float, shard: Shard) -> float:
        size = shard.sent
        if self.knowing < self.workers:
            self.knowing += 1
            size += self.costs.job
        self.up = max(self.up, now) + size / self.costs.link
        outcome = self.outcome
        outcome.sent += size
        outcome.shards += 1
        outcome.messages += 2
        outcome.training += shard.seconds
        outcome.link = max(outcome.sent, outcome.received) / self.costs.link
        return self.up

    def _receive(self, now: float, shard: Shard) -> float:
        self.down = max(self.down, now) + shard.received / self.costs.link
        self.outcome.received += shard.received
        self.outcome.link = max(self.outcome.sent, self.outcome.received) / self.costs.link
        return self.down
