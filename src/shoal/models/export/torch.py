"""A model as a PyTorch module of plain operations, and as a .pt2 file of `torch.export`, which runs without Shoal.

PyTorch has no strings, so a category is a number: `category_codes` of shoal.json has the number of every cell that is
known or means a missing value, `unseen_codes` that of any other cell.
"""

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
from shoal.models.export.plan import Category, ExportPlan, PartNetworks
from shoal.torch import ACTIVATIONS

METADATA = "shoal.json"


class ExportedModel(nn.Module):
    """numbers (n, d) float64, NaN for missing, and codes of categories (n, c) int64, where there are any.

    Gives probabilities or values (n, n_outputs) float64.
    """

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
            if array.size:  # files do not hold empty arrays well; nor slices of memory: this is a copy
                self.register_buffer(name, torch.tensor(array))
        self.has_values, self.has_missing = bool(plan.scaling.centre.size), bool(len(plan.missing))
        self.folds, self.widths = plan.folds, [category.width for category in plan.categories]
        self.counted = [bool(category.frequent) for category in plan.categories]
        for j, category in enumerate(plan.categories):
            value, logs = _code_tables(category)
            self.register_buffer(f"value{j}", torch.tensor(value))
            if category.frequent:
                self.register_buffer(f"logs{j}", torch.tensor(logs))
        self.networks = nn.ModuleList([_Networks(network) for network in plan.networks])
        self.shares = [(network.encoding, network.weight) for network in plan.networks]

    def forward(self, numbers: Tensor, categories: Tensor | None = None) -> Tensor:
        inputs = {encoding: self._inputs(encoding, numbers, categories) for encoding in self.encodings}
        parts = [
            weight * self._back(network(inputs[encoding]))
            for network, (encoding, weight) in zip(self.networks, self.shares, strict=True)
        ]
        return self._temper(torch.stack(parts).sum(0).mean(0))

    def _inputs(self, encoding: str, numbers: Tensor, categories: Tensor | None) -> Tensor:
        """(folds, n, width) float32."""
        values = numbers.expand(self.folds, -1, -1)
        shared = [torch.isnan(numbers[:, self.missing]).to(torch.float32)] if self.has_missing else []
        if categories is not None:
            logs = [getattr(self, f"logs{j}")[:, categories[:, j], None] for j, used in enumerate(self.counted) if used]
            values = torch.cat([values, *logs], dim=2)
            shared += [
                nn.functional.one_hot(getattr(self, f"value{j}")[categories[:, j]], width).to(torch.float32)
                for j, width in enumerate(self.widths)
            ]
        made = [block.expand(self.folds, -1, -1) for block in shared]
        if self.has_values:
            made = [self._plain(values) if encoding == "plain" else self._piecewise(values), *made]
        return torch.cat(made, dim=2)

    def _plain(self, values: Tensor) -> Tensor:
        scaled = torch.where(torch.isnan(values), 0.0, (values - self.centre) * self.inverse)
        scaled = scaled.clamp(-LARGEST_SCALED, LARGEST_SCALED)
        return (scaled / torch.sqrt(1.0 + (scaled / SMOOTH_LIMIT) ** 2)).to(torch.float32)

    def _piecewise(self, values: Tensor) -> Tensor:
        values = values[:, :, self.piece_column]
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

    def __init__(self, network: PartNetworks) -> None:
        super().__init__()
        self.depth = len(network.layers)
        self.activation = ACTIVATIONS[network.activation]()
        for k, (weight, bias) in enumerate(network.layers):
            self.register_buffer(f"weight{k}", torch.tensor(weight))
            self.register_buffer(f"bias{k}", torch.tensor(bias))

    def forward(self, values: Tensor) -> Tensor:
        """The raw outputs."""
        for k in range(self.depth):
            hidden = self.activation(values) if k else values
            values = hidden @ getattr(self, f"weight{k}") + getattr(self, f"bias{k}")
        return values


def _code_tables(category: Category) -> tuple[np.ndarray, np.ndarray]:
    """For each code, the number of its value (codes,), and its frequency in each fold (folds, codes)."""
    value = {name: j for j, name in enumerate(category.values)}
    frequent = {name: j for j, name in enumerate(category.frequent)}
    values = [value.get(name, len(value)) for name in category.known]
    places = [frequent.get(name, len(frequent)) for name in category.known]
    numbers = np.array([*values, len(value), len(value) + 1], dtype=np.int64)
    return numbers, category.logs[:, [*places, len(frequent), len(frequent) + 1]]


def codes_of(strings: np.ndarray, metadata: Mapping[str, Any]) -> np.ndarray:
    """(n, c) int64: the codes of categories, given as the cells of a file (n, c)."""
    codes = np.empty(strings.shape, dtype=np.int64)
    for j, (name, known) in enumerate(metadata["category_codes"].items()):
        codes[:, j] = [known.get(cell, metadata["unseen_codes"][name]) for cell in strings[:, j]]
    return codes


def write(plan: ExportPlan, metadata: Mapping[str, Any], path: Path) -> None:
    """The number of rows stays free. What columns mean is in the extra file shoal.json."""
    rows = {0: torch.export.Dim("rows", min=1)}
    example = [torch.zeros(3, len(plan.numbers), dtype=torch.float64)]
    if plan.categories:
        example.append(torch.zeros(3, len(plan.categories), dtype=torch.int64))
    with torch.no_grad():
        program = torch.export.export(
            ExportedModel(plan).eval(), tuple(example), dynamic_shapes=tuple(rows for _ in example)
        )
    torch.export.save(program, path, extra_files={METADATA: json.dumps(dict(metadata), default=str)})


def run(path: Path, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """The prediction of a file from `write`."""
    extra = {METADATA: ""}
    with torch.no_grad():
        module = torch.export.load(path, extra_files=extra).module()
        given = [torch.from_numpy(inputs["numbers"])]
        if "categories" in inputs:
            given.append(torch.from_numpy(codes_of(inputs["categories"], json.loads(extra[METADATA]))))
        return np.asarray(module(*given).numpy())
