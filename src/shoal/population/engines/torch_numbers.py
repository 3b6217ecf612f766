"""The arithmetic of the PyTorch engine: order of rows, losses, learning rates, optimisers, dropout.

Everything is vectorised over members and independent of how networks are packed into tensors.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from shoal import _native
from shoal.population.engines.program import Assignment, Data, Program
from shoal.population.members import OPTIMIZERS, SCHEDULES

BETA1, EPSILON = 0.9, 1e-8
MULTIPLE = 16  # batches are padded to a multiple of so many rows

# ---- rows and losses ----


class Chunk(NamedTuple):
    """Consecutive batches: row numbers and shares in the mean, [1 or members, rows], and the span of each batch."""

    rows: Tensor
    share: Tensor
    spans: list[slice]


class Goal(NamedTuple):
    """Targets of rows, with weights such that the loss terms of a batch add up to its mean; padding has weight zero.

    cross_entropy: `target` [1 or members, outputs, rows] is the target distribution times the row's share in the mean,
    `weight` its sum over outputs. Otherwise `target` holds values and `weight` each value's share in the mean.
    """

    target: Tensor
    weight: Tensor

    def at(self, span: slice) -> Goal:
        return Goal(self.target[..., span], self.weight[..., span])


class DeviceData:
    """The data as tensors on the device, and on the host for sums in float64."""

    def __init__(self, program: Program, data: Data, device: str) -> None:
        self.loss = program.loss
        self.n_outputs = program.n_outputs
        self.device = torch.device(device)
        self.host = data
        self.X = _tensor(data.X).to(self.device)
        self.labels = _tensor(data.labels).to(self.device).long()
        self.targets = _tensor(data.targets).to(self.device)
        self.class_weight = program.class_weight
        if not len(self.class_weight):
            self.class_weight = np.ones(self.n_outputs, np.float32)
        self.classes = _tensor(self.class_weight).to(self.device)

    def goal(self, chunk: Chunk, smoothing: Tensor | None = None) -> Goal:
        """The goal of some batches; `smoothing` [members] is the label smoothing of cross_entropy."""
        share = chunk.share[:, None, :]
        if self.loss != "cross_entropy":
            target = self.targets[chunk.rows].transpose(1, 2)
            return Goal(target, share / self.n_outputs)
        label = self.labels[chunk.rows][:, None, :]
        target = share.new_zeros(len(label), self.n_outputs, label.shape[2])
        target.scatter_(1, label, self.classes[label] * share)
        if smoothing is not None:
            amount = smoothing[:, None, None]
            even = self.classes[:, None] * share / self.n_outputs
            target = target * (1 - amount) + even * amount
        return Goal(target, target.sum(1, keepdim=True))

    def hits(self, outputs: Tensor, chunk: Chunk) -> Tensor:
        """How many of the outputs [members, outputs, rows] of a classification are right, per member."""
        if self.loss == "cross_entropy":
            right = (outputs.argmax(1) == self.labels[chunk.rows])[:, None, :]
        else:
            right = (outputs > 0) == (self.targets[chunk.rows].transpose(1, 2) > 0.5)
        return (right & (chunk.share > 0)[:, None, :]).sum((1, 2))

    def spread(self, order: np.ndarray) -> np.ndarray:
        """Squared deviations from the mean of the targets in each line of `order`, summed over rows and outputs."""
        lines = (self.host.targets[line].astype(np.float64) for line in order)
        return np.array([((targets - targets.mean(0)) ** 2).sum() for targets in lines])


def loss_terms(loss: str, outputs: Tensor, goal: Goal) -> Tensor:
    """The contribution of each output [members, outputs, rows] to its member's mean loss."""
    if loss == "cross_entropy":
        return -goal.target * torch.log_softmax(outputs, 1)
    if loss == "bce":
        target = goal.target.expand_as(outputs)
        return goal.weight * functional.binary_cross_entropy_with_logits(outputs, target, reduction="none")
    return goal.weight * (outputs - goal.target).square()


def loss_slopes(loss: str, outputs: Tensor, goal: Goal) -> Tensor:
    """The derivative of the sum of `loss_terms` with respect to the outputs."""
    if loss == "cross_entropy":
        return (torch.softmax(outputs, 1) * goal.weight).sub_(goal.target)
    if loss == "bce":
        # Not torch.sigmoid, whose remainder loop rounds differently from its vector loop.
        return outputs.neg().exp_().add_(1).reciprocal_().sub_(goal.target).mul_(goal.weight)
    return (outputs - goal.target).mul_(2 * goal.weight)


class Batches:
    """Rows divided into batches. `order` and `weight` are [1 or members, rows]: one line if all members share it.

    Each batch has its own mean; with `whole` there is one mean over all of them. Batches are padded with rows of share
    zero.
    """

    def __init__(
        self, device_data: DeviceData, order: np.ndarray, weight: np.ndarray, size: int, whole: bool = False
    ) -> None:
        lines, n = order.shape
        self.order = order
        self.size = min(size, n)
        self.n_rows = n
        self.count = -(-n // self.size)
        mass = weight.astype(np.float64)
        if device_data.loss == "cross_entropy":
            mass = mass * device_data.class_weight[device_data.host.labels[order]]
        self.mass = self._cut(mass).sum(2)  # [lines, batches]: what each mean is divided by
        total = self.mass.sum(1, keepdims=True) if whole else self.mass
        self.width = width = round_up(self.size, MULTIPLE)
        rows = np.zeros((lines, self.count, width), np.int64)
        rows[..., : self.size] = self._cut(order)
        share = np.zeros((lines, self.count, width), np.float32)
        share[..., : self.size] = self._cut(weight.astype(np.float64)) / total[..., None]
        self.rows = torch.from_numpy(rows).to(device_data.device).flatten(1)
        self.share = torch.from_numpy(share).to(device_data.device).flatten(1)

    def _cut(self, values: np.ndarray) -> np.ndarray:
        filled = np.zeros((len(values), self.count * self.size), values.dtype)
        filled[:, : self.n_rows] = values
        return filled.reshape(len(values), self.count, self.size)

    def __len__(self) -> int:
        return self.count

    def chunks(self, most_rows: int) -> Iterator[Chunk]:
        """All batches in order, as chunks of at most `most_rows` rows, but at least one batch."""
        last = (self.count - 1) * self.width + round_up(self.n_rows - (self.count - 1) * self.size, MULTIPLE)
        step = max(1, most_rows // self.width) * self.width
        for start in range(0, self.count * self.width, step):
            stop = min(start + step, last)
            spans = [slice(a, min(a + self.width, stop - start)) for a in range(0, stop - start, self.width)]
            yield Chunk(self.rows[:, start:stop], self.share[:, start:stop], spans)


@lru_cache(maxsize=16)  # shared by the parts of one epoch
def _permutation(key: int, epoch: int, count: int) -> np.ndarray:
    return _native.permutation(key, epoch, count)


def training_rows(rows: Assignment, members: np.ndarray, epochs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers and weights in the order of each member's next epoch, [1 or members, rows]."""

    def line(split: int, key: int, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        span = slice(rows.train_start[split], rows.train_start[split + 1])
        order = rows.train[span]
        weight = rows.weight[span] if len(rows.weight) else np.ones(len(order), np.float32)
        if rows.shuffle:
            shuffled = _permutation(key, epoch, len(order))
            return order[shuffled], weight[shuffled]
        return order, weight

    keys = zip(rows.split[members].tolist(), rows.order[members].tolist(), epochs.tolist(), strict=True)
    lines = _shared(line, list(keys))
    return np.stack([order for order, _ in lines]), np.stack([weight for _, weight in lines])


def valid_rows(rows: Assignment, members: np.ndarray) -> np.ndarray:
    """Row numbers that members are scored on, [1 or members, rows]."""

    def line(split: int) -> np.ndarray:
        return rows.valid[rows.valid_start[split] : rows.valid_start[split + 1]]

    return np.stack(_shared(line, [(split,) for split in rows.split[members].tolist()]))


def _shared(make: Callable, keys: list[tuple]) -> list:
    """One line if all keys are the same, else one per key."""
    made = {key: make(*key) for key in dict.fromkeys(keys)}
    return list(made.values()) if len(made) == 1 else [made[key] for key in keys]


# ---- updates ----


class Rates(NamedTuple):
    """The coefficients of one update, shaped to broadcast against a parameter. None where no member uses it."""

    step: Tensor  # factor of the gradient (sgd), buffer (momentum) or quotient (adam); negative
    shrink: Tensor | None  # factor of the parameters: weight decay of plain sgd and adamw
    l2: Tensor | None  # weight decay that goes through the optimiser: momentum and adam
    momentum: Tensor | None
    epsilon: Tensor | None
    beta2: Tensor | None
    rest: Tensor | None  # 1 - beta2


def learning_rates(records: np.ndarray, steps: np.ndarray, count: int, horizon: np.ndarray) -> np.ndarray:
    """Learning rates of the next `count` updates, one epoch, in float64: [count, members]."""
    step = steps + np.arange(count)[:, None]
    warm = np.rint(records["warmup"] * count)
    along = np.minimum(1.0, (step - warm) / np.maximum(1.0, horizon * count - warm))
    cosine = records["schedule"] == SCHEDULES.index("cosine")
    factor = np.where(cosine, 0.5 * (1.0 + np.cos(np.pi * along)), 1.0)
    return records["learning_rate"] * np.where(step < warm, (step + 1) / np.maximum(warm, 1.0), factor)


class UpdateSettings:
    """The hyper-parameters of every update of an epoch, for members with the same number of optimiser slots."""

    def __init__(self, records: np.ndarray, steps: np.ndarray, rates: np.ndarray, device: torch.device) -> None:
        kind = int(records["optimizer_slots"][0])
        decay = records["weight_decay"]
        apart = (records["optimizer"] == OPTIMIZERS.index("adamw")) | (kind == 0)
        vectors: dict[str, np.ndarray] = {"step": -rates}
        if decay.any():
            vectors["shrink"] = 1.0 - rates * np.where(apart, decay, 0.0)
            if kind > 0:
                vectors["l2"] = np.broadcast_to(np.where(apart, 0.0, decay), rates.shape)
        if kind == 1:
            vectors["momentum"] = np.broadcast_to(records["momentum"], rates.shape)
        if kind == 2:
            time = steps + 1 + np.arange(len(rates))[:, None]
            root = np.sqrt(1.0 - records["beta2"] ** time)
            vectors["step"] = -rates * root / (1.0 - BETA1**time)
            vectors["epsilon"] = EPSILON * root
            vectors["beta2"] = np.broadcast_to(records["beta2"], rates.shape)
            vectors["rest"] = np.broadcast_to(1.0 - records["beta2"], rates.shape)
        with np.errstate(over="ignore"):  # a rate too large for float32 is infinite, and its member diverges
            numbers = {name: np.ascontiguousarray(values, np.float32) for name, values in vectors.items()}
        self._vectors = {name: torch.from_numpy(values).to(device) for name, values in numbers.items()}

    def at(self, k: int) -> Rates:
        """The coefficients of update k."""
        given = {name: spread(values[k]) for name, values in self._vectors.items()}
        return Rates(*(given.get(name) for name in Rates._fields))  # type: ignore[arg-type]


def update(parameter: Tensor, gradient: Tensor, slots: Sequence[Tensor], rates: Rates) -> None:
    """One step in place, as torch.optim does it: sgd has no slots, momentum has one, adam and adamw two."""
    if rates.l2 is not None:
        gradient.addcmul_(parameter, rates.l2)
    if rates.shrink is not None:
        parameter.mul_(rates.shrink)
    if rates.momentum is not None:
        (buffer,) = slots
        buffer.mul_(rates.momentum).add_(gradient)
        parameter.addcmul_(buffer, rates.step)
    elif rates.epsilon is None:
        parameter.addcmul_(gradient, rates.step)
    else:
        assert rates.beta2 is not None
        assert rates.rest is not None
        mean, square = slots
        mean.lerp_(gradient, 1 - BETA1)
        square.mul_(rates.beta2).add_(gradient.square().mul_(rates.rest))
        quotient = torch.sqrt(square, out=gradient).add_(rates.epsilon)
        torch.div(mean, quotient, out=quotient)
        parameter.addcmul_(quotient, rates.step)


def clip_factors(norms: Tensor, clip: Tensor) -> Tensor:
    """Factors of the gradients, as in torch.nn.utils.clip_grad_norm_; [members] each."""
    return (clip / (norms + 1e-6)).clamp_max(1.0)


# ---- dropout ----

_WORD = 0xFFFFFFFF


def dropout_keys(records: np.ndarray, steps: np.ndarray, count: int, layers: int) -> np.ndarray:
    """The two 32-bit words from which dropout of `count` updates is drawn: int64 [2, count, layers, members]."""
    step = (steps + np.arange(count)[:, None, None]).astype(np.uint64)
    layer = np.arange(layers, dtype=np.uint64)[:, None]
    key = _split_mix(_split_mix(_split_mix(records["seed"]) ^ step) ^ layer)
    return np.stack([key & np.uint64(_WORD), key >> np.uint64(32)]).astype(np.int64)


def _split_mix(x: np.ndarray) -> np.ndarray:
    x = np.asarray(x, np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)))


def dropout_kept(low: Tensor, high: Tensor, row: Tensor, neuron: Tensor, threshold: Tensor) -> Tensor:
    """Whether each neuron is kept in each row; all arguments int64 and broadcast against each other.

    The same numbers as in the kernel, computed with 64-bit integers cut to 32 bits, which every device supports.
    """
    line = _mix((low + row * 0x9E3779B9) & _WORD) ^ high
    return (_mix((line + neuron * 0x85EBCA6B) & _WORD) >> 8) >= threshold


def _mix(x: Tensor) -> Tensor:
    x = x ^ (x >> 16)
    x.mul_(0x7FEB352D).bitwise_and_(_WORD)
    x.bitwise_xor_(x >> 15)
    x.mul_(0x846CA68B).bitwise_and_(_WORD)
    return x.bitwise_xor_(x >> 16)


def dropout_thresholds(records: np.ndarray) -> np.ndarray:
    """A neuron is kept if the upper 24 bits of its random number reach this threshold."""
    return np.rint(records["dropout"] * (1 << 24)).astype(np.int64)


def spread(vector: Tensor) -> Tensor:
    """A vector over members as what broadcasts against their matrices."""
    return vector[:, None, None]


def round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def _tensor(array: np.ndarray) -> Tensor:
    """The array's own memory as a tensor. It is never written to, so a read-only array is fine."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)
