"""Members of similar shape as one batch of matrices: three `bmm` calls per layer train them all.

The neuron dimension comes before the row dimension: a layer's signal is [members, columns, rows] with ones in the last
column, and its weights are [members, fan_out, columns] with the bias in the last column. So bias and weights are one
matrix for the forward product, the gradient and the optimiser, and the rows of a batch fill the vector lanes.

Widths are rounded up to a few buckets. Padding has no effect: its weights are zero on both sides, so its gradients are
zero too. A member's bits do not depend on the other members: its bucket and every call made for it follow from its own
recipe, and a batched product computes each matrix in the same way, however many there are, if all are aligned alike.
So each member's part of every tensor is a multiple of 64 bytes. Then torch's vector loops have no remainder, which they
would round differently: rows come in multiples of 16, neurons in multiples of 4.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.population.activations import TABLE, check_complete
from shoal.population.engines.program import Program, Selection, delivered
from shoal.population.engines.torch_numbers import (
    DeviceData,
    Goal,
    UpdateSettings,
    clip_factors,
    dropout_kept,
    dropout_keys,
    dropout_thresholds,
    loss_slopes,
    loss_terms,
    round_up,
    spread,
    update,
)
from shoal.population.members import ACTIVATIONS

SELU_ALPHA, SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946

aten = torch.ops.aten


def bucket(width: int, depth: int) -> int:
    """A width rounded up: finely for one hidden layer, coarsely for several, whose widths would combine to many shapes.

    >>> [bucket(width, 1) for width in (1, 4, 5, 50, 100)], [bucket(width, 2) for width in (5, 50, 100)]
    ([4, 4, 8, 52, 104], [8, 64, 128])
    """
    octave = 1 << (width - 1).bit_length()
    return round_up(width, max(4, octave // (16 if depth == 1 else 4)))


Widths = tuple[int, ...]  # fan_in, hidden widths, outputs


def exact_shapes(program: Program, members: np.ndarray) -> list[Widths]:
    records = program.records[members]
    spans = zip(records["dims_start"].tolist(), records["n_layers"].tolist(), strict=True)
    return [tuple(program.layout.dims[start : start + layers + 1].tolist()) for start, layers in spans]


def padded_shapes(program: Program, members: np.ndarray) -> list[Widths]:
    masked = (program.records["features_start"][members] >= 0).tolist()
    return [_padded(widths, mask) for widths, mask in zip(exact_shapes(program, members), masked, strict=True)]


@lru_cache(maxsize=4096)
def _padded(widths: Widths, masked: bool) -> Widths:
    fan_in, *hidden, outputs = widths
    return (bucket(fan_in, 2) if masked else fan_in, *(bucket(width, len(hidden)) for width in hidden), outputs)


def matrix_columns(fan_in: int, fan_out: int) -> int:
    """Columns of a weight matrix, bias included, padded so that it takes a multiple of 64 bytes."""
    return round_up(fan_in + 1, 16 // math.gcd(fan_out, 16))


class GroupedNetworks:
    """Members that share their padded widths, optimiser and everything else that determines the calls.

    A block is a list of tensors, one for each layer: the weights, then, in training, each of the slots.
    """

    settings: UpdateSettings
    keys: Tensor  # of dropout

    def __init__(self, selection: Selection, device_data: DeviceData, members: np.ndarray, training: bool) -> None:
        self.program, self.state = selection.program, selection.state
        self.device_data, self.members, self.training = device_data, members, training
        self.records = self.program.records[members]
        first = self.records[0]
        self.n_moments = int(first["optimizer_slots"])
        self.n_slots = self.n_moments + bool(first["patience"] > 0) if training else 0
        smoothing = self.records["label_smoothing"]
        self.smoothing = self.vector(smoothing) if smoothing.any() else None
        self.clip = self.vector(self.records["clip"]) if first["clip"] > 0 else None
        self.dropout = training and bool(first["dropout"] > 0)
        if self.dropout:
            self.threshold = torch.from_numpy(dropout_thresholds(self.records)).to(device_data.device)
            self.scale = self.vector(1.0 / (1.0 - self.records["dropout"]))
        self._lay_out()

    def _lay_out(self) -> None:
        """Widths, weights and what the forward pass needs."""
        program, members = self.program, self.members
        (self.widths,) = padded_shapes(program, members[:1])
        self.n_layers = len(self.widths) - 1
        self.columns = [matrix_columns(fan_in, fan_out) for fan_in, fan_out in pairwise(self.widths)]
        self.alike: dict[Widths, list[int]] = {}  # members that have the same shape even without padding
        for place, widths in enumerate(exact_shapes(program, members)):
            self.alike.setdefault(widths, []).append(place)
        self.blocks = [self._load(k) for k in range(1 + self.n_slots)]
        self.weights = self.blocks[0]
        self.gradients = [torch.empty_like(weight) for weight in self.weights] if self.training else []
        codes = self.records["activation"]
        bounds = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(members)]
        self.runs = [(ACTIVATIONS[codes[a]], slice(a, b)) for a, b in pairwise(bounds)]
        self.real = [self._real_neurons(layer) for layer in range(1, self.n_layers)]
        self._prepare_features()
        self._signals: dict[int, list[tuple[Tensor, Tensor]]] = {}

    def vector(self, values: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values, np.float32)).to(self.device_data.device)

    # ---- loading and storing ----

    def places(self, k: int) -> list[tuple[np.ndarray, int]]:
        """Buffer and offset of block k of each member; without training, of the weights with which it predicts."""
        if not self.training:
            return [delivered(self.program, self.state, i) for i in self.members.tolist()]
        if k == 0:
            return [(self.state.parameters, start) for start in self.records["parameters"].tolist()]
        starts = self.records["slots"] + (k - 1) * self.records["slot_size"]
        return [(self.state.slots, start) for start in starts.tolist()]

    def _load(self, k: int) -> list[Tensor]:
        shapes = zip(self.widths[1:], self.columns, strict=True)
        block = [torch.zeros(len(self.members), fan_out, columns) for fan_out, columns in shapes]
        places = self.places(k)
        for widths, alike in self.alike.items():
            flat = np.empty((len(alike), _size(widths)), np.float32)
            for line, member in zip(flat, alike, strict=True):
                buffer, start = places[member]
                line[:] = buffer[start : start + len(line)]
            for weight, layer in zip(block, _layers(flat, widths), strict=True):
                fan_in, fan_out = layer.shape[1] - 1, layer.shape[2]
                weight.numpy()[alike, :fan_out, :fan_in] = layer[:, :-1].transpose(0, 2, 1)
                weight.numpy()[alike, :fan_out, -1] = layer[:, -1]
        return [weight.to(self.device_data.device) for weight in block]

    def store(self) -> None:
        """Write weights and slots back to the population's state."""
        for k, block in enumerate(self.blocks):
            places, arrays = self.places(k), [weight.cpu().numpy() for weight in block]
            for widths, alike in self.alike.items():
                flat = np.empty((len(alike), _size(widths)), np.float32)
                for array, layer in zip(arrays, _layers(flat, widths), strict=True):
                    fan_in, fan_out = layer.shape[1] - 1, layer.shape[2]
                    layer[:, :-1] = array[alike, :fan_out, :fan_in].transpose(0, 2, 1)
                    layer[:, -1] = array[alike, :fan_out, -1]
                for line, member in zip(flat, alike, strict=True):
                    buffer, start = places[member]
                    buffer[start : start + len(line)] = line

    def _member_sums(self, tensors: list[Tensor]) -> Tensor:
        """Sums over each member's part of tensors like those of a block, [members]."""
        # Not vector_norm for the gradients, which sums in another order when there is one member.
        return torch.stack([tensor.flatten(1).sum(1) for tensor in tensors], 1).cumsum(1)[:, -1]

    def _real_neurons(self, layer: int) -> Tensor:
        """One for each neuron of a member, zero for padding: [members, width, 1]."""
        widths = self.program.layout.dims[self.records["dims_start"] + layer]
        real = np.arange(self.widths[layer]) < widths[:, None]
        return self.vector(real)[:, :, None]

    def _prepare_features(self) -> None:
        """The columns that members with `features` see, padded with columns that count as zero."""
        self.features: Tensor | None = None
        if self.records["features_start"][0] < 0:
            return
        starts = self.records["features_start"][:, None]
        counts = self.program.layout.dims[self.records["dims_start"]][:, None]
        place = np.arange(self.widths[0])
        features = self.program.features[starts + np.minimum(place, counts - 1)]
        self.features = torch.from_numpy(features).to(self.device_data.device)
        self.seen = self.vector(place < counts)[:, None, :]

    # ---- forward ----

    def inputs(self, rows: Tensor) -> Tensor:
        """[members, rows, columns], one in the last column, for row numbers [1 or members, rows].

        Members that share their rows share the memory.
        """
        if self.features is None:
            x = self.device_data.X[rows]
        else:
            x = self.device_data.X[rows[:, :, None], self.features[:, None, :]] * self.seen
        filled = x.new_zeros(*x.shape[:2], self.columns[0])
        filled[:, :, : x.shape[2]] = x
        filled[:, :, -1] = 1
        return filled.expand(len(self.members), -1, -1)

    def _signal(self, layer: int, rows: int) -> tuple[Tensor, Tensor]:
        """Memory of a hidden layer: sums [members, neurons, rows], and signals [members, columns, rows] above ones."""
        if rows not in self._signals:
            made = []
            for width, columns in zip(self.widths[1:-1], self.columns[1:], strict=True):
                signals = torch.zeros(len(self.members), columns, rows, device=self.device_data.device)
                signals[:, -1] = 1
                made.append((torch.empty_like(signals[:, :width], memory_format=torch.contiguous_format), signals))
            self._signals[rows] = made
        return self._signals[rows][layer]

    def _forward(self, x: Tensor, kept: list[Tensor]) -> Tensor:
        """Outputs [members, outputs, rows]; `kept` has a factor for each neuron and row if there is dropout."""
        signal = x.transpose(1, 2)
        for layer, weight in enumerate(self.weights[:-1]):
            sums, signals = self._signal(layer, x.shape[1])
            torch.bmm(weight, signal, out=sums)
            for name, members in self.runs:
                active = signals[members, : weight.shape[1]]
                ARITHMETIC[name].activate(sums[members], active)
                if not TABLE[name].zero_at_zero:
                    active.mul_(self.real[layer][members])
            if kept:
                signals[:, : weight.shape[1]].mul_(kept[layer])
            signal = signals
        return torch.bmm(self.weights[-1], signal)

    def outputs(self, x: Tensor) -> Tensor:
        """Raw outputs [members, outputs, rows] for some inputs, without dropout."""
        return self._forward(x, [])

    # ---- training ----

    def begin_epoch(self, steps: np.ndarray, rates: np.ndarray) -> None:
        """Prepare an epoch with these learning rates [updates, members], after `steps` earlier updates."""
        self.settings = UpdateSettings(self.records, steps, rates, self.device_data.device)
        if self.dropout:
            keys = dropout_keys(self.records, steps, len(rates), int(self.records["n_layers"].max()) - 1)
            self.keys = torch.from_numpy(keys).to(self.device_data.device)

    def step(self, k: int, x: Tensor, goal: Goal) -> Tensor:
        """Do update k of the epoch on some inputs; returns the loss before it, [members]."""
        kept = self._kept(k, x.shape[1]) if self.dropout else []
        outputs = self._forward(x, kept)
        losses = loss_terms(self.device_data.loss, outputs, goal).flatten(1).sum(1)
        self._backward(x, loss_slopes(self.device_data.loss, outputs, goal), kept)
        # Not baddbmm into the weights, which adds row after row, with ten times the rounding error.
        self._update(k)
        return losses

    @torch.no_grad()
    def _update(self, k: int) -> None:
        """The optimiser's part of update k of the epoch."""
        if self.clip is not None:
            norms = self._member_sums([gradient.square() for gradient in self.gradients]).sqrt()
            factors = spread(clip_factors(norms, self.clip))
            for gradient in self.gradients:
                gradient.mul_(factors)
        rates = self.settings.at(k)
        for layer, (weight, gradient) in enumerate(zip(self.weights, self.gradients, strict=True)):
            update(weight, gradient, [block[layer] for block in self.blocks[1 : 1 + self.n_moments]], rates)

    @torch.no_grad()
    def finite(self) -> np.ndarray:
        """A mask of the members whose weights are all finite."""
        broken = self._member_sums([(~torch.isfinite(weight)).float() for weight in self.weights])
        return (broken == 0).cpu().numpy()

    @torch.no_grad()
    def keep_best(self, better: np.ndarray) -> None:
        """Copy the weights of these members (a mask) to their best slot."""
        if better.any():
            chosen = spread(torch.from_numpy(better).to(self.device_data.device))
            for best, weight in zip(self.blocks[-1], self.weights, strict=True):
                best.copy_(torch.where(chosen, weight, best))

    def _backward(self, x: Tensor, slope: Tensor, kept: list[Tensor]) -> None:
        """Gradients of all layers from the slope of the outputs."""
        for layer in reversed(range(1, self.n_layers)):
            sums, signals = self._signal(layer - 1, x.shape[1])
            torch.bmm(slope, signals.transpose(1, 2), out=self.gradients[layer])
            slope = torch.bmm(self.weights[layer][:, :, : self.widths[layer]].transpose(1, 2), slope)
            if kept:
                slope.mul_(kept[layer - 1])
            for name, members in self.runs:
                ARITHMETIC[name].slope(slope[members], sums[members])
        torch.bmm(slope, x, out=self.gradients[0])

    def _kept(self, k: int, rows: int) -> list[Tensor]:
        """For each hidden layer 1 / (1 - rate) where a neuron is kept, else 0: [members, neurons, rows]."""
        device = self.device_data.device
        row = torch.arange(rows, device=device)
        factors = []
        for layer, width in enumerate(self.widths[1:-1]):
            low, high = map(spread, self.keys[:, k, layer])
            neuron = torch.arange(width, device=device)[:, None]
            factors.append(dropout_kept(low, high, row, neuron, spread(self.threshold)) * spread(self.scale))
        return factors


def _size(widths: Widths) -> int:
    return sum((fan_in + 1) * fan_out for fan_in, fan_out in pairwise(widths))


def _layers(flat: np.ndarray, widths: Widths) -> list[np.ndarray]:
    """Views of members' numbers as the population keeps them: [members, fan_in + 1, fan_out] for each layer."""
    sizes = [(fan_in + 1) * fan_out for fan_in, fan_out in pairwise(widths)]
    parts = np.split(flat, np.cumsum(sizes)[:-1], axis=1)
    return [part.reshape(len(flat), -1, fan_out) for part, fan_out in zip(parts, widths[1:], strict=True)]


# ---- activations ----


class Arithmetic(NamedTuple):
    """An activation and its derivative, in place."""

    activate: Callable[[Tensor, Tensor], object]  # (sums, out): writes to `out`, leaves in `sums` what `slope` needs
    slope: Callable[[Tensor, Tensor], object]  # (slope, sums): turns the slope of the value into that of the argument


def _tanh(sums: Tensor, out: Tensor) -> None:
    out.copy_(sums.tanh_())


def _sigmoid(sums: Tensor, out: Tensor) -> None:
    out.copy_(sums.sigmoid_())


def _relu(sums: Tensor, out: Tensor) -> None:
    torch.clamp_min(sums, 0, out=out)


def _elu(sums: Tensor, out: Tensor) -> None:
    out.copy_(aten.elu_(sums))


def _selu(sums: Tensor, out: Tensor) -> None:
    out.copy_(aten.elu_(sums, SELU_ALPHA, SELU_SCALE))


def _gelu(sums: Tensor, out: Tensor) -> None:
    # Not torch's own, which uses one of two routines that round differently, depending on its argument's memory layout.
    torch.mul(sums, _normal_distribution(sums), out=out)


def _gelu_slope(slope: Tensor, sums: Tensor) -> None:
    density = sums.square().mul_(-0.5).exp_().mul_(1 / math.sqrt(2 * math.pi))
    slope.mul_(density.mul_(sums).add_(_normal_distribution(sums)))


def _normal_distribution(sums: Tensor) -> Tensor:
    return (sums * math.sqrt(0.5)).erf_().add_(1).mul_(0.5)


ARITHMETIC = {
    "identity": Arithmetic(lambda sums, out: out.copy_(sums), lambda slope, sums: slope),
    "sigmoid": Arithmetic(
        _sigmoid, lambda slope, sums: aten.sigmoid_backward.grad_input(slope, sums, grad_input=slope)
    ),
    "tanh": Arithmetic(_tanh, lambda slope, sums: aten.tanh_backward.grad_input(slope, sums, grad_input=slope)),
    "relu": Arithmetic(_relu, lambda slope, sums: aten.threshold_backward.grad_input(slope, sums, 0, grad_input=slope)),
    "elu": Arithmetic(
        _elu, lambda slope, sums: aten.elu_backward.grad_input(slope, 1, 1, 1, True, sums, grad_input=slope)
    ),
    "selu": Arithmetic(
        _selu,
        lambda slope, sums: aten.elu_backward.grad_input(
            slope, SELU_ALPHA, SELU_SCALE, 1, True, sums, grad_input=slope
        ),
    ),
    "gelu": Arithmetic(_gelu, _gelu_slope),
    "leaky_relu": Arithmetic(
        lambda sums, out: aten.leaky_relu.out(sums, 0.01, out=out),
        lambda slope, sums: aten.leaky_relu_backward.grad_input(slope, sums, 0.01, False, grad_input=slope),
    ),
    "hardshrink": Arithmetic(
        lambda sums, out: aten.hardshrink.out(sums, 0.5, out=out),
        lambda slope, sums: aten.hardshrink_backward.grad_input(slope, sums, 0.5, grad_input=slope),
    ),
    "mish": Arithmetic(
        lambda sums, out: aten.mish.out(sums, out=out), lambda slope, sums: slope.copy_(aten.mish_backward(slope, sums))
    ),
}
check_complete(ARITHMETIC, "ARITHMETIC in population/engines/grouped.py")
