"""Small packed networks that tests of `shoal.torch` share."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from shoal.torch import ParallelMLPs  # noqa: E402

BATCH, FEATURES = 24, 5
RAGGED = [(3,), (2, 4), (5,), (4, 3, 2), (1, 1), (6,), (2, 2, 2)]


def ragged_activations():
    """Three activations that alternate, so that the order in memory is not the order given."""
    tanh, relu = nn.Tanh(), nn.ReLU()
    return [tanh, relu, torch.sin, tanh, torch.sin, relu, tanh]


def make(activations=("tanh", "relu"), **changes):
    arguments = {"in_features": FEATURES, "out_features": 3, "min_neurons": 1, "max_neurons": 5, "step": 2}
    arguments |= {"repetitions": 2, "activations": activations, "device": "cpu"}
    return ParallelMLPs(**(arguments | changes))
