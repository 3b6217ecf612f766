"""The truth that engines are compared with: one member trained alone, in plain PyTorch, one batch after another."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from shoal import Member, _native
from shoal.population.activations import TABLE
from shoal.population.rows import Split
from shoal.torch import ACTIVATIONS as MODULES
from support.kernel import dropout_mask


@dataclass
class Trained:
    """What became of a member: weights as (W of shape (fan_in, fan_out), b), and its curves, one number an epoch."""

    weights: list[tuple[np.ndarray, np.ndarray]]
    losses: list[float]
    valid_losses: list[float]
    valid_scores: list[float]
    status: str
    best_epoch: int
    closest_jump: float  # how near an input of an activation came to a place where the function jumps


@contextmanager
def one_thread() -> Iterator[None]:
    """Networks as small as these are many times faster without torch's threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def initial_layers(member: Member, n_features: int, n_outputs: int) -> list[nn.Linear]:
    """The member's linear layers as PyTorch draws them."""
    widths = [len(member.features) if member.features else n_features, *member.hidden, n_outputs]
    generator_state = torch.get_rng_state()
    torch.manual_seed(member.seed)
    layers = [nn.Linear(fan_in, fan_out) for fan_in, fan_out in pairwise(widths)]
    if member.init == "glorot":
        torch.manual_seed(member.seed)
        for layer in layers:
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
    torch.set_rng_state(generator_state)
    return layers


@one_thread()
def train_alone(
    member: Member,
    n_features: int,
    n_outputs: int,
    X: np.ndarray,
    y: np.ndarray,
    loss: str,
    epochs: int,
    split: Split | None = None,
    class_weight: np.ndarray | None = None,
    shuffle: bool = True,
    order_key: int = 0,
    start: list[tuple[np.ndarray, np.ndarray]] | None = None,
    dtype: torch.dtype = torch.float32,
) -> Trained:
    """Train one network for so many epochs, or fewer if it stops before.

    `start` gives other weights than those drawn from the member's seed. With dtype=torch.float64 the same numbers are
    the starting point, but all arithmetic is done in double precision.
    """
    layers = initial_layers(member, n_features, n_outputs)
    for layer, (weight, bias) in zip(layers, start or [], strict=start is not None):
        layer.weight.data, layer.bias.data = torch.tensor(weight.T.copy()), torch.tensor(bias.copy())
    data = tensors(member, n_features, n_outputs, X, y, loss, split or Split(np.arange(len(X))), class_weight, dtype)
    alone = Alone(
        member, layers, data, nn.ModuleList(layers).to(dtype), epochs if member.epochs is None else member.epochs
    )
    for epoch in range(epochs):
        order = torch.arange(len(data.train))
        if shuffle:
            order = torch.from_numpy(_native.permutation(order_key, epoch, len(data.train)))
        alone.train(order)
        alone.judge(epoch + 1)
        if alone.result.status != "active":
            break
    alone.result.weights = alone.best_weights or numbers(layers)
    return alone.result


@dataclass
class Data:
    """What a network is trained on, as tensors; `train` and `valid` are row numbers, `weights` those of `train`."""

    loss: str
    inputs: torch.Tensor
    target: torch.Tensor
    train: torch.Tensor
    valid: torch.Tensor
    weights: torch.Tensor
    classes: torch.Tensor


def tensors(
    member: Member,
    n_features: int,
    n_outputs: int,
    X: np.ndarray,
    y: np.ndarray,
    loss: str,
    split: Split,
    class_weight: np.ndarray | None,
    dtype: torch.dtype,
) -> Data:
    inputs = torch.tensor(X)[:, list(member.features or range(n_features))].to(dtype)
    target = torch.tensor(y).long() if loss == "cross_entropy" else torch.tensor(y).to(dtype).reshape(len(y), -1)
    weights = torch.ones(len(split.train), dtype=dtype)
    if split.weight is not None:
        weights = torch.tensor(split.weight).to(dtype)
    classes = torch.ones(n_outputs, dtype=dtype) if class_weight is None else torch.tensor(class_weight).to(dtype)
    return Data(loss, inputs, target, torch.tensor(split.train), torch.tensor(split.valid), weights, classes)


class Alone:
    """A network under way: one epoch after another, and what is known of it after each."""

    def __init__(self, member: Member, layers: list[nn.Linear], data: Data, network: nn.Module, horizon: int) -> None:
        self.member, self.layers, self.data, self.network, self.horizon = member, layers, data, network, horizon
        self.optimizer = make_optimizer(member, network)
        self.result = Trained([], [], [], [], "active", 0, math.inf)
        self.best_loss, self.step = math.inf, 0
        self.best_weights: list[tuple[np.ndarray, np.ndarray]] | None = None

    def train(self, order: torch.Tensor) -> None:
        """One epoch over the training rows in this order."""
        total, mass = 0.0, 0.0
        for batch in order.split(self.member.batch_size):
            value, weight = self.update(batch)
            total, mass = total + value * weight, mass + weight
        self.result.losses.append(total / mass)

    def update(self, batch: torch.Tensor) -> tuple[float, float]:
        """One step of the optimiser; the loss of the batch and its weight in the mean over the epoch."""
        member, data = self.member, self.data
        per_epoch = math.ceil(len(data.train) / member.batch_size)
        for group in self.optimizer.param_groups:
            group["lr"] = member.learning_rate * rate_factor(member, self.step, per_epoch, self.horizon)
        self.optimizer.zero_grad()
        rows = data.train[batch]
        outputs = forward(member, self.layers, data.inputs[rows], self.step, self.result)
        value, weight = batch_loss(
            data.loss, outputs, data.target[rows], data.weights[batch], data.classes, member.label_smoothing
        )
        value.backward()
        if member.clip > 0:
            nn.utils.clip_grad_norm_(self.network.parameters(), member.clip)
        self.optimizer.step()
        self.step += 1
        return value.item(), weight

    def judge(self, epochs: int) -> None:
        """After so many epochs: diverged, better than ever, out of patience, or finished."""
        member, data, result = self.member, self.data, self.result
        if not (math.isfinite(result.losses[-1]) and all(p.isfinite().all() for p in self.network.parameters())):
            result.status = "diverged"
            return
        if len(data.valid):
            outputs = forward(member, self.layers, data.inputs[data.valid])
            score(result, data.loss, outputs, data.target[data.valid], data.classes)
        if member.patience > 0:
            if result.valid_losses[-1] < self.best_loss:
                self.best_loss, result.best_epoch = result.valid_losses[-1], epochs
                self.best_weights = numbers(self.layers)
            elif epochs - result.best_epoch >= member.patience:
                result.status = "stopped early"
                return
        if epochs == member.epochs:
            result.status = "finished"


def make_optimizer(member: Member, network: nn.Module) -> torch.optim.Optimizer:
    if member.optimizer == "sgd":
        return torch.optim.SGD(network.parameters(), lr=1.0, momentum=member.momentum, weight_decay=member.weight_decay)
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[member.optimizer]
    return kind(network.parameters(), lr=1.0, weight_decay=member.weight_decay, betas=(0.9, member.beta2))


def rate_factor(member: Member, step: int, per_epoch: int, horizon: int) -> float:
    """What the learning rate is multiplied with at update number `step`."""
    warm, total = round(member.warmup * per_epoch), horizon * per_epoch
    if step < warm:
        return (step + 1) / warm
    if member.schedule == "constant":
        return 1.0
    return 0.5 * (1 + math.cos(math.pi * min(1.0, (step - warm) / max(1, total - warm))))


def forward(
    member: Member, layers: list[nn.Linear], x: torch.Tensor, step: int | None = None, result: Trained | None = None
) -> torch.Tensor:
    """Raw outputs; with dropout if `step`, the number of updates done before, is given."""
    activation = MODULES[member.activation]()
    for number, layer in enumerate(layers[:-1]):
        sums = layer(x)
        for place in TABLE[member.activation].jumps_at if result is not None else ():
            result.closest_jump = min(result.closest_jump, float((sums.detach() - place).abs().min()))
        x = activation(sums)
        if member.dropout > 0 and step is not None:
            kept = dropout_mask(member.seed, step, number, tuple(x.shape), member.dropout)
            x = x * torch.from_numpy(kept) / (1 - member.dropout)
    return layers[-1](x)


def batch_loss(
    loss: str,
    outputs: torch.Tensor,
    target: torch.Tensor,
    weights: torch.Tensor,
    classes: torch.Tensor,
    smoothing: float = 0.0,
) -> tuple[torch.Tensor, float]:
    """The weighted mean loss of a batch, and the weight that the batch has in the mean over an epoch."""
    if loss == "cross_entropy":
        each = functional.cross_entropy(outputs, target, classes, reduction="none", label_smoothing=smoothing)
        mass = (weights * classes[target]).sum()
    else:
        function = {"bce": functional.binary_cross_entropy_with_logits, "mse": functional.mse_loss}[loss]
        each = function(outputs, target, reduction="none").mean(1)
        mass = weights.sum()
    return (weights * each).sum() / mass, float(mass)


@torch.no_grad()
def score(result: Trained, loss: str, outputs: torch.Tensor, target: torch.Tensor, classes: torch.Tensor) -> None:
    value, _ = batch_loss(loss, outputs, target, torch.ones(len(target), dtype=outputs.dtype), classes)
    result.valid_losses.append(float(value))
    if loss == "cross_entropy":
        result.valid_scores.append(float((outputs.argmax(1) == target).double().mean()))
    elif loss == "bce":
        result.valid_scores.append(float(((outputs > 0) == (target > 0.5)).double().mean()))
    else:
        errors, deviations = (outputs - target).square().sum(), (target - target.mean(0)).square().sum()
        result.valid_scores.append(float(1 - errors / deviations))


def numbers(layers: list[nn.Linear]) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(layer.weight.detach().numpy().T.copy(), layer.bias.detach().numpy().copy()) for layer in layers]
