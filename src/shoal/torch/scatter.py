"""Many independent multi-layer perceptrons as one PyTorch module, by the scatter-add method (M3) of Farias, Ludermir
and Bastos-Filho, "Embarrassingly Parallel Independent Training of Multi-Layer Perceptrons with Heterogeneous
Architectures", AI 2023, 4, 16-27: the arithmetic, for any widths, depths and activations.
"""

from __future__ import annotations

import copy
import operator
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from shoal.errors import UserError, WrongType
from shoal.population.activations import TABLE
from shoal.validate import whole

ACTIVATIONS: dict[str, type[nn.Module]] = {row.name: row.module() for row in TABLE.values()}

Activation = nn.Module | Callable[[Tensor], Tensor]
Layers = list[tuple[Tensor, Tensor | None]]
Widths = Sequence[tuple[int, ...]]

_MIXING_ACTIVATIONS = (nn.Softmax, nn.LogSoftmax, nn.Softmin, nn.Softmax2d, nn.GLU, nn.MultiheadAttention)


class ScatterNetwork(nn.Module):
    """Independent networks of any widths and depths (of 1 or more hidden layers) packed into one.

    `hidden[i]` holds the hidden widths of network i and `activations[i]` its activation, a function of single elements.
    Networks keep the order in which they are given. In memory, networks with the same activation are contiguous, so
    that each activation is called once per layer.

    >>> network = ScatterNetwork(4, 2, hidden=[(3,), (5, 6)], activations=[nn.Tanh(), nn.ReLU()])
    >>> network(torch.zeros(7, 4)).shape  # [batch, networks, out_features]
    torch.Size([7, 2, 2])
    """

    bias: nn.Parameter | None

    def __init__(
        self, in_features: int, out_features: int, hidden: Widths, activations: Sequence[Activation], bias: bool = True
    ) -> None:
        super().__init__()
        self.in_features = whole("in_features", in_features, 1)
        self.out_features = whole("out_features", out_features, 1)
        self.hidden = _checked_hidden(hidden)
        if not len(activations) == len(self.hidden) > 0:
            raise UserError(f"give one activation per network, got {len(activations)} for {len(self.hidden)} networks")
        modules, self._activation_of = _distinct(list(activations))
        self.activations = nn.ModuleList(modules)
        neurons, edges = self._compile()
        # The draw of nn.Linear itself is skipped: reset_parameters follows.
        self.hidden_layer = nn.utils.skip_init(nn.Linear, self.in_features, neurons[0], bias=bias)
        self.edge_weights = nn.ParameterList(torch.empty(count) for count in edges)
        self.edge_biases = nn.ParameterList(torch.empty(count) for count in neurons[1:] if bias)
        self.weight = nn.Parameter(torch.empty(self.out_features, len(self.get_buffer("output_owners"))))
        output_bias = torch.empty(len(self.hidden), self.out_features)
        self.register_parameter("bias", nn.Parameter(output_bias) if bias else None)
        self.reset_parameters()

    def _compile(self) -> tuple[list[int], list[int]]:
        """Turn widths into index maps, once. Returns the neurons of each layer and the edges between each two."""
        users = torch.tensor(self._activation_of)
        order = users.argsort(stable=True)  # networks as they lie in memory
        original = order.argsort()
        depths = torch.tensor([len(sizes) for sizes in self.hidden])
        self.depth = int(depths.max())
        padded = torch.tensor([sizes + (0,) * (self.depth - len(sizes)) for sizes in self.hidden])
        widths = padded[order]  # [networks, depth], in memory order as all below
        starts = sum_before(widths)
        last_layer = (depths[order] - 1)[:, None]
        last_widths = widths.gather(1, last_layer).squeeze(1)
        for layer in range(self.depth):
            self._add_map(f"owners_{layer}", order.repeat_interleave(widths[:, layer]))
        edges = [self._compile_edges(layer, widths, starts) for layer in range(1, self.depth)]
        self._add_map("output_owners", order.repeat_interleave(last_widths))
        self._ragged = bool((depths < self.depth).any())
        if self._ragged:
            first = (sum_before(widths.sum(0)) + starts).gather(1, last_layer).squeeze(1)
            self._add_map("last_neurons", first.repeat_interleave(last_widths) + _places(last_widths))
        # Python numbers, not tensors: reading one network must not wait for a GPU.
        self._neuron_starts: list[list[int]] = starts[original].tolist()
        self._edge_starts: list[list[int]] = [sum_before(counts)[original].tolist() for counts in edges]
        self._column_starts: list[int] = sum_before(last_widths)[original].tolist()
        sums = torch.zeros(self.depth, len(self.activations), dtype=torch.long).index_add_(1, users, padded.T)
        self._runs = [[(user, count) for user, count in enumerate(row) if count] for row in sums.tolist()]
        return widths.sum(0).tolist(), [int(counts.sum()) for counts in edges]

    def _compile_edges(self, layer: int, widths: Tensor, starts: Tensor) -> Tensor:
        """Map each weight between two hidden layers to the neurons it joins. Returns the edges of each network."""
        fan_in, fan_out = widths[:, layer - 1], widths[:, layer]
        edges = fan_in * fan_out
        place, own_fan_in = _places(edges), fan_in.repeat_interleave(edges)
        # As in nn.Linear, the weights of one target neuron are contiguous.
        self._add_map(f"sources_{layer}", starts[:, layer - 1].repeat_interleave(edges) + place % own_fan_in)
        self._add_map(f"targets_{layer}", starts[:, layer].repeat_interleave(edges) + place // own_fan_in)
        return edges

    def _add_map(self, name: str, values: Tensor) -> None:
        # Not persistent: the constructor rebuilds the maps, and checkpoints keep the keys of the paper's code.
        self.register_buffer(name, values, persistent=False)

    def reset_parameters(self, layer_ids: Iterable[int] | None = None) -> None:
        """Draw parameters as nn.Linear does, for all networks or for the ids in `layer_ids` (the paper's word)."""
        for i in range(len(self.hidden)) if layer_ids is None else self._checked_ids(layer_ids):
            for weight, bias in self._slices(i, torch.detach):
                bound = weight.shape[1] ** -0.5
                weight.uniform_(-bound, bound)
                if bias is not None:
                    bias.uniform_(-bound, bound)

    def forward(self, x: Tensor, transform: Callable[[int, Tensor, Tensor], Tensor] | None = None) -> Tensor:
        """Map [batch, in_features] to [batch, networks, out_features].

        `transform(layer, signal, network_ids)` may change each hidden layer after its activations, for instance to
        drop neurons: `signal` is [batch, neurons of the layer] and `network_ids` [neurons of the layer] their owners.
        """
        if x.ndim != 2 or x.shape[1] != self.in_features:
            raise UserError(f"x must be [batch, {self.in_features}], got {list(x.shape)}: give one sample as x[None]")
        signals: list[Tensor] = []
        for layer in range(self.depth):
            signal = self._connect(layer, signals[-1]) if layer else self.hidden_layer(x)
            signal = self.apply_activations(signal, layer)
            signals.append(signal if transform is None else transform(layer, signal, self.network_ids(layer)))
        return self._project(signals)

    def apply_activations(self, x: Tensor, layer: int = 0) -> Tensor:
        """Each network's activation on its own neurons of a hidden layer, [batch, neurons of the layer]."""
        runs = self._runs[layer]
        # A plain split forbids in-place activations. The unsafe one is safe here, as `x` is not used again.
        parts = torch.unsafe_split_with_sizes(x, [count for _, count in runs], dim=1)
        return torch.cat([self.activations[user](part) for (user, _), part in zip(runs, parts, strict=True)], dim=1)

    def _connect(self, layer: int, signal: Tensor) -> Tensor:
        """M3 between two hidden layers: neurons to edges, times the weights, edges to neurons."""
        batch = len(signal)
        sources, targets = self.get_buffer(f"sources_{layer}"), self.get_buffer(f"targets_{layer}")
        # gather rather than index_select: on a CPU its backward pass is about twice as fast.
        product = signal.gather(1, sources.expand(batch, -1)) * self.edge_weights[layer - 1]  # [batch, edges]
        summed = product.new_zeros(batch, len(self.network_ids(layer)))
        summed = summed.scatter_add_(1, targets.expand(batch, -1), product)
        return summed if self.bias is None else summed + self.edge_biases[layer - 1]

    def _project(self, signals: list[Tensor]) -> Tensor:
        """M3 from each network's own last hidden layer to its outputs."""
        signal = signals[-1]
        if self._ragged:
            signal = torch.cat(signals, dim=1).index_select(1, self.get_buffer("last_neurons"))
        product = signal[:, :, None] * self.weight.T[None, :, :]  # [batch, hidden, 1] * [1, hidden, out]
        owners = self.get_buffer("output_owners")[None, :, None].expand_as(product)
        summed = product.new_zeros(len(signal), len(self.hidden), self.out_features).scatter_add_(1, owners, product)
        return summed if self.bias is None else summed + self.bias

    def network_ids(self, layer: int) -> Tensor:
        """The network of each neuron of a hidden layer; the neurons of a network are contiguous."""
        return self.get_buffer(f"owners_{layer}")

    def layers(self, i: int) -> Layers:
        """Copies of network i's parameters: for each layer W [fan_in, fan_out] and b [fan_out] (None if bias=False)."""
        return self._copies(i, torch.detach)

    def gradients(self, i: int) -> Layers:
        """Copies of the gradients that the last backward pass left, arranged as in `layers`."""
        return self._copies(i, _gradient)

    def _copies(self, i: int, of: Callable[[Tensor], Tensor]) -> Layers:
        return [(weight.T.clone(), None if bias is None else bias.clone()) for weight, bias in self._slices(i, of)]

    def load(self, i: int, layers: Layers) -> None:
        """Set network i's parameters to copies of `layers`, arranged as in the method `layers`."""
        own = self._slices(i, torch.detach)
        expected = [(list(weight.T.shape), None if bias is None else list(bias.shape)) for weight, bias in own]
        given = [(list(weight.shape), None if bias is None else list(bias.shape)) for weight, bias in layers]
        if given != expected:
            raise UserError(f"network {i} needs W [fan_in, fan_out] and b of shapes {expected}, got {given}")
        for (weight, bias), (new_weight, new_bias) in zip(own, layers, strict=True):
            weight.copy_(new_weight.detach().T)
            if bias is not None and new_bias is not None:
                bias.copy_(new_bias.detach())

    def extract(self, i: int) -> nn.Sequential:
        """Network i as a plain network with its own parameters."""
        *hidden, output = self._linears(i)
        activation = copy.deepcopy(self.activations[self._activation_of[i]])
        return nn.Sequential(*[module for linear in hidden for module in (linear, activation)], output)

    def _linears(self, i: int) -> list[nn.Linear]:
        linears = []
        for weight, bias in self.layers(i):
            linear = nn.utils.skip_init(nn.Linear, *weight.shape, bias=bias is not None)
            linear.weight = nn.Parameter(weight.T.contiguous())
            linear.bias = None if bias is None else nn.Parameter(bias)
            linears.append(linear)
        return linears

    def _slices(self, i: int, of: Callable[[Tensor], Tensor]) -> Layers:
        """Network i's part of `of(parameter)` for each layer, as views: (weight [fan_out, fan_in], bias)."""
        (i,) = self._checked_ids(i)
        sizes = self.hidden[i]
        rows = [slice(start, start + size) for start, size in zip(self._neuron_starts[i], sizes, strict=False)]
        weights = [of(self.hidden_layer.weight)[rows[0]]]
        for layer in range(1, len(sizes)):
            start, fan_in, fan_out = self._edge_starts[layer - 1][i], sizes[layer - 1], sizes[layer]
            weights.append(of(self.edge_weights[layer - 1])[start : start + fan_in * fan_out].view(fan_out, fan_in))
        start = self._column_starts[i]
        weights.append(of(self.weight)[:, start : start + sizes[-1]])
        if self.bias is None:
            return [(weight, None) for weight in weights]
        packed = [self.hidden_layer.bias, *self.edge_biases]
        biases = [of(bias)[part] for bias, part in zip(packed, rows, strict=False)]
        return list(zip(weights, [*biases, of(self.bias)[i]], strict=True))

    def _checked_ids(self, ids: Any) -> list[int]:
        """One id, or several in a list, range, array or tensor, as a list."""
        several = isinstance(ids, Iterable) and getattr(ids, "ndim", 1) > 0  # a tensor of no dimensions is one id
        numbers = [operator.index(number) for number in (ids if several else [ids])]
        for number in numbers:
            if not 0 <= number < len(self.hidden):
                raise UserError(f"no network has the id {number}: use 0 to {len(self.hidden) - 1}")
        return numbers

    def extra_repr(self) -> str:
        return f"{self.in_features} -> {len(self.hidden)} networks -> {self.out_features}, bias={self.bias is not None}"


class _Function(nn.Module):
    """A plain function as a module, so that all activations fit in one nn.ModuleList."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def _distinct(activations: Sequence[Activation]) -> tuple[list[nn.Module], list[int]]:
    """The activations without repetition, in order of first use, and for each network the index of its own."""
    key_of = {number: _activation_key(one) for number, one in {id(one): one for one in activations}.items()}
    keys = [key_of[id(one)] for one in activations]
    modules: dict[Hashable, nn.Module] = {}
    for key, one in zip(keys, activations, strict=True):
        modules.setdefault(key, one if isinstance(one, nn.Module) else _Function(one))
    for key, users in Counter(keys).items():
        if users > 1 and list(modules[key].parameters()):
            raise UserError(f"{users} networks would share the parameters of {modules[key]}: give each its own copy")
    numbers = {key: number for number, key in enumerate(modules)}
    return list(modules.values()), [numbers[key] for key in keys]


def _activation_key(activation: Activation) -> Hashable:
    """A key that is equal for the same object, and for torch modules whose repr shows all their settings."""
    if isinstance(activation, type) or not callable(activation):
        raise WrongType(f"an activation is a module or a function, such as nn.Tanh(), got {activation!r}")
    if isinstance(activation, _MIXING_ACTIVATIONS):
        raise UserError(f"{activation} would mix the networks: use an activation that treats each element alone")
    known = type(activation).__module__ == nn.ReLU.__module__ or type(activation) is nn.Identity
    stateless = known and isinstance(activation, nn.Module) and not list(activation.parameters())
    return repr(activation) if stateless else id(activation)


def _checked_hidden(hidden: Widths) -> list[tuple[int, ...]]:
    for i, sizes in enumerate(hidden):
        if not isinstance(sizes, tuple | list) or not sizes:
            raise UserError(f"hidden[{i}] must be a tuple of one or more widths, such as (8,), got {sizes!r}")
    return [tuple(whole(f"hidden[{i}]", size, 1) for size in sizes) for i, sizes in enumerate(hidden)]


def _gradient(parameter: Tensor) -> Tensor:
    if parameter.grad is None:
        raise RuntimeError(f"the parameter of shape {list(parameter.shape)} has no gradient: call backward() first")
    return parameter.grad


def sum_before(lengths: Tensor) -> Tensor:
    """Where each of the lengths starts when they are laid end to end."""
    return lengths.cumsum(0) - lengths


def _places(lengths: Tensor) -> Tensor:
    """0, 1, ... within each of the lengths laid end to end: [2, 3] gives [0, 1, 0, 1, 2]."""
    return torch.arange(int(lengths.sum())) - sum_before(lengths).repeat_interleave(lengths)
