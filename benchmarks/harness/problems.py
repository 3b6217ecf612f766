"""What is trained in a benchmark: the paper's population, samples of it, and random data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from shoal.population.members import Member
from shoal.population.population import Population

WIDTHS = range(1, 101)
# Those of the paper, which stay the same when shoal.population.activations has more.
ACTIVATIONS = ("identity", "sigmoid", "tanh", "relu", "elu", "selu", "gelu", "leaky_relu", "hardshrink", "mish")
REPETITIONS = 10
LEARNING_RATE = 0.01
PAPER_MEMBERS = len(WIDTHS) * len(ACTIVATIONS) * REPETITIONS


class Problem(NamedTuple):
    """A population at its initial weights, and the data it is trained on. All members have one batch size."""

    population: Population
    X: np.ndarray  # (n_rows, n_features) float32
    y: np.ndarray  # (n_rows,) int64

    @property
    def batch_size(self) -> int:
        return self.population.members[0].batch_size

    @property
    def flops(self) -> float:
        """Multiplications and additions of one epoch, padding not counted."""
        return float(self.population.layout.flops_per_row.sum()) * len(self.X)

    def part(self, members: Sequence[int] | np.ndarray | None = None, rows: int | None = None) -> Problem:
        """Some of the members, the first `rows` of the rows."""
        population = self.population if members is None else self.population.select(members)
        return Problem(population, self.X[:rows], self.y[:rows])

    def check(self) -> None:
        """Raise if a network diverged: it costs nothing from then on, and a time measured so would be a lie."""
        stopped = sum(status != "active" for status in self.population.status)
        if stopped:
            raise RuntimeError(f"{stopped} of {len(self.population)} networks diverged: their times mean nothing")


def spread(count: int) -> list[tuple[int, str]]:
    """`count` (width, activation) pairs of the paper's 1,000: widths evenly spaced, activations in turn.

    The mean width is that of the whole, so that a sample does the work of the whole times its share.

    >>> spread(4)
    [(13, 'identity'), (38, 'sigmoid'), (63, 'tanh'), (88, 'relu')]
    >>> len(set(spread(1000)))
    1000
    """
    positions = [int((k + 0.5) * len(WIDTHS) / count) for k in range(count)]
    return [(WIDTHS[position], ACTIVATIONS[k % len(ACTIVATIONS)]) for k, position in enumerate(positions)]


def paper_members(count: int = PAPER_MEMBERS, batch_size: int = 32) -> list[Member]:
    """The paper's models: 1 to 100 neurons x ten activations x ten repetitions; fewer are spread over all of them.

    >>> members = paper_members()
    >>> len(members), members[0].hidden, members[-1].hidden
    (10000, (1,), (100,))
    """
    repetitions = max(1, min(REPETITIONS, count // 20))
    members = [
        Member(
            hidden=(width,), activation=activation, optimizer="sgd", learning_rate=LEARNING_RATE,
            batch_size=batch_size, seed=seed,
        )
        for width, activation in spread(-(-count // repetitions))
        for seed in range(repetitions)
    ]  # fmt: skip
    return members[:count]


def random_data(rows: int, features: int, classes: int = 2, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Normal features and classes that have nothing to do with them, as in the paper."""
    generator = np.random.default_rng(seed)
    return generator.standard_normal((rows, features), dtype=np.float32), generator.integers(0, classes, rows)


def sample_groups(members: Sequence[Member], count: int) -> list[np.ndarray]:
    """The members of `count` evenly spaced (shape, activation) groups, activations in turn where there are ten."""
    groups = group(members)
    if count >= len(groups):
        return groups
    kinds = len({member.activation for member in members})
    chosen = []
    for k in range(count):
        position = int((k + 0.5) * len(groups) / count)
        block = position // kinds * kinds
        chosen.append(groups[min(block + k % kinds, len(groups) - 1)])
    return chosen


def group(members: Sequence[Member]) -> list[np.ndarray]:
    """Indices of members that differ in nothing but their seed, in order of first appearance."""
    found: dict[Member, list[int]] = {}
    for i, member in enumerate(members):
        found.setdefault(member.replace(seed=0), []).append(i)
    return [np.array(indices) for indices in found.values()]
