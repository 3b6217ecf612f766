"""A model as a PyTorch module of plain operations, and as a .pt2 file of `torch.export`, which runs without Shoal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from shoal.encoders.scaling import LARGEST_SCALED, SMOOTH_LIMIT
from shoal.metrics.tasks import CLASSIFICATION, MULTILABEL, REGRESSION, SMALLEST_PROBABILITY
from shoal.models.export.plan import ExportPlan, Network
from shoal.torch import ACTIVATIONS

METADATA = "shoal.json"


class ExportedModel(nn.Module):
    """numbers (n, d) float64, NaN for missing -> probabilities or values (n, n_outputs) float64."""

    centre: Tensor
    inverse: Tensor
    piece_column: Tensor
    piece_low: Tensor
    piece_inverse: Tensor
    piece_offset: Tensor
    missing: Tensor
    target_centre: Tensor
    target_scale: Tensor
    target_low: Tensor
    target_high: Tensor

    def __init__(self, plan: ExportPlan) -> None:
        super().__init__()
        self.task, self.temperature = plan.task, plan.temperature
        self.encodings = plan.encodings
        constants = {
            "centre": plan.scaling.centre,
            "inverse": plan.scaling.inverse,
            "piece_column": plan.pieces.column,
            "piece_low": plan.pieces.low,
            "piece_inverse": plan.pieces.inverse,
            "piece_offset": plan.pieces.offset,
            "missing": plan.missing,
        } | {f"target_{name}": array for name, array in plan.target.items()}
        for name, array in constants.items():
            self.register_buffer(name, torch.tensor(array))  # a copy: files do not hold slices of memory well
        self.networks = nn.ModuleList([_Networks(network) for network in plan.networks])
        self.shares = [(network.encoding, network.weight) for network in plan.networks]

    def forward(self, numbers: Tensor) -> Tensor:
        inputs = {encoding: self._inputs(encoding, numbers) for encoding in self.encodings}
        parts = [
            weight * self._back(network(inputs[encoding]))
            for network, (encoding, weight) in zip(self.networks, self.shares, strict=True)
        ]
        return self._temper(torch.stack(parts).sum(0).mean(0))

    def _inputs(self, encoding: str, numbers: Tensor) -> Tensor:
        """(folds, n, width) float32."""
        made = self._plain(numbers) if encoding == "plain" else self._piecewise(numbers)
        missing = torch.isnan(numbers[:, self.missing]).to(torch.float32)
        return torch.cat([made, missing.expand(len(made), -1, -1)], dim=2)

    def _plain(self, numbers: Tensor) -> Tensor:
        scaled = torch.where(torch.isnan(numbers), 0.0, (numbers - self.centre) * self.inverse)
        scaled = scaled.clamp(-LARGEST_SCALED, LARGEST_SCALED)
        return (scaled / torch.sqrt(1.0 + (scaled / SMOOTH_LIMIT) ** 2)).to(torch.float32)

    def _piecewise(self, numbers: Tensor) -> Tensor:
        values = numbers[:, self.piece_column]
        part = ((values - self.piece_low) * self.piece_inverse).clamp(0.0, 1.0) - self.piece_offset
        return torch.where(torch.isnan(values), 0.0, part).to(torch.float32)

    def _back(self, raw: Tensor) -> Tensor:
        """Raw outputs (folds, n, n_outputs) to predictions, float64."""
        if self.task.kind == REGRESSION:
            values = raw.to(torch.float64) * self.target_scale + self.target_centre
            return torch.minimum(torch.maximum(values, self.target_low), self.target_high)
        activated = torch.softmax(raw, dim=-1) if self.task.kind == CLASSIFICATION else torch.sigmoid(raw)
        return activated.to(torch.float64)

    def _temper(self, prediction: Tensor) -> Tensor:
        if self.task.kind == REGRESSION or self.temperature == 1.0:
            return prediction
        logs = torch.log(prediction.clamp(SMALLEST_PROBABILITY, 1.0)) / self.temperature
        if self.task.kind == MULTILABEL:
            other = torch.log((1.0 - prediction).clamp(SMALLEST_PROBABILITY, 1.0)) / self.temperature
            return torch.sigmoid(logs - other)
        return torch.softmax(logs, dim=-1)


class _Networks(nn.Module):
    """The networks of one part, one per fold."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.depth = len(network.layers)
        self.activation = ACTIVATIONS[network.activation]()
        for k, (weight, bias) in enumerate(network.layers):
            self.register_buffer(f"weight{k}", torch.tensor(weight))
            self.register_buffer(f"bias{k}", torch.tensor(bias))

    def forward(self, values: Tensor) -> Tensor:
        for k in range(self.depth):
            values = values @ getattr(self, f"weight{k}") + getattr(self, f"bias{k}")
            if k < self.depth - 1:
                values = self.activation(values)
        return values


def write(plan: ExportPlan, metadata: Mapping[str, Any], path: Path) -> None:
    """The number of rows stays free. What columns mean is in the extra file shoal.json."""
    example = torch.zeros(3, len(plan.numbers), dtype=torch.float64)
    with torch.no_grad():
        program = torch.export.export(
            ExportedModel(plan).eval(), (example,), dynamic_shapes=({0: torch.export.Dim("rows", min=1)},)
        )
    torch.export.save(program, path, extra_files={METADATA: json.dumps(dict(metadata), default=str)})


def run(path: Path, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """The prediction of a file from `write`."""
    with torch.no_grad():
        module = torch.export.load(path).module()
        return np.asarray(module(torch.from_numpy(inputs["numbers"])).numpy())
