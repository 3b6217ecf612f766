"""Splits a rung into shards: pieces of work that never communicate with each other.

A shard is (candidates, epochs to reach) and needs nothing but the setting and its arguments. The largest go
first, there are several times more shards than workers, and the last ones are small: so the slowest worker is never
far behind.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shoal.population.layout import Layout
from shoal.search.problem.problem import Matrices
from shoal.search.rounds.candidates import Candidate, Order

SHARE = 3  # a shard is this part of what each worker has left to do
LARGEST_STATE = 64 << 20  # bytes of weights and moments of one shard, unless it is a single candidate
LEAST_SECONDS = 0.25  # that a shard takes, if there is enough to do


def state_bytes(matrices: Matrices, encoding: str, candidates: Sequence[Candidate]) -> np.ndarray:
    """(n_candidates,) bytes of the weights and moments of each on all folds, roughly."""
    width, outputs = matrices.inputs[encoding].shape[1], matrices.task.n_outputs
    counts = Layout([one.recipe.member for one in candidates], width, outputs).counts
    return np.asarray(counts) * 12 * len(matrices.folds)


def cut(matrices: Matrices, orders: Sequence[Order], workers: int, least: float) -> list[list[Order]]:
    """Shards for so many workers, each of at least this cost where there is enough to do."""
    left = sum(order.cost for order in orders)
    shards: list[list[Order]] = []
    for encoding in matrices.inputs:
        mine = [order for order in orders if order.candidate.recipe.encoding == encoding]
        if not mine:
            continue
        sizes = state_bytes(matrices, encoding, [order.candidate for order in mine])
        pairs = sorted(zip(mine, sizes.tolist(), strict=True), key=lambda pair: -pair[0].cost)
        while pairs:
            goal = max(least, left / (SHARE * workers))
            taken = _take(pairs, goal)
            left -= sum(order.cost for order in taken)
            shards.append(taken)
            del pairs[: len(taken)]
    return shards


def _take(pairs: Sequence[tuple[Order, int]], goal: float) -> list[Order]:
    """As many orders as cost that much, and are not too large; at least one."""
    taken: list[Order] = []
    cost, size = 0.0, 0
    for order, mine in pairs:
        if taken and (cost + order.cost > goal or size + mine > LARGEST_STATE):
            break
        taken.append(order)
        cost, size = cost + order.cost, size + mine
    return taken
