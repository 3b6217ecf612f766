"""Networks by a short name: `mlp:784-1024-10` and `cnn`, the ones the papers use."""

from __future__ import annotations

import itertools

import torch
from torch import nn

from shoal.members import nearest
from shoal.parallel.job import one_of
from shoal.torch import ACTIVATIONS

KINDS = ("mlp", "cnn")
INITS = ("torch", "glorot")


def make_model(
    net: str,
    activation: str = "relu",
    output: str = "identity",
    init: str = "torch",
    dropout: float = 0.0,
    seed: int = 0,
) -> nn.Sequential:
    """A network from its name, its weights drawn from the seed and nothing else.

    >>> make_model("mlp:4-50-3")
    Sequential(
      (0): Linear(in_features=4, out_features=50, bias=True)
      (1): ReLU()
      (2): Linear(in_features=50, out_features=3, bias=True)
    )
    """
    one_of("activation", activation, tuple(ACTIVATIONS))
    one_of("output activation", output, tuple(ACTIVATIONS))
    one_of("init", init, INITS)
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout must be from 0 to below 1; got {dropout!r}")
    kind, _, sizes = net.partition(":")
    if kind not in KINDS:
        raise ValueError(f"a network is named mlp:784-256-10 or cnn; got {net!r}{nearest(kind, KINDS)}")
    state = torch.get_rng_state()
    try:
        torch.manual_seed(seed)
        layers = _cnn(activation, dropout, sizes) if kind == "cnn" else _mlp(_sizes(sizes, net), activation, dropout)
        if output != "identity":
            layers.append(ACTIVATIONS[output]())
        model = nn.Sequential(*layers)
        if init == "glorot":
            _glorot(model)
        return model
    finally:
        torch.set_rng_state(state)


def _sizes(text: str, net: str) -> list[int]:
    parts = text.split("-")
    if len(parts) < 2 or not all(part.isdigit() and int(part) > 0 for part in parts):
        raise ValueError(f"the layers of an mlp are whole numbers, as in mlp:784-256-10; got {net!r}")
    return [int(part) for part in parts]


def _mlp(sizes: list[int], activation: str, dropout: float) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for k, (fan_in, fan_out) in enumerate(itertools.pairwise(sizes)):
        layers.append(nn.Linear(fan_in, fan_out))
        if k < len(sizes) - 2:
            layers.append(ACTIVATIONS[activation]())
            if dropout:
                layers.append(nn.Dropout(dropout))
    return layers


def _cnn(activation: str, dropout: float, sizes: str) -> list[nn.Module]:
    """Two convolutions of 32 and 64 channels with pooling, then 128-64-10; for rows of 784 pixels."""
    if sizes:
        raise ValueError(f"cnn has no sizes to choose; got 'cnn:{sizes}'")
    act = ACTIVATIONS[activation]
    body: list[nn.Module] = [
        nn.Unflatten(1, (1, 28, 28)),
        nn.Conv2d(1, 32, 3, padding=1), act(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), act(), nn.MaxPool2d(2),
        nn.Flatten(),
    ]  # fmt: skip
    return body + _mlp([64 * 7 * 7, 128, 64, 10], activation, dropout)


def _glorot(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Conv2d)):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
