"""The scatter-add method (M3) of the ParallelMLPs paper, as published: one wide layer, autograd, one update for all.

The networks are `shoal.torch.ScatterNetwork`. This engine adds hyper-parameters per member: a vector over members is
expanded to the parameters of each. Products and sums run over tensors that all networks share, and torch rounds an
element differently depending on its position in a tensor: here the last bits of a member may depend on the other
members and on the number of threads. In the other engines they do not.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

import numpy as np
import torch
from torch import Tensor, nn

from shoal.population.engines import Resources
from shoal.population.engines.program import Program, State
from shoal.population.engines.torch_common import Networks, TorchEngine
from shoal.population.engines.torch_numbers import (
    DeviceData,
    Goal,
    UpdateSettings,
    clip_factors,
    dropout_kept,
    dropout_keys,
    dropout_thresholds,
    loss_terms,
    update,
)
from shoal.population.members import ACTIVATIONS
from shoal.torch import ACTIVATIONS as MODULES
from shoal.torch import Layers, ScatterNetwork

MOST_MEMORY = 8 << 30  # bytes of one part


class ReferenceEngine(TorchEngine):
    """All members that share their rows as one `ScatterNetwork`, as far as memory goes."""

    name = "reference"
    shares_rows = True

    def pack(
        self, program: Program, device_data: DeviceData, state: State, members: np.ndarray, training: bool
    ) -> Networks:
        return ReferenceNetworks(program, device_data, state, members, training)

    def keys(self, program: Program, members: np.ndarray) -> list[Hashable]:
        records = program.records[members]
        flags = [records[name] > 0 for name in ("weight_decay", "clip", "dropout", "patience")]
        columns = [records["n_layers"] == 1, records["optimizer_slots"], *flags]
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def bytes_each(self, program: Program, members: np.ndarray, rows: np.ndarray, training: bool) -> np.ndarray:
        records = program.records[members]
        per_row = np.empty(len(members))
        for k, i in enumerate(members.tolist()):
            _, *hidden = program.layout.shapes(i)
            edges = sum(fan_in * fan_out for fan_in, fan_out in hidden)  # the products that scatter-add sums
            per_row[k] = 3 * edges + 5 * sum(fan_in for fan_in, _ in hidden) + 6 * program.n_outputs
        copies = 3 + records["optimizer_slots"] + (records["patience"] > 0) if training else 1
        return 4 * (rows * per_row + copies * program.layout.counts[members]).astype(np.int64)

    def limit(self, resources: Resources) -> int:
        return max(1, min(resources.memory, MOST_MEMORY))

    def threads(self, resources: Resources) -> tuple[int, int]:
        return 1, resources.threads


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

    def __init__(
        self, program: Program, device_data: DeviceData, state: State, members: np.ndarray, training: bool
    ) -> None:
        super().__init__(program, device_data, state, members)
        first = self.records[0]
        self.network = self._build()
        self.parameters = [parameter for parameter, *_ in self.network.owned()]
        n_slots = int(first["optimizer_slots"]) + bool(first["patience"] > 0) if training else 0
        # The last block to be loaded is the weights, which stay in the network.
        self.slots = [self._load(self.places(k)) for k in range(1, 1 + n_slots)]
        self._load(self.places(0) if training else self.delivered_places())
        self.network.to(device_data.device)
        self.slots = [[tensor.to(device_data.device) for tensor in slot] for slot in self.slots]
        self.parameters = [parameter for parameter, *_ in self.network.owned()]
        self.owners = [(owners, axis) for _, axis, owners in self.network.owned()]
        self.spread = [_spread(owners, parameter.ndim, axis) for parameter, axis, owners in self.network.owned()]
        smoothing = self.records["label_smoothing"]
        self.smoothing = self.vector(smoothing) if smoothing.any() else None
        self.clip = self.vector(self.records["clip"]) if first["clip"] > 0 else None
        self.dropout = training and bool(first["dropout"] > 0)
        self.mask = self._mask() if training and (self.records["features_start"] >= 0).any() else None
        self._update_settings: UpdateSettings
        self._keys: Tensor

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

    def _load(self, places: list[tuple[np.ndarray, int]]) -> list[Tensor]:
        """Load blocks of the population into the network, with zeros for columns a member does not see; keep copies."""
        for k, (i, (buffer, start)) in enumerate(zip(self.members.tolist(), places, strict=True)):
            views = map(torch.from_numpy, self.program.layout.views(i, buffer, start))
            layers: Layers = [(view[:-1], view[-1]) for view in views]
            if self.records["features_start"][k] >= 0:
                weight, bias = layers[0]
                wide = torch.zeros(self.program.n_features, weight.shape[1])
                wide[self._columns(i)] = weight
                layers[0] = wide, bias
            self.network.load(k, layers)
        return [parameter.detach().clone() for parameter in self.parameters]

    def store(self) -> None:
        self._store(self.places(0))
        for k, slot in enumerate(self.slots, start=1):
            with torch.no_grad():
                for parameter, values in zip(self.parameters, slot, strict=True):
                    parameter.copy_(values)
            self._store(self.places(k))

    def _store(self, places: list[tuple[np.ndarray, int]]) -> None:
        self.network.cpu()
        for k, (i, (buffer, start)) in enumerate(zip(self.members.tolist(), places, strict=True)):
            views = self.program.layout.views(i, buffer, start)
            for number, (view, (weight, bias)) in enumerate(zip(views, self.network.layers(k), strict=True)):
                view[:-1] = weight.numpy() if number else weight.numpy()[self._columns(i)]
                view[-1] = bias
        self.network.to(self.device_data.device)

    def tensors(self) -> list[Tensor]:
        return [*self.parameters, *(tensor for slot in self.slots for tensor in slot)]

    @torch.no_grad()
    def finite(self) -> np.ndarray:
        good = torch.ones(len(self.members), dtype=torch.bool, device=self.device_data.device)
        for parameter, axis, owners in self.network.owned():
            broken = ~torch.isfinite(parameter.movedim(axis, 0)).flatten(1 if parameter.ndim > 1 else 0)
            good[owners[broken.any(1) if parameter.ndim > 1 else broken]] = False
        return good.cpu().numpy()

    @torch.no_grad()
    def keep_best(self, better: np.ndarray) -> None:
        if better.any():
            chosen = torch.from_numpy(better).to(self.device_data.device)
            for best, parameter, spread in zip(self.slots[-1], self.parameters, self.spread, strict=True):
                best.copy_(torch.where(spread(chosen), parameter, best))

    def _mask(self) -> Tensor:
        """Zero where a neuron of the first layer does not see a column: [neurons, features]."""
        seen = np.zeros((len(self.members), self.program.n_features))
        for k, i in enumerate(self.members.tolist()):
            seen[k, self._columns(i)] = 1
        owners, _ = self.owners[0]
        return self.vector(seen)[owners]

    # ---- arithmetic ----

    def inputs(self, rows: Tensor) -> Tensor:
        return self.device_data.X[rows]  # one line: all members share their rows

    def outputs(self, x: Tensor) -> Tensor:
        return self.network(x[0]).permute(1, 2, 0)

    def begin_epoch(self, steps: np.ndarray, rates: np.ndarray) -> None:
        self._update_settings = UpdateSettings(self.records, steps, rates, self.device_data.device)
        if self.dropout:
            keys = dropout_keys(self.records, steps, len(rates), int(self.records["n_layers"].max()) - 1)
            self._keys = torch.from_numpy(keys).to(self.device_data.device)

    def step(self, k: int, x: Tensor, goal: Goal) -> Tensor:
        transform = self._dropout(k) if self.dropout else None
        outputs = self.network(x[0], transform)  # [rows, members, outputs]
        goal = Goal(*(values.permute(2, 0, 1) for values in goal))
        losses = loss_terms(self.device_data.loss, outputs, goal, 2).sum((0, 2))
        self._update(k, torch.autograd.grad(losses.sum(), self.parameters))
        return losses.detach()

    @torch.no_grad()
    def _update(self, k: int, gradients: tuple[Tensor, ...]) -> None:
        if self.mask is not None:
            gradients[0].mul_(self.mask)
        if self.clip is not None:
            squares = torch.zeros(len(self.members), device=self.device_data.device)
            for gradient, (owners, axis) in zip(gradients, self.owners, strict=True):
                squares.index_add_(0, owners, gradient.square().movedim(axis, 0).reshape(len(owners), -1).sum(1))
            factors = clip_factors(squares.sqrt(), self.clip)
            for gradient, spread in zip(gradients, self.spread, strict=True):
                gradient.mul_(spread(factors))
        n_slots = int(self.records["optimizer_slots"][0])
        for place, (parameter, gradient) in enumerate(zip(self.parameters, gradients, strict=True)):
            slots = [slot[place] for slot in self.slots[:n_slots]]
            update(parameter, gradient, slots, self._update_settings.at(k, self.spread[place]))

    def _dropout(self, k: int) -> Callable[[int, Tensor, Tensor], Tensor]:
        threshold = torch.from_numpy(dropout_thresholds(self.records)).to(self.device_data.device)
        scale = self.vector(1.0 / (1.0 - self.records["dropout"]))

        def drop(layer: int, signal: Tensor, owners: Tensor) -> Tensor:
            low, high = self._keys[:, k, layer, owners]
            row = torch.arange(len(signal), device=signal.device)[:, None]
            kept = dropout_kept(low, high, row, _places_of(owners), threshold[owners])
            return signal * (kept * scale[owners])

        return drop


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
