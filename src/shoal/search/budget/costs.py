"""Amounts of work, their costs, and the largest size of a round."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shoal.search.problem.problem import Problem
from shoal.search.rounds.candidates import Candidate, candidate_cost
from shoal.search.space import Recipe
from shoal.search.strategies import Rung

LARGEST_ROUND = 1 << 31  # bytes of weights and moments that a round may take
FEWEST_PER_ROUND = 4
MOST_PER_ROUND = 400
WANTED_RECIPES = 60  # that should fit into a budget; recipes are made shorter for it
ROUNDS = 5  # aimed at, with a budget
SEEDS_SHARE = 0.15  # of the time, for more seeds of the best
FORWARD = 0.4  # of what training takes for a row: the forward pass, which is one product of three
WORTH_A_ROUND = 0.02  # of the budget: with more of it left than that, the search goes on
FINALISTS = 6  # recipes that get more seeds
SAMPLE_CELLS = 1 << 15  # rows times outputs of each candidate's predictions kept for honest estimates


@dataclass(frozen=True)
class Limits:
    """How much is to be done, where the clock does not decide."""

    recipes: int
    seeds: int
    finalists: int
    default_epochs: int
    threads: int | None
    seed: int


class Costs:
    """What training takes, measured as it goes on: seconds for each unit of cost (see `epoch_cost`)."""

    def __init__(self, problem: Problem, limits: Limits) -> None:
        self.problem, self.limits = problem, limits
        self.rate = 0.0  # seconds per unit of cost, as measured last
        self.spent = 0.0  # cost of all training so far
        self.planned = 0.0  # cost of all rounds begun so far, and of the seeds to come
        self.network_epochs = 0
        self.training_seconds = 0.0

    def seconds(self, recipes: Sequence[Recipe], rungs: Sequence[Rung]) -> float:
        """Seconds that these recipes would take, at the speed measured last."""
        default = self.limits.default_epochs
        work = sum(candidate_cost(self.problem, recipe) * (recipe.member.epochs or default) for recipe in recipes)
        return max(self.rate * work * work_share(rungs), 1e-9)

    def predicting_seconds(self, recipes: Sequence[Recipe]) -> float:
        """Seconds that a fold's networks of these recipes take for a row, at the speed of training measured last."""
        rows = sum(len(split.train) for split in self.problem.splits)
        return FORWARD * self.rate * sum(candidate_cost(self.problem, recipe) for recipe in recipes) / rows

    def epoch_seconds(self, recipes: Sequence[Recipe]) -> float:
        """Seconds of an epoch of one of these recipes, on average."""
        return self.rate * float(np.mean([candidate_cost(self.problem, recipe) for recipe in recipes]))

    def worth_going_on(self, budget: float | None, tried: Sequence[Candidate], rungs: Sequence[Rung]) -> float:
        """Seconds that must be left for another round: for a few recipes like these, with some to spare."""
        if budget is None:
            return math.inf
        each = self.seconds([candidate.recipe for candidate in tried], rungs) / len(tried)
        return max(WORTH_A_ROUND * budget, 2 * FEWEST_PER_ROUND * each)

    def plan(self, candidates: Sequence[Candidate], rungs: Sequence[Rung]) -> None:
        """A new round; the first one also stands for the seeds that will follow."""
        work = sum(candidate_cost(self.problem, candidate.recipe) * candidate.target for candidate in candidates)
        seeds = 0.0 if self.planned else (self.limits.seeds - 1) * self.limits.finalists / len(candidates)
        self.planned += work * (work_share(rungs) + seeds)

    def account(self, candidates: Sequence[Candidate], before: Mapping[int, int], seconds: float) -> float:
        """Share out the time by work: an engine trains many networks at a time and cannot say what each one took.

        Gives back the cost of that work.
        """
        costs = np.array([
            candidate_cost(self.problem, one.recipe) * max(one.epochs - before[one.number], 0) for one in candidates
        ])  # fmt: skip
        total = max(float(costs.sum()), 1e-300)
        for candidate, cost in zip(candidates, costs, strict=True):
            candidate.seconds += seconds * cost / total
            self.network_epochs += (candidate.epochs - before[candidate.number]) * len(self.problem.folds)
        self.spent += total
        return total

    def measured(self, cost: float, seconds: float) -> None:
        """So long it took, by the clock, to train what costs so much."""
        if cost > 0:
            self.rate = seconds / cost
            self.training_seconds += seconds

    def share_done(self) -> float:
        return min(0.99, self.spent / max(self.planned, 1e-300))


def shortened(epochs: int, rungs: Sequence[Rung], affordable: float) -> int:
    """Epochs of the longest recipes, cut so that WANTED_RECIPES of them fit into so many epochs in all."""
    share = affordable / (WANTED_RECIPES * work_share(rungs) * epochs)
    return int(np.clip(epochs * share, min(epochs, max(4, epochs // 8)), epochs))


def work_share(rungs: Sequence[Rung]) -> float:
    """Work of these rungs, as a share of training every candidate to the end."""
    total, going, before = 0.0, 1.0, 0.0
    for share, kept in rungs:
        total += going * (share - before)
        going, before = going * kept, share
    return total


def largest_round(problem: Problem) -> int:
    """Recipes whose weights and moments fit into LARGEST_ROUND, for networks of middling size."""
    width = max(matrix.shape[1] for matrix in problem.inputs.values())
    return fitting_recipes(width, problem.task.n_outputs, len(problem.folds))


def fitting_recipes(width: int, outputs: int, folds: int) -> int:
    parameters = 128 * (width + 128 + outputs)
    return max(FEWEST_PER_ROUND, int(LARGEST_ROUND / (16 * parameters * folds)))


def most_sampled(outputs: int) -> int:
    """Rows whose predictions are kept for every candidate."""
    return max(500, SAMPLE_CELLS // outputs)


def choose_sample(problem: Problem, seed: int) -> np.ndarray:
    """Rows whose predictions are kept for every candidate: all of them, or a random part of a long table."""
    scored = np.flatnonzero(problem.valid_weight > 0)
    most = most_sampled(problem.task.n_outputs)
    if len(scored) <= most:
        return scored
    return np.sort(np.random.default_rng(seed).choice(scored, most, replace=False))
