"""A member as a plain PyTorch network."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from shoal.population.activations import TABLE
from shoal.population.members import Member


def sequential(member: Member, layers: list[tuple[np.ndarray, np.ndarray]]) -> nn.Sequential:
    """Linear, activation (and dropout, if the member has any) for each hidden layer, then Linear; for evaluation."""
    modules: list[nn.Module] = []
    for k, (weight, bias) in enumerate(layers):
        # Made on the meta device, so that no numbers are drawn from the user's random generator.
        linear = nn.Linear(weight.shape[0], weight.shape[1], device="meta").to_empty(device="cpu")
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(weight).T)
            linear.bias.copy_(torch.from_numpy(bias))
        modules.append(linear)
        if k < len(layers) - 1:
            modules.append(TABLE[member.activation].module()())
            if member.dropout > 0:
                modules.append(nn.Dropout(member.dropout))
    return nn.Sequential(*modules).eval()
