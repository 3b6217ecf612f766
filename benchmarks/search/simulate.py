"""A search on many workers, simulated: what the process of the search, its link and its workers are busy with.

Time goes from event to event. The process of the search does one thing at a time: it packs and submits a shard, or it
takes in a result and writes it to the journal. Its link carries one message at a time in each direction. A worker does
one shard at a time. A rung begins when the one before it has ended, and so does a round. Shards are cut as
`shoal.search.remote.shards` cuts them: a third of what each worker has left to do, the largest first.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from shoal.search.remote.journaled import PENDING
from shoal.search.remote.shards import LEAST_SECONDS, SHARE
from shoal.search.strategies import HALVING, Rung

AHEAD = 2  # shards that are submitted beyond the number of workers
PLACES = ("search", "disk", "link out", "link back")  # each does one thing at a time
TURN, ARRIVED, DONE, BACK = range(4)  # what happens: the search has time, a shard arrives, is done, is back


@dataclass(frozen=True)
class Costs:
    """Seconds and bytes, as measured on a real search."""

    recipe: float  # seconds of training a recipe to its end on one worker, all folds
    submit: float = 0.0  # seconds of the search for each shard: pack and hand over
    collect: float = 0.0  # for each shard: check, unpack
    note: float = 0.0  # for each recipe of a shard
    disk: float = 0.0  # seconds of the journal's thread for each shard: files, on the disk
    disk_each: float = 0.0  # for each recipe of a shard
    watch: float = 0.0  # for each shard and each shard in flight: who is still there, who hangs
    sent: int = 0  # bytes of a recipe to a worker
    received: int = 0  # bytes of a recipe's results
    received_end: int = 0  # the same at the end of the recipe, with its networks
    state: int = 0  # bytes of its networks and moments, where it goes on from them
    shard: int = 0  # bytes of any message, more
    job: int = 0  # bytes of what every worker needs once
    link: float = math.inf  # bytes per second, in each direction


@dataclass
class Outcome:
    """What a simulated search took."""

    workers: int
    seconds: float = 0.0
    shards: int = 0
    sent: float = 0.0  # bytes
    received: float = 0.0
    training: float = 0.0  # seconds, over all workers
    busy: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PLACES, 0.0))  # seconds of each

    @property
    def messages(self) -> int:
        return 2 * self.shards

    @property
    def efficiency(self) -> float:
        """The share of the workers' time that is training."""
        return self.training / (self.workers * self.seconds) if self.seconds else 1.0

    def share(self, place: str) -> float:
        """The share of the time that something is busy."""
        return self.busy[place] / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class Shard:
    recipes: int
    seconds: float  # of training
    sent: float  # bytes
    received: float


def cut(recipes: int, seconds: float, workers: int, least: float) -> list[int]:
    """Recipes in each shard. All recipes cost the same.

    >>> cut(6, 1.0, workers=1, least=1.0)
    [2, 1, 1, 1, 1]
    """
    left, sizes = recipes, []
    while left:
        goal = max(least, left * seconds / (SHARE * workers))
        sizes.append(min(left, max(1, int(goal / seconds))))
        left -= sizes[-1]
    return sizes


def simulate(costs: Costs, recipes: int, workers: int, round_of: int, rungs: Sequence[Rung] = HALVING) -> Outcome:
    """A whole search: rounds of up to so many recipes, rung by rung. After each the networks travel."""
    run = _Run(costs, workers)
    left = recipes
    while left > 0:
        going, done = min(left, round_of), 0.0
        left -= going
        for share, kept in rungs:
            sent = costs.sent + (done > 0) * costs.state
            received = costs.received_end if share >= 1 else costs.received + costs.state
            run.rung(going, (share - done) * costs.recipe, sent, received)
            going, done = max(1, round(kept * going)), share
    return run.outcome


class _Run:
    """A simulated search under way."""

    def __init__(self, costs: Costs, workers: int) -> None:
        self.costs, self.workers, self.outcome = costs, workers, Outcome(workers)
        self.free = dict.fromkeys(PLACES, 0.0)  # when each has time again
        self.knowing = 0  # workers that have the job
        self.writing: deque[float] = deque()  # when what is to be written will have been

    def rung(self, recipes: int, seconds: float, sent: float, received: float) -> None:
        """Recipes of so many seconds and bytes each, until the last shard is back and written down."""
        waiting = deque(self._shards(recipes, seconds, sent, received))
        there: deque[Shard] = deque()  # with the workers, not begun
        back: deque[Shard] = deque()  # results that the search has not looked at
        idle, flying, count = self.workers, 0, itertools.count()
        events: list[tuple[float, int, int, Shard | None]] = [(self.outcome.seconds, next(count), TURN, None)]
        while events:
            now, _, kind, shard = heapq.heappop(events)
            if shard is not None:
                idle += kind == DONE
                if kind == DONE:
                    back_at = self._serve("link back", now, shard.received / self.costs.link)
                    heapq.heappush(events, (back_at, next(count), BACK, shard))
                (there if kind == ARRIVED else back if kind == BACK else deque()).append(shard)
            while idle and there:
                idle -= 1
                mine = there.popleft()
                heapq.heappush(events, (now + mine.seconds, next(count), DONE, mine))
            if now < self.free["search"]:
                continue
            if back:  # results first, as in the real loop
                flying -= 1
                then = self._collect(now, back.popleft(), flying)
            elif waiting and flying < self.workers + AHEAD:
                flying += 1
                then = self._serve("search", now, self.costs.submit)
                mine = waiting.popleft()
                heapq.heappush(events, (self._send(then, mine), next(count), ARRIVED, mine))
            else:
                continue
            heapq.heappush(events, (then, next(count), TURN, None))
            self.outcome.seconds = max(self.outcome.seconds, then)
        while self.writing:
            self.outcome.seconds = max(self.outcome.seconds, self.writing.popleft())

    def _shards(self, recipes: int, seconds: float, sent: float, received: float) -> list[Shard]:
        costs = self.costs
        sizes = sorted(cut(recipes, seconds, self.workers, LEAST_SECONDS), reverse=True)
        return [Shard(size, size * seconds, size * sent + costs.shard, size * received + costs.shard) for size in sizes]

    def _serve(self, place: str, now: float, seconds: float) -> float:
        """When a place, which does one thing at a time, will have done this."""
        self.free[place] = max(self.free[place], now) + seconds
        self.outcome.busy[place] += seconds
        return self.free[place]

    def _send(self, now: float, shard: Shard) -> float:
        size = shard.sent
        if self.knowing < self.workers:
            self.knowing += 1
            size += self.costs.job
        self.outcome.sent += size
        self.outcome.received += shard.received
        self.outcome.shards += 1
        self.outcome.training += shard.seconds
        return self._serve("link out", now, size / self.costs.link)

    def _collect(self, now: float, shard: Shard, flying: int) -> float:
        """Take in a result; wait where too much is still to be written."""
        costs = self.costs
        then = self._serve("search", now, costs.collect + costs.watch * flying + costs.note * shard.recipes)
        while self.writing and (self.writing[0] <= then or len(self.writing) >= PENDING):
            then = max(then, self.writing.popleft())
        self.free["search"] = then
        self.writing.append(self._serve("disk", then, costs.disk + costs.disk_each * shard.recipes))
        return then


def gains(costs: Costs, recipes: int, workers: int, round_of: int) -> dict[str, float]:
    """How many times quicker the search would be if one thing cost nothing: what holds it up most is the largest."""
    seconds = simulate(costs, recipes, workers, round_of).seconds
    without = {
        "search": replace(costs, submit=0.0, collect=0.0, note=0.0, watch=0.0),
        "link": replace(costs, link=math.inf),
        "disk": replace(costs, disk=0.0, disk_each=0.0),
    }
    found = {name: seconds / simulate(other, recipes, workers, round_of).seconds for name, other in without.items()}
    return found | {"rounds": seconds / simulate(costs, recipes, workers, recipes).seconds}
