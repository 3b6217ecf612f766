"""Whether the population engine can train a network as `shoal.parallel` does, and the network as a member of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset, TensorDataset

from shoal.errors import UserError
from shoal.population.engines.checks import check_data
from shoal.population.engines.program import Data
from shoal.population.engines.weights import Layers
from shoal.population.members import Member
from shoal.torch import ACTIVATIONS

if TYPE_CHECKING:
    from shoal.parallel.job import Job


class NotFast(UserError):
    """The engine cannot do what the job asks for; the message is the reason, in words."""


class Network(NamedTuple):
    """A chain of linear layers with one activation between them."""

    names: tuple[str, ...]  # of the linear layers in the state dict
    widths: tuple[int, ...]  # inputs, hidden layers, outputs
    activation: str

    def layers(self, model: nn.Module) -> Layers:
        """The model's weights as the engine has them: W of shape (fan_in, fan_out), and b."""
        state = {name: value.detach().cpu().numpy() for name, value in model.state_dict().items()}
        return [(state[f"{name}.weight"].T, state[f"{name}.bias"]) for name in self.names]


def can_be_fast(model: nn.Module, train: Dataset[Any], job: Job) -> str:
    """Why `train_averaged` cannot train this network, in words; empty if it can."""
    try:
        check_job(job)
        network = network_of(model)
        member_of(network, job)
        data_of(model, train, str(job.loss))
    except UserError as reason:
        return str(reason)
    return ""


def member_of(network: Network, job: Job) -> Member:
    """The recipe of all nodes. The learning rate of each step is set by `train_averaged`, the seed where it is used."""
    return Member(
        hidden=network.widths[1:-1], activation=network.activation, optimizer=str(job.optimizer),
        learning_rate=job.learning_rate, weight_decay=job.weight_decay,
        momentum=job.momentum if job.optimizer == "sgd" else 0.0, batch_size=job.batch_size,
    )  # fmt: skip


def check_job(job: Job) -> None:
    """Raise `NotFast` for what the engine does not do."""
    if not job.method.is_population(job):
        raise NotFast("only networks that are averaged every epoch or at the end are computed as a population")
    for name, value in (("a loss", job.loss), ("an optimizer", job.optimizer)):
        if callable(value):
            raise NotFast(f"{name} of your own is computed by PyTorch only")
    if job.optimizer == "sgd" and job.momentum >= 1:
        raise NotFast(f"the engine needs a momentum below 1; got {job.momentum:g}")


def network_of(model: nn.Module) -> Network:
    """What the model is made of; raises `NotFast` if the engine does not know it."""
    linears: list[tuple[str, nn.Linear]] = []
    found: list[str | None] = []  # the activation after each linear layer
    known = {module: name for name, module in ACTIVATIONS.items()}
    for name, module in _leaves(model):
        kind = type(module)
        if kind is nn.Linear and isinstance(module, nn.Linear):
            linears.append((name, module))
            found.append(None)
        elif kind is nn.Flatten and not linears and (module.start_dim, module.end_dim) == (1, -1):
            continue
        elif kind not in known or not linears or found[-1] not in (None, "identity"):
            raise NotFast(f"the engine knows layers nn.Linear, each with one activation behind it, not {module}")
        else:
            found[-1] = known[kind]
            _check_activation(module, kind)
    if not linears:
        raise NotFast("the engine knows networks of nn.Linear; this one has none")
    *between, output = [activation or "identity" for activation in found]
    if output != "identity" or len(set(between)) > 1:
        raise NotFast("the engine has one activation for all hidden layers and none for outputs; "
                      f"this network has {', '.join([*between, output])}")  # fmt: skip
    _check_parameters(model, linears)
    widths = (linears[0][1].in_features, *(linear.out_features for _, linear in linears))
    if any(linear.in_features != before for (_, linear), before in zip(linears, widths, strict=False)):
        raise NotFast(f"the layers of the network do not fit each other: {model}")
    return Network(tuple(name for name, _ in linears), widths, between[0] if between else "identity")


def _leaves(model: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    if type(model) is not nn.Sequential or model._forward_hooks or model._forward_pre_hooks:
        raise NotFast(f"the engine knows networks of type nn.Sequential, without hooks; got {type(model).__name__}")
    for name, module in model._modules.items():
        assert module is not None
        if isinstance(module, nn.Sequential):
            yield from _leaves(module, f"{prefix}{name}.")
        elif module._forward_hooks or module._forward_pre_hooks or module._backward_hooks:
            raise NotFast(f"the engine does not call hooks, as {prefix}{name} has some")
        else:
            yield prefix + name, module


def _check_activation(module: nn.Module, kind: type[nn.Module]) -> None:
    """Only with the settings that the engine knows. Whether it works in place makes no difference."""
    settings = {name: value for name, value in vars(module).items() if not name.startswith("_") and name != "inplace"}
    usual = vars(kind())
    if any(usual.get(name) != value for name, value in settings.items() if name != "training"):
        raise NotFast(f"the engine has no settings of activations: give {kind.__name__}() for {module}")


def _check_parameters(model: nn.Module, linears: list[tuple[str, nn.Linear]]) -> None:
    if any(linear.bias is None for _, linear in linears):
        raise NotFast("the engine's layers have biases; this network has layers without")
    parameters = [parameter for _, linear in linears for parameter in (linear.weight, linear.bias)]
    if len({id(parameter) for parameter in parameters}) < len(parameters):
        raise NotFast("two layers of the network share a parameter")
    if any(not parameter.requires_grad for parameter in parameters):
        raise NotFast("the engine trains all parameters; some of these are frozen")
    wrong = {str(parameter.dtype) for parameter in parameters if parameter.dtype != torch.float32}
    if wrong:
        raise NotFast(f"the engine computes in float32; the network is {', '.join(sorted(wrong))}")


def data_of(model: nn.Module, train: Dataset[Any], loss: str) -> Data:
    """The rows as the engine takes them, without a copy where that is possible."""
    if type(train) is not TensorDataset or len(train.tensors) != 2:
        raise NotFast(f"rows must be a TensorDataset of inputs and targets; got {type(train).__name__}")
    widths = network_of(model).widths
    inputs, target = (tensor.detach().cpu() for tensor in train.tensors)
    if any(isinstance(module, nn.Flatten) for module in model.modules()):
        inputs = inputs.flatten(1)
    if inputs.dtype != torch.float32 or inputs.dim() != 2:
        raise NotFast(f"inputs must be float32, rows and columns; got {inputs.dtype} of shape {tuple(inputs.shape)}")
    return check_data(inputs.numpy(), _targets(target, loss, widths[-1]), widths[0], widths[-1], loss)


def _targets(target: torch.Tensor, loss: str, n_outputs: int) -> np.ndarray:
    """Targets as `shoal.parallel.learner.make_loss` takes them."""
    classes = not target.is_floating_point()
    if loss == "cross_entropy":
        if not classes or target.dim() != 1:
            raise NotFast("for cross_entropy the engine needs one class number for each row")
        return target.numpy()
    if classes and target.dim() == 1 and n_outputs > 1:
        if int(target.min()) < 0 or int(target.max()) >= n_outputs:
            raise NotFast(f"classes must be from 0 to {n_outputs - 1}, one for each output")
        return np.eye(n_outputs, dtype=np.float32)[target.numpy()]
    return target.reshape(len(target), -1).float().numpy()
