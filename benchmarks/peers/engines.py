"""Shoal's own engines."""

from __future__ import annotations

from benchmarks.harness.problems import Problem
from benchmarks.peers import Weights


class EnginePeer:
    """`Population.fit`, all of it: checking the data and packing the parameters are part of the time."""

    def __init__(self, problem: Problem, threads: int, engine: str) -> None:
        self.population, self.X, self.y = problem.population, problem.X, problem.y
        self.batch_size = problem.batch_size
        self.threads, self.engine = threads, engine

    def run(self, epochs: int, shuffle: bool = True) -> None:
        self.population.fit(self.X, self.y, epochs, engine=self.engine, threads=self.threads, shuffle=shuffle)

    def warm_up(self) -> None:
        """A fit of one update: nothing is compiled for a size."""
        X, y = self.X[: self.batch_size], self.y[: self.batch_size]
        self.population.fit(X, y, 1, engine=self.engine, threads=self.threads)

    def weights(self, i: int) -> Weights:
        return self.population.weights(i)
