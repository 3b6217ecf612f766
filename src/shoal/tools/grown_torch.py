"""A grown network as a plain PyTorch network."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from shoal.population.extract import sequential
from shoal.population.members import Member


class StageModule(nn.Module):
    """(n, columns + what came before) -> (n, columns + hidden + outputs)."""

    def __init__(self, layers: nn.Sequential, n_columns: int) -> None:
        super().__init__()
        self.body = layers[:-1]
        self.head = layers[-1]
        self.n_columns = n_columns

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = self.body(inputs)
        return torch.cat([inputs[:, : self.n_columns], hidden, self.head(hidden)], dim=1)


def as_sequential(
    stages: Sequence[tuple[Member, list[tuple[np.ndarray, np.ndarray]]]], n_columns: int
) -> nn.Sequential:
    """All stages but the last carry the columns along; the last one gives the outputs."""
    made = [sequential(member, layers) for member, layers in stages]
    return nn.Sequential(*(StageModule(layers, n_columns) for layers in made[:-1]), *made[-1]).eval()
