"""Where order matters: an asynchronous server, and steps of many nodes of which the slowest counts."""

from __future__ import annotations

import heapq
import itertools
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

DRAWS = 400  # of which the mean is taken


def slowest_of(nodes: int, samples: Sequence[float], seed: int = 0) -> float:
    """How much longer than one node's step the slowest of n steps takes, on average.

    `samples` are measured steps; they are drawn at random for each node.

    >>> slowest_of(1, [1.0, 2.0]), slowest_of(3, [1.0, 1.0])
    (1.0, 1.0)
    """
    if nodes == 1 or len(samples) < 2:
        return 1.0
    chance = random.Random(seed)
    largest = [max(chance.choices(samples, k=nodes)) for _ in range(DRAWS)]
    return max(1.0, statistics.fmean(largest) / statistics.fmean(samples))


@dataclass(frozen=True)
class Served:
    """An epoch of an asynchronous server."""

    seconds: float
    staleness: float  # gradients applied between a worker's weights and its gradient, mean
    busy: float  # share of the time that the server is at work
    spans: list[dict[str, object]]  # of the first gradients of each node


def serve(
    steps: Sequence[int],
    compute: Sequence[float],
    message: float,
    occupied: float,
    service: float,
    samples: Sequence[float] = (1.0,),
    seed: int = 0,
) -> Served:
    """An epoch in which each worker computes, sends its gradient, and waits for new weights.

    steps     of each worker; compute: seconds of its steps
    message   seconds that a message is under way, `occupied` of which the server's link has no room for another
    service   seconds that the server needs for a gradient, one after the other
    samples   measured steps relative to their mean: drawn at random for each step
    """
    chance = random.Random(seed)
    counter = itertools.count()
    left, spans = list(steps), []
    version, since = 0, [0] * len(steps)
    link_free = server_free = busy = end = 0.0
    stale: list[int] = []
    events: list[tuple[float, int, int]] = []

    def begin(worker: int, now: float) -> None:
        seconds = compute[worker] * chance.choice(samples)
        if steps[worker] - left[worker] < 2:
            spans.append({"node": worker + 1, "lane": "compute", "name": "gradient", "start": now, "seconds": seconds})
        heapq.heappush(events, (now + seconds, next(counter), worker))

    for worker, count in enumerate(steps):
        if count:
            begin(worker, 0.0)
    while events:
        ready, _, worker = heapq.heappop(events)
        arrival = max(ready, link_free) + message
        link_free = max(ready, link_free) + occupied
        started = max(arrival, server_free)
        server_free = started + service
        back = server_free + message
        busy += service
        if steps[worker] - left[worker] < 2:
            spans.append({"node": worker + 1, "lane": "link", "name": "to the server and back", "start": ready,
                          "seconds": back - ready})  # fmt: skip
            spans.append({"node": 0, "lane": "compute", "name": "update", "start": started, "seconds": service})
        stale.append(version - since[worker])
        version += 1
        since[worker] = version
        left[worker] -= 1
        end = max(end, back)
        if left[worker]:
            begin(worker, back)
    return Served(end, statistics.fmean(stale) if stale else 0.0, busy / end if end else 0.0, spans)
