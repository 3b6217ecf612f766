"""The paper's method in a plain training loop."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from benchmarks.harness.problems import Problem
from benchmarks.peers import Weights
from benchmarks.peers.sequential import optimizer
from benchmarks.peers.torch_threads import row_order, torch_threads
from shoal.torch import ACTIVATIONS as MODULES
from shoal.torch import ScatterNetwork


class PackedNetwork(ScatterNetwork):
    """A `ScatterNetwork` whose parameters are loaded, never drawn."""

    def reset_parameters(self, layer_ids: Iterable[int] | None = None) -> None:
        """Draws nothing: the weights come from the population, and torch's random generator is not changed."""


class ReferencePeer:
    """The module behind `shoal.torch.ParallelMLPs`, autograd and torch.optim, as the paper's code trains it.

    The module is built and filled outside of the timing, since for a few updates that would take most of the time and
    make native look better than it is.
    """

    def __init__(self, problem: Problem, threads: int) -> None:
        population = problem.population
        self.X, self.y = torch.from_numpy(problem.X), torch.from_numpy(problem.y)
        self.batch_size, self.threads = problem.batch_size, threads
        shared = {name: kind() for name, kind in MODULES.items()}
        self.network = PackedNetwork(
            population.n_features,
            population.n_outputs,
            [member.hidden for member in population.members],
            [shared[member.activation] for member in population.members],
        )
        for i in range(len(population)):
            self.network.load(i, [(torch.from_numpy(W), torch.from_numpy(b)) for W, b in population.weights(i)])
        self.optimizer = optimizer(list(self.network.parameters()), population.members[0])

    def run(self, epochs: int, shuffle: bool = True) -> None:
        with torch_threads(self.threads):
            for _ in range(epochs):
                order = row_order(len(self.X), shuffle)
                X, y = self.X[order], self.y[order]
                for start in range(0, len(X), self.batch_size):
                    self._step(X[start : start + self.batch_size], y[start : start + self.batch_size])

    def _step(self, X: torch.Tensor, y: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        outputs = self.network(X)  # [batch, networks, outputs]
        targets = y[:, None].expand(outputs.shape[:2])
        losses = nn.functional.cross_entropy(outputs.flatten(0, 1), targets.flatten(), reduction="sum") / len(X)
        losses.backward()  # the sum of all networks' losses: each one's gradient is its own
        self.optimizer.step()

    def warm_up(self) -> None:
        with torch_threads(self.threads):
            self._step(self.X[: self.batch_size], self.y[: self.batch_size])

    def weights(self, i: int) -> Weights:
        return [(W.numpy(), b.numpy()) for W, b in self.network.layers(i) if b is not None]
