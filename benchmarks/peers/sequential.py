"""One network after another: the loop that everybody writes."""

from __future__ import annotations

import torch
from torch import nn

from benchmarks.harness.problems import Problem
from benchmarks.peers import Weights
from benchmarks.peers.torch_threads import row_order, torch_threads
from shoal.population.members import Member


class SequentialPeer:
    """nn.Sequential and torch.optim; batches are slices of a shuffled tensor, which is faster than a DataLoader."""

    def __init__(self, problem: Problem, threads: int) -> None:
        population = problem.population
        self.X, self.y = torch.from_numpy(problem.X), torch.from_numpy(problem.y)
        self.batch_size, self.threads = problem.batch_size, threads
        self.models = [population.extract(i).train() for i in range(len(population))]
        pairs = zip(self.models, population.members, strict=True)
        self.optimizers = [optimizer(list(model.parameters()), member) for model, member in pairs]

    def run(self, epochs: int, shuffle: bool = True) -> None:
        with torch_threads(self.threads):
            for model, stepper in zip(self.models, self.optimizers, strict=True):
                for _ in range(epochs):
                    self._epoch(model, stepper, shuffle)

    def _epoch(self, model: nn.Module, stepper: torch.optim.Optimizer, shuffle: bool) -> None:
        order = row_order(len(self.X), shuffle)
        X, y = self.X[order], self.y[order]
        for start in range(0, len(X), self.batch_size):
            stepper.zero_grad()
            outputs = model(X[start : start + self.batch_size])
            nn.functional.cross_entropy(outputs, y[start : start + self.batch_size]).backward()
            stepper.step()

    def warm_up(self) -> None:
        with torch_threads(self.threads):
            self._epoch(self.models[0], self.optimizers[0], shuffle=True)

    def weights(self, i: int) -> Weights:
        layers = [module for module in self.models[i] if isinstance(module, nn.Linear)]
        return [(layer.weight.detach().T.numpy().copy(), layer.bias.detach().numpy().copy()) for layer in layers]


def optimizer(parameters: list[torch.Tensor], member: Member, fused: bool = False) -> torch.optim.Optimizer:
    """torch's optimiser for a member's recipe."""
    if member.optimizer == "sgd":
        return torch.optim.SGD(parameters, member.learning_rate, member.momentum, fused=fused)
    if member.optimizer == "adam":
        return torch.optim.Adam(parameters, member.learning_rate, fused=fused)
    raise ValueError(f"peers train with sgd or adam; got {member.optimizer!r}")
