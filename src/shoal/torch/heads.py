"""One backbone, many heads: members of a population that share what comes before them, and train it together."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from shoal.errors import UserError, WrongType
from shoal.population.extract import sequential
from shoal.population.members import Member
from shoal.population.population import Population
from shoal.torch.numbered import Numbered, keep_factors
from shoal.torch.scatter import ACTIVATIONS
from shoal.validate import shown


class Heads(Numbered):
    """A backbone and one head for each member.

    `heads.losses(heads(x), y).sum().backward()` gives each head the gradient of its own loss, as if it were alone, and
    the backbone the mean of what the heads send it: with one head, it is plain training. `parameter_groups` hands the
    members' learning rates to any optimiser of torch.

    Parameters
    ----------
    backbone : nn.Module
        Gives [rows, n_features].
    members : list of Member
        The heads. `hidden`, `activation`, `init`, `seed`, `dropout`, `features` (columns of what the backbone gives)
        and `label_smoothing` are used, and by `parameter_groups` `learning_rate`, `weight_decay` and `momentum`; all
        else belongs to the training loop, which is yours.
    n_features, n_outputs : int
        Inputs and outputs of each head.
    loss : {"cross_entropy", "mse", "bce"}
        Of `losses`.

    Examples
    --------
    >>> from shoal import grid
    >>> backbone = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten())
    >>> heads = Heads(backbone, grid(hidden=[(), 8, (16, 8)], activation=["relu", "tanh"]), 144, 10)
    >>> outputs = heads(torch.zeros(5, 1, 8, 8))  # [heads, rows, outputs]
    >>> outputs.shape, heads.losses(outputs, torch.zeros(5, dtype=torch.long)).shape
    (torch.Size([6, 5, 10]), torch.Size([6]))
    """

    def __init__(
        self, backbone: nn.Module, members: Sequence[Member], n_features: int, n_outputs: int,
        loss: str = "cross_entropy",
    ) -> None:  # fmt: skip
        if not isinstance(backbone, nn.Module):
            raise WrongType(f"backbone must be a torch.nn.Module; got {shown(backbone)}")
        drawn = Population(members, n_features, n_outputs, loss)
        networks = [_network(drawn, i) for i in range(len(drawn))]
        super().__init__(networks, [member.seed for member in drawn.members])
        self.backbone = backbone
        self.members = dict(enumerate(drawn.members))
        self.n_features, self.n_outputs, self.loss = drawn.n_features, drawn.n_outputs, drawn.loss

    def forward(self, x: Any) -> Tensor:
        """Outputs of all heads, [heads, rows, outputs], in the order of `active`."""
        features = self.backbone(x)
        self._check_features(features)
        return self.from_features(_mean_gradient(features, len(self)))

    def from_features(self, features: Tensor) -> Tensor:
        """The same from what the backbone gave, [rows, n_features]."""
        self._check_features(features)
        groups = self._groups()
        outputs = torch.cat([self._group_outputs(group, features) for group in groups])
        place = {number: k for k, number in enumerate(number for group in groups for number in group)}
        return outputs[[place[number] for number in self.active]]

    def losses(self, outputs: Tensor, target: Tensor) -> Tensor:
        """The mean loss of each head over the rows, [heads]."""
        if outputs.ndim != 3 or len(outputs) != len(self) or outputs.shape[2] != self.n_outputs:
            wanted = f"[{len(self)} heads, rows, {self.n_outputs}]"
            raise UserError(f"outputs must be what the heads gave, {wanted}; got {list(outputs.shape)}")
        if self.loss == "cross_entropy":
            return self._cross_entropy(outputs, target)
        values = target[:, None] if target.ndim == 1 and self.n_outputs == 1 else target
        if values.shape != outputs.shape[1:]:
            wanted = f"values [{outputs.shape[1]}, {self.n_outputs}]"
            raise UserError(f"the loss {self.loss} needs {wanted}; got {list(target.shape)}")
        values = values.to(outputs.dtype).expand_as(outputs)
        each = functional.mse_loss if self.loss == "mse" else functional.binary_cross_entropy_with_logits
        return each(outputs, values, reduction="none").mean((1, 2))

    def _cross_entropy(self, outputs: Tensor, target: Tensor) -> Tensor:
        if target.shape != outputs.shape[1:2] or target.is_floating_point() or target.dtype == torch.bool:
            wanted = f"a whole class number for each of {outputs.shape[1]} rows"
            raise UserError(f"the loss cross_entropy needs {wanted}; got {list(target.shape)} of {target.dtype}")
        logarithms = outputs.log_softmax(-1)
        right = -logarithms.gather(-1, target.long().expand(len(self), -1)[..., None])[..., 0]  # [heads, rows]
        smoothing = outputs.new_tensor([self.members[number].label_smoothing for number in self.active])[:, None]
        return torch.lerp(right, -logarithms.mean(-1), smoothing).mean(1)

    def parameter_groups(self, **backbone: Any) -> list[dict[str, Any]]:
        """For an optimiser of torch: the backbone with the settings given here, each head with those of its member.

        >>> heads = Heads(nn.Linear(3, 4), [Member(hidden=8, learning_rate=0.1)], n_features=4, n_outputs=2)
        >>> optimizer = torch.optim.Adam(heads.parameter_groups(lr=1e-3))
        >>> [group["lr"] for group in optimizer.param_groups]
        [0.001, 0.1]
        """
        trained = [parameter for parameter in self.backbone.parameters() if parameter.requires_grad]
        groups: list[dict[str, Any]] = [{"params": trained, **backbone}] if trained else []
        for number in self.active:
            member = self.members[number]
            group = {"params": list(self.network(number).parameters()), "lr": member.learning_rate}
            group["weight_decay"] = member.weight_decay
            groups.append(group | ({"momentum": member.momentum} if member.momentum else {}))
        return groups

    def extract(self, number: int) -> nn.Sequential:
        """Backbone and one head as a plain module for evaluation, with its own parameters."""
        head = copy.deepcopy(self.network(number))
        assert isinstance(head, nn.Sequential)
        columns = self.members[number].features
        if columns is not None:
            head[0] = _all_columns(head[0], columns, self.n_features)
        return nn.Sequential(copy.deepcopy(self.backbone), head).eval()

    def extra_repr(self) -> str:
        return f"{len(self)} heads, {self.n_features} features, {self.n_outputs} outputs, {self.loss}"

    # ---- arithmetic ----

    def _check_features(self, features: Any) -> None:
        if not isinstance(features, Tensor):
            raise WrongType(f"the backbone must give one tensor, [rows, {self.n_features}]; got {shown(features)}")
        if features.ndim != 2 or features.shape[1] != self.n_features:
            got = list(features.shape)
            remedy = f"give n_features={got[-1]}" if features.ndim == 2 else "it must give a row for each row it gets"
            if features.ndim > 2:
                remedy = "end the backbone with nn.Flatten()"
            raise UserError(f"the heads see {self.n_features} features, but the backbone gives {got}: {remedy}")

    def _groups(self) -> list[list[int]]:
        """Heads whose widths fall into the same buckets, sorted by activation."""
        found: dict[tuple[int, ...], list[int]] = {}
        for number in self.active:
            found.setdefault(tuple(map(bucket, self.members[number].hidden)), []).append(number)
        return [sorted(group, key=lambda number: self.members[number].activation) for group in found.values()]

    def _group_outputs(self, group: list[int], features: Tensor) -> Tensor:
        """[heads of the group, rows, outputs].

        Weights are padded with zeros to the widths of the bucket. What a padded neuron gives meets a weight of zero,
        and the gradients of the padding are dropped with it: the parameters themselves have none.
        """
        hidden = [bucket(width) for width in self.members[group[0]].hidden]
        signal: Tensor | None = None
        for k, (fan_in, fan_out) in enumerate(pairwise([self.n_features, *hidden, self.n_outputs])):
            linears = [self._linear(number, k) for number in group]
            weight = torch.stack([self._padded(linear.weight, number, k, fan_in, fan_out)
                                  for linear, number in zip(linears, group, strict=True)])  # fmt: skip
            bias = torch.stack([functional.pad(linear.bias, (0, fan_out - len(linear.bias))) for linear in linears])
            if signal is None:  # one product for the whole group: all heads see the same features
                sums = functional.linear(features, weight.flatten(0, 1), bias.flatten())
                signal = sums.unflatten(1, (len(group), fan_out)).transpose(0, 1)
            else:
                signal = torch.baddbmm(bias[:, None], signal, weight.mT)
            if k < len(hidden):
                signal = self._activated(group, signal, k)
        assert signal is not None
        return signal

    def _linear(self, number: int, k: int) -> nn.Linear:
        """Layer k of a head, which has activations and perhaps dropout between its layers."""
        step = 3 if self.members[number].dropout > 0 else 2
        layer = self.networks[str(number)][step * k]  # type: ignore[index]
        assert isinstance(layer, nn.Linear)
        return layer

    def _padded(self, weight: Tensor, number: int, k: int, fan_in: int, fan_out: int) -> Tensor:
        columns = self.members[number].features
        if k == 0 and columns is not None:
            weight = weight.new_zeros(len(weight), fan_in).index_copy(
                1, torch.tensor(columns, device=weight.device), weight
            )
        return functional.pad(weight, (0, fan_in - weight.shape[1], 0, fan_out - weight.shape[0]))

    def _activated(self, group: list[int], signal: Tensor, k: int) -> Tensor:
        names = [self.members[number].activation for number in group]
        parts = [ACTIVATIONS[name]()(signal[names.index(name) : names.index(name) + names.count(name)])
                 for name in dict.fromkeys(names)]  # fmt: skip
        signal = torch.cat(parts)
        if not self.training or not any(self.members[number].dropout for number in group):
            return signal
        return signal * torch.stack([self._kept(number, k, signal) for number in group])

    def _kept(self, number: int, k: int, signal: Tensor) -> Tensor:
        member = self.members[number]
        rows, width = signal.shape[1:]
        if not member.dropout:
            return signal.new_ones(rows, width)
        own = keep_factors(self.draws[number], (rows, member.hidden[k]), member.dropout, signal)
        return functional.pad(own, (0, width - member.hidden[k]))


def bucket(width: int) -> int:
    """A width rounded up to 2, 3, 4, 6, 8, 12, 16, ...: few shapes, and at most a third of a layer is padding.

    >>> [bucket(width) for width in (1, 3, 5, 7, 24, 25, 100)]
    [1, 3, 6, 8, 24, 32, 128]
    """
    octave = 1 << (width - 1).bit_length()
    return 3 * octave // 4 if octave >= 4 and width <= 3 * octave // 4 else octave


def _mean_gradient(features: Tensor, heads: int) -> Tensor:
    """The same numbers, whose gradient is divided by the number of heads on its way into the backbone."""
    if not features.requires_grad:
        return features
    shared = features.view_as(features)
    shared.register_hook(lambda gradient: gradient / heads)
    return shared


def _network(population: Population, i: int) -> nn.Sequential:
    """Member i over the columns that it sees, with the weights that were drawn for it."""
    views = population.layout.views(i, population.state.parameters)
    return sequential(population.members[i], [(view[:-1], view[-1]) for view in views]).train()


def _all_columns(layer: nn.Module, columns: tuple[int, ...], n_features: int) -> nn.Linear:
    """A layer over some columns as one over all, with zeros for the others."""
    assert isinstance(layer, nn.Linear)
    wide = nn.utils.skip_init(nn.Linear, n_features, layer.out_features, device=layer.weight.device,
                              dtype=layer.weight.dtype)  # fmt: skip
    with torch.no_grad():
        wide.weight.zero_()[:, list(columns)] = layer.weight
        wide.bias.copy_(layer.bias)
    return wide
