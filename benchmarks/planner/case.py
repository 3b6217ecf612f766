"""One case for every simulator and for the real thing: a small convolutional network on rows of MNIST over n nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Case:
    """Rows are split over nodes; each trains on its own for an epoch with plain SGD, then weights are averaged."""

    nodes: int = 2
    rows: int = 4000  # to train on, of all nodes together
    test_rows: int = 2000
    epochs: int = 3
    batch_size: int = 64  # of each node
    learning_rate: float = 0.05
    bandwidth: float = 100.0  # of a link, in Mbit/s; what really runs on one machine has no such link
    threads: int = 1  # that a node computes with
    seed: int = 0


class Images(NamedTuple):
    """Standardised images of 28 x 28 pixels, and their classes from 0 to 9."""

    X_train: np.ndarray  # (rows, 28, 28) float32
    y_train: np.ndarray  # (rows,) int64
    X_test: np.ndarray
    y_test: np.ndarray


def load_images(case: Case) -> Images:
    """Rows of MNIST's training set, drawn at random: the same for every case of as many rows."""
    from shoal.parallel.data.datasets import load_data

    total = case.rows + case.test_rows
    data = load_data("mnist", valid=case.test_rows / total, rows=total)
    parts = [tensor.numpy() for part in (data.train, data.valid) for tensor in part.tensors]
    return Images(parts[0].reshape(-1, 28, 28), parts[1], parts[2].reshape(-1, 28, 28), parts[3])


def lenet(seed: int) -> torch.nn.Sequential:
    """LeNet-5 as Caffe has it: 431,080 weights. The generator of the caller is left as it was."""
    import torch
    from torch import nn

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        features = [nn.Conv2d(1, 20, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.ReLU(), nn.MaxPool2d(2)]
        return nn.Sequential(*features, nn.Flatten(), nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10))
