"""A computer of a given speed, on which searches take the same time everywhere."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from shoal.metrics.metric import Metric
from shoal.search.budget.clock import Clock
from shoal.search.problem.problem import Problem
from shoal.search.rounds.candidates import candidate_cost
from shoal.search.rounds.training import Control, Trained, Workload, epochs_done, new_networks, train
from shoal.search.space import Recipe


class Machine:
    """Real training, timed by its work: `speed` units of `candidate_cost` a second. Nothing else takes time.

    Networks are trained an epoch at a time, and after each epoch the search is asked whether to go on.
    """

    def __init__(self, speed: float) -> None:
        self.time, self.speed = 0.0, speed
        self.longest = 0.0  # seconds between two moments at which a search was asked

    def now(self) -> float:
        return self.time

    def clock(self, budget: float | None = None) -> Clock:
        return Clock(budget, self.time, now=self.now)

    def train(
        self,
        problem: Problem,
        metric: Metric | None,
        work: Workload,
        threads: int | None,
        control: Control | None = None,
    ) -> Trained:
        """Takes the place of `shoal.search.rounds.training.train`."""
        work = replace(work, networks=work.networks or new_networks(problem, work.encoding, work.members))
        assert work.networks is not None
        folds, control = len(problem.folds), control or Control()
        while True:
            before = epochs_done(work.networks, folds).copy()
            train(problem, None, replace(work, until=np.minimum(before + 1, work.until)), threads)
            after = epochs_done(work.networks, folds)
            self._pass_time(problem, work, (after > before).any(axis=1))
            going = (after > before) & (after < work.until)
            if control.stop() or not going.any():
                break
        reached = ((after >= work.until) | (after == before)).all(axis=1)  # diverged networks stand still
        done = replace(work, until=work.until * reached[:, None])
        return train(problem, metric, done, threads, Control(late=control.late))  # nothing is trained: nobody is asked

    def _pass_time(self, problem: Problem, work: Workload, trained: np.ndarray) -> None:
        members = [member for member, moved in zip(work.members, trained, strict=True) if moved]
        seconds = sum(candidate_cost(problem, Recipe(member, work.encoding)) for member in members) / self.speed
        self.time, self.longest = self.time + seconds, max(self.longest, seconds)
