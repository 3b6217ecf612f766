"""A computer of a given speed, on which searches take the same time everywhere."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from shoal.search.candidates import Candidate, Pool, candidate_cost
from shoal.search.timing import Clock


class Machine:
    """Real training, timed by its work: `speed` units of `candidate_cost` a second. Nothing else takes time.

    Networks are trained an epoch at a time, and after each epoch the search is asked whether to go on.
    """

    def __init__(self, speed: float) -> None:
        self.time, self.speed = 0.0, speed
        self.longest = 0.0  # seconds between two moments at which a search was asked
        self._train = Pool.train

    def now(self) -> float:
        return self.time

    def clock(self, budget: float | None = None) -> Clock:
        return Clock(budget, self.time, now=self.now)

    def train(
        self, pool: Pool, until: dict[int, list[int]], threads: int | None, seed: int, stop_when: Callable[[], bool]
    ) -> list[Candidate]:
        """Takes the place of `Pool.train`."""
        asked = [candidate for candidate in pool.candidates if candidate.number in until]
        while True:
            before = {candidate.number: pool.epochs_of(candidate) for candidate in asked}
            step = {number: np.minimum(before[number] + 1, until[number]).tolist() for number in before}
            there = self._train(pool, step, threads, seed, lambda: False)  # and those that have diverged
            moved = [one for one in asked if (pool.epochs_of(one) > before[one.number]).any()]
            seconds = sum(candidate_cost(pool.problem, one.recipe) for one in moved) / self.speed
            self.time, self.longest = self.time + seconds, max(self.longest, seconds)
            done = [one for one in there if step[one.number] == list(until[one.number]) or one not in moved]
            if stop_when() or len(done) == len(asked):
                return done
