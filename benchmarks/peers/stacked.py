"""Networks of equal shape in stacked tensors: with torch.func.vmap, and with torch.bmm by hand."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state, vmap

from benchmarks.harness.problems import Problem, group
from benchmarks.peers import Weights
from benchmarks.peers.sequential import optimizer
from benchmarks.peers.torch_threads import row_order, torch_threads


def chunks(problem: Problem, chunk: int | None) -> list[np.ndarray]:
    """Members of equal shape and recipe, at most `chunk` together, so that they can stay in cache."""
    parts: list[np.ndarray] = []
    for indices in group(problem.population.members):
        size = chunk or len(indices)
        parts += [indices[start : start + size] for start in range(0, len(indices), size)]
    return parts


class StackedPeer:
    """What both have in common: each chunk of networks runs its epochs, then the next one does."""

    def __init__(self, problem: Problem, threads: int, chunk: int | None = None) -> None:
        self.X, self.y = torch.from_numpy(problem.X), torch.from_numpy(problem.y)
        self.batch_size, self.threads = problem.batch_size, threads
        self.parts = chunks(problem, chunk)
        self.place = {int(i): (p, k) for p, part in enumerate(self.parts) for k, i in enumerate(part)}
        self.states = [self.pack(problem, part) for part in self.parts]

    def pack(self, problem: Problem, part: np.ndarray) -> Any:
        raise NotImplementedError

    def step(self, state: Any, X: Tensor, y: Tensor) -> None:
        raise NotImplementedError

    def run(self, epochs: int, shuffle: bool = True) -> None:
        with torch_threads(self.threads), torch.no_grad():
            for state in self.states:
                for _ in range(epochs):
                    self._epoch(state, shuffle)

    def _epoch(self, state: Any, shuffle: bool) -> None:
        order = row_order(len(self.X), shuffle)
        X, y = self.X[order], self.y[order]
        for start in range(0, len(X), self.batch_size):
            self.step(state, X[start : start + self.batch_size], y[start : start + self.batch_size])

    def warm_up(self) -> None:
        with torch_threads(self.threads), torch.no_grad():
            self._epoch(self.states[0], shuffle=True)


class VmapState(NamedTuple):
    gradients: Any  # (parameters, X, y) -> gradients, all stacked
    parameters: dict[str, Tensor]
    learning_rate: float
    optimizer: torch.optim.Optimizer | None  # None: plain SGD, in place


class VmapPeer(StackedPeer):
    """PyTorch's own way to train an ensemble: stack_module_state, vmap(grad(functional_call)), update in place."""

    def pack(self, problem: Problem, part: np.ndarray) -> VmapState:
        modules = [problem.population.extract(int(i)) for i in part]
        stacked, _ = stack_module_state(modules)
        parameters = {name: tensor.detach() for name, tensor in stacked.items()}
        base = copy.deepcopy(modules[0]).to("meta")

        def loss(one: dict[str, Tensor], X: Tensor, y: Tensor) -> Tensor:
            return nn.functional.cross_entropy(functional_call(base, one, (X,)), y)

        member = problem.population.members[int(part[0])]
        plain = member.optimizer == "sgd" and member.momentum == 0
        stepper = None if plain else optimizer(list(parameters.values()), member, fused=True)
        return VmapState(vmap(grad(loss), in_dims=(0, None, None)), parameters, member.learning_rate, stepper)

    def step(self, state: VmapState, X: Tensor, y: Tensor) -> None:
        gradients = state.gradients(state.parameters, X, y)
        if state.optimizer is None:
            for name, parameter in state.parameters.items():
                parameter.sub_(gradients[name], alpha=state.learning_rate)
            return
        for name, parameter in state.parameters.items():
            parameter.grad = gradients[name]
        state.optimizer.step()

    def weights(self, i: int) -> Weights:
        p, k = self.place[i]
        arrays = [tensor[k].numpy().copy() for tensor in self.states[p].parameters.values()]
        return [(arrays[at].T, arrays[at + 1]) for at in range(0, len(arrays), 2)]


class BmmState(NamedTuple):
    weights: list[Tensor]  # [networks, fan_in, fan_out] of each layer
    biases: list[Tensor]  # [networks, 1, fan_out]
    activation: str
    learning_rate: float
    optimizer: torch.optim.Optimizer | None


class BmmPeer(StackedPeer):
    """Forward and backward by hand with batched products, SGD fused into the last one. relu and tanh only."""

    def pack(self, problem: Problem, part: np.ndarray) -> BmmState:
        member = problem.population.members[int(part[0])]
        if member.activation not in ("relu", "tanh"):
            raise ValueError(f"the hand-written bmm knows relu and tanh; got {member.activation!r}")
        networks = [problem.population.weights(int(i)) for i in part]
        layers = list(zip(*networks, strict=True))
        weights = [torch.from_numpy(np.stack([W for W, _ in layer])) for layer in layers]
        biases = [torch.from_numpy(np.stack([b[None] for _, b in layer])) for layer in layers]
        plain = member.optimizer == "sgd" and member.momentum == 0
        stepper = None if plain else optimizer([*weights, *biases], member, fused=True)
        return BmmState(weights, biases, member.activation, member.learning_rate, stepper)

    def step(self, state: BmmState, X: Tensor, y: Tensor) -> None:
        signals = self._forward(state, X)
        slope = torch.softmax(signals.pop(), dim=2)  # [networks, rows, outputs]
        slope[:, torch.arange(len(y)), y] -= 1
        slope /= len(y)
        for k in reversed(range(len(state.weights))):
            below = torch.bmm(slope, state.weights[k].mT) if k else None
            self._apply(state, k, signals[k].mT, slope)
            if below is not None:
                slope = below.mul_(signals[k] > 0 if state.activation == "relu" else 1 - signals[k] ** 2)
        if state.optimizer is not None:
            state.optimizer.step()

    def _forward(self, state: BmmState, X: Tensor) -> list[Tensor]:
        signals = [X.expand(len(state.weights[0]), *X.shape)]
        for k, (weight, bias) in enumerate(zip(state.weights, state.biases, strict=True)):
            signal = torch.baddbmm(bias, signals[-1], weight)
            if k < len(state.weights) - 1:
                signal = signal.relu_() if state.activation == "relu" else signal.tanh_()
            signals.append(signal)
        return signals

    def _apply(self, state: BmmState, k: int, inputs: Tensor, slope: Tensor) -> None:
        weight, bias = state.weights[k], state.biases[k]
        if state.optimizer is None:
            weight.baddbmm_(inputs, slope, alpha=-state.learning_rate)
            bias.sub_(slope.sum(1, keepdim=True), alpha=state.learning_rate)
        else:
            weight.grad, bias.grad = torch.bmm(inputs, slope), slope.sum(1, keepdim=True)

    def weights(self, i: int) -> Weights:
        p, k = self.place[i]
        state = self.states[p]
        return [(W[k].numpy().copy(), b[k, 0].numpy().copy()) for W, b in zip(state.weights, state.biases, strict=True)]
