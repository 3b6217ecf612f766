"""The scatter-add method (M3) of the ParallelMLPs paper, as published: one wide layer, autograd, one update for all.

The networks are `shoal.torch.ScatterNetwork`. This engine adds hyper-parameters per member: a vector over members is
expanded to the parameters of each. Products and sums run over tensors that all networks share, and torch rounds an
element differently depending on its position in a tensor: here the last bits of a member may depend on the other
members and on the number of threads. In the other engines they do not.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from shoal.population.engines.program import Program, Resources, Selection
from shoal.population.engines.torch_common import Networks, TorchEngine
from shoal.population.engines.torch_numbers import (
    DeviceData,
    Goal,
    dropout_kept,
    loss_terms,
)
from shoal.population.members import ACTIVATIONS
from shoal.torch.scatter import ACTIVATIONS as MODULES
from shoal.torch.scatter import Layers, ScatterNetwork

MOST_MEMORY = 8 << 30  # bytes of one part


# A parameter, its axis that is divided among networks, the owner of each place there.
Owned = tuple[nn.Parameter, int, Tensor]


class PackedNetwork(ScatterNetwork):
    """A `ScatterNetwork` whose parameters are loaded, never drawn."""

    def reset_parameters(self, layer_ids: Iterable[int] | None = None) -> None:
        """Draws nothing: the weights come from the population, and the user's random generator is not changed."""

    def owned(self) -> list[Owned]:
        found: list[Owned] = [(parameter, 0, self.network_ids(0)) for parameter in self.hidden_layer.parameters()]
        for layer, (weight, bias) in enumerate(zip(self.edge_weights, self.edge_biases, strict=True), start=1):
            owners = self.network_ids(layer)
            found += [(weight, 0, owners[self.get_buffer(f"targets_{layer}")]), (bias, 0, owners)]
        found.append((self.weight, 1, self.get_buffer("output_owners")))
        if self.bias is not None:
            found.append((self.bias, 0, torch.arange(len(self.hidden), device=self.bias.device)))
        return found


class LinearNetwork(nn.Module):
    """Networks without hidden layers, as one wide layer: [batch, in_features] to [batch, networks, out_features]."""

    def __init__(self, in_features: int, out_features: int, networks: int) -> None:
        super().__init__()
        self.wide = nn.utils.skip_init(nn.Linear, in_features, networks * out_features)
        self.out_features = out_features

    def forward(self, x: Tensor, transform: object = None) -> Tensor:
        return self.wide(x).unflatten(1, (-1, self.out_features))

    def load(self, i: int, layers: Layers) -> None:
        ((weight, bias),) = layers
        own_weight, own_bias = self._slices(i)
        own_weight.copy_(weight.T)
        if bias is not None:
            own_bias.copy_(bias)

    def layers(self, i: int) -> Layers:
        weight, bias = self._slices(i)
        return [(weight.T, bias)]

    def _slices(self, i: int) -> tuple[Tensor, Tensor]:
        own = slice(i * self.out_features, (i + 1) * self.out_features)
        return self.wide.weight.detach()[own], self.wide.bias.detach()[own]

    def owned(self) -> list[Owned]:
        owners = torch.arange(len(self.wide.bias), device=self.wide.bias.device) // self.out_features
        return [(self.wide.weight, 0, owners), (self.wide.bias, 0, owners)]


class ReferenceNetworks(Networks):
    """Members that share rows, optimiser and everything else that determines the calls."""

    def __init__(self, selection: Selection, device_data: DeviceData, members: np.ndarray, training: bool) -> None:
        super().__init__(selection, device_data, members, training)
        self.network = self._build()
        # The last block to be loaded is the weights, which stay in the network.
        slots = [self._load(k) for k in range(1, 1 + self.n_slots)]
        self._load(0)
        self.network.to(device_data.device)
        self.owned = self.network.owned()
        self.parameters: list[Tensor] = [parameter for parameter, *_ in self.owned]
        self.blocks = [self.parameters, *([tensor.to(device_data.device) for tensor in slot] for slot in slots)]
        self.spreads = [_spread(owners, parameter.ndim, axis) for parameter, axis, owners in self.owned]
        self.mask = self._mask() if training and (self.records["features_start"] >= 0).any() else None

    def _build(self) -> PackedNetwork | LinearNetwork:
        program = self.program
        hidden = [tuple(fan_out for _, fan_out in program.layout.shapes(i)[:-1]) for i in self.members.tolist()]
        if not hidden[0]:
            return LinearNetwork(program.n_features, program.n_outputs, len(hidden))
        modules = [MODULES[name]() for name in ACTIVATIONS]
        activations = [modules[code] for code in self.records["activation"]]
        return PackedNetwork(program.n_features, program.n_outputs, hidden, activations)

    # ---- loading and storing ----

    def _columns(self, i: int) -> list[int] | slice:
        features = self.program.layout.members[i].features
        return list(features) if features else slice(None)

    def _load(self, block: int) -> list[Tensor]:
        """Load a block of the population into the network, with zeros for columns a member does not see; copies it."""
        for k, (i, (buffer, start)) in enumerate(zip(self.members.tolist(), self.places(block), strict=True)):
            views = map(torch.from_numpy, self.program.layout.views(i, buffer, start))
            layers: Layers = [(view[:-1], view[-1]) for view in views]
            if self.records["features_start"][k] >= 0:
                weight, bias = layers[0]
                wide = torch.zeros(self.program.n_features, weight.shape[1])
                wide[self._columns(i)] = weight
                layers[0] = wide, bias
            self.network.load(k, layers)
        return [parameter.detach().clone() for parameter, *_ in self.network.owned()]

    @torch.no_grad()
    def store(self) -> None:
        for k, block in enumerate(self.blocks):
            for parameter, values in zip(self.parameters, block, strict=True):
                parameter.copy_(values)
            self._store(k)

    def _store(self, block: int) -> None:
        self.network.cpu()
        for k, (i, (buffer, start)) in enumerate(zip(self.members.tolist(), self.places(block), strict=True)):
            views = self.program.layout.views(i, buffer, start)
            for number, (view, (weight, bias)) in enumerate(zip(views, self.network.layers(k), strict=True)):
                view[:-1] = weight.numpy() if number else weight.numpy()[self._columns(i)]
                view[-1] = bias
        self.network.to(self.device_data.device)

    def member_sums(self, tensors: list[Tensor]) -> Tensor:
        sums = torch.zeros(len(self.members), device=self.device_data.device)
        for tensor, (_, axis, owners) in zip(tensors, self.owned, strict=True):
            sums.index_add_(0, owners, tensor.movedim(axis, 0).reshape(len(owners), -1).sum(1))
        return sums

    def _mask(self) -> Tensor:
        """Zero where a neuron of the first layer does not see a column: [neurons, features]."""
        seen = np.zeros((len(self.members), self.program.n_features))
        for k, i in enumerate(self.members.tolist()):
            seen[k, self._columns(i)] = 1
        _, _, owners = self.owned[0]
        return self.vector(seen)[owners]

    # ---- arithmetic ----

    def inputs(self, rows: Tensor) -> Tensor:
        return self.device_data.X[rows]  # one line: all members share their rows

    def outputs(self, x: Tensor) -> Tensor:
        return self.network(x[0]).permute(1, 2, 0)

    def step(self, k: int, x: Tensor, goal: Goal) -> Tensor:
        transform = self._dropout(k) if self.dropout else None
        outputs = self.network(x[0], transform)  # [rows, members, outputs]
        goal = Goal(*(values.permute(2, 0, 1) for values in goal))
        losses = loss_terms(self.device_data.loss, outputs, goal, 2).sum((0, 2))
        gradients = torch.autograd.grad(losses.sum(), self.parameters)
        if self.mask is not None:
            gradients[0].mul_(self.mask)
        self.update(k, gradients)
        return losses.detach()

    def _dropout(self, k: int) -> Callable[[int, Tensor, Tensor], Tensor]:
        def drop(layer: int, signal: Tensor, owners: Tensor) -> Tensor:
            low, high = self.keys[:, k, layer, owners]
            row = torch.arange(len(signal), device=signal.device)[:, None]
            kept = dropout_kept(low, high, row, _places_of(owners), self.threshold[owners])
            return signal * (kept * self.scale[owners])

        return drop


class ReferenceEngine(TorchEngine):
    """All members that share their rows as one `ScatterNetwork`, as far as memory goes."""

    name = "reference"
    networks = ReferenceNetworks
    shares_rows = True

    def shapes(self, program: Program, members: np.ndarray) -> Sequence[Hashable]:
        return list((program.records["n_layers"][members] == 1).tolist())

    def floats_each(self, program: Program, members: np.ndarray, training: bool) -> tuple[np.ndarray, np.ndarray]:
        per_row = np.empty(len(members), np.int64)
        for k, i in enumerate(members.tolist()):
            _, *hidden = program.layout.shapes(i)
            edges = sum(fan_in * fan_out for fan_in, fan_out in hidden)  # the products that scatter-add sums
            per_row[k] = 3 * edges + 5 * sum(fan_in for fan_in, _ in hidden) + 6 * program.n_outputs
        return program.layout.counts[members], per_row

    def limit(self, resources: Resources) -> int:
        return max(1, min(resources.memory, MOST_MEMORY))

    def threads(self, resources: Resources) -> tuple[int, int]:
        return 1, resources.threads


def _spread(owners: Tensor, ndim: int, axis: int) -> Callable[[Tensor], Tensor]:
    """A function that turns a vector over members into what broadcasts against a parameter."""
    shape = [1] * ndim
    shape[axis] = -1
    return lambda vector: vector[owners].view(shape)


def _places_of(owners: Tensor) -> Tensor:
    """The index of each neuron within its network; the neurons of a network are contiguous."""
    position = torch.arange(len(owners), device=owners.device)
    begins = torch.ones_like(owners, dtype=torch.bool)
    begins[1:] = owners[1:] != owners[:-1]
    return position - torch.where(begins, position, 0).cummax(0).values
