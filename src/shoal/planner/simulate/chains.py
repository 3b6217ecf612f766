"""Checks whether the population engine can train a network as `shoal.parallel` does, and makes it a member."""

from __future__ import annotations

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

ACTIVATION_NAMES = {module: name for name, module in ACTIVATIONS.items()}


class LinearChain(NamedTuple):
    """A chain of linear layers with one activation between them."""

    names: tuple[str, ...]  # of the linear layers in the state dict
    widths: tuple[int, ...]  # inputs, hidden layers, outputs
    activation: str

    def layers(self, model: nn.Module) -> Layers:
        """The model's weights as the engine has them: W of shape (fan_in, fan_out), and b."""
        state = {name: value.detach().cpu().numpy() for name, value in model.state_dict().items()}
        return [(state[f"{name}.weight"].T, state[f"{name}.bias"]) for name in self.names]


def can_be_fast(model: nn.Module, rows: Dataset[Any], job: Job) -> bool:
    """Whether `train_averaged` can train this network on these rows; else only PyTorch can."""
    if not job.method.is_population(job) or callable(job.loss) or callable(job.optimizer):
        return False
    try:
        member_of(chain_of(model), job)
        data_of(model, rows, str(job.loss))
    except UserError:
        return False
    return True


def member_of(chain: LinearChain, job: Job) -> Member:
    """The recipe of all nodes. The learning rate of each step is set by `train_averaged`, the seed where it is used."""
    return Member(
        hidden=chain.widths[1:-1], activation=chain.activation, optimizer=str(job.optimizer),
        learning_rate=job.learning_rate, weight_decay=job.weight_decay,
        momentum=job.momentum if job.optimizer == "sgd" else 0.0, batch_size=job.batch_size,
    )  # fmt: skip


def chain_of(model: nn.Module) -> LinearChain:
    """What the model is made of, if the engine knows it."""
    linears: list[tuple[str, nn.Linear]] = []
    activations: list[str] = []  # after each linear layer
    for name, module in _leaves(model):
        if type(module) is nn.Linear and not _hooked(module):
            linears.append((name, module))
            activations.append("identity")
        elif linears and activations[-1] == "identity" and _is_usual_activation(module):
            activations[-1] = ACTIVATION_NAMES[type(module)]
        elif linears or type(module) is not nn.Flatten or (module.start_dim, module.end_dim) != (1, -1):
            raise UserError(f"the engine trains linear layers with one activation between them, not {module}")
    *between, output = activations or ["none"]
    widths = [linear.out_features for _, linear in linears]
    fitting = [linear.in_features for _, linear in linears[1:]] == widths[:-1]
    if output != "identity" or len(set(between)) > 1 or not fitting or not _trainable([one for _, one in linears]):
        raise UserError("the engine trains float32 layers with biases, one activation between them and none at the end")
    inputs = linears[0][1].in_features
    return LinearChain(tuple(name for name, _ in linears), (inputs, *widths), between[0] if between else "identity")


def _leaves(model: nn.Module, prefix: str = "") -> list[tuple[str, nn.Module]]:
    """The layers of an nn.Sequential with their names in the state dict; those of others inside it as well."""
    if type(model) is not nn.Sequential or _hooked(model):
        return [(prefix.removesuffix("."), model)]
    children = model._modules.items()  # `named_children` would name a layer that is there twice only once
    return [leaf for name, module in children if module is not None for leaf in _leaves(module, f"{prefix}{name}.")]


def _hooked(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks or module._backward_hooks)


def _is_usual_activation(module: nn.Module) -> bool:
    """Only with the settings that the engine knows. Whether it works in place makes no difference."""
    if type(module) not in ACTIVATION_NAMES or _hooked(module):
        return False
    usual = vars(type(module)())
    settings = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    return all(usual.get(name) == value for name, value in settings.items() if name not in ("inplace", "training"))


def _trainable(linears: list[nn.Linear]) -> bool:
    """Whether all have biases, and all parameters are float32, trained, and those of one layer only."""
    found = [parameter for linear in linears for parameter in (linear.weight, linear.bias)]
    own = len({id(parameter) for parameter in found}) == len(found)
    return own and all(one is not None and one.requires_grad and one.dtype == torch.float32 for one in found)


def data_of(model: nn.Module, rows: Dataset[Any], loss: str) -> Data:
    """The rows as the engine takes them, without a copy where that is possible."""
    if type(rows) is not TensorDataset or len(rows.tensors) != 2:
        raise UserError(f"rows must be a TensorDataset of inputs and targets; got {type(rows).__name__}")
    widths = chain_of(model).widths
    inputs, target = (tensor.detach().cpu() for tensor in rows.tensors)
    if any(isinstance(module, nn.Flatten) for module in model.modules()):
        inputs = inputs.flatten(1)
    if inputs.dtype != torch.float32:
        raise UserError(f"inputs must be float32; got {inputs.dtype}")
    return check_data(inputs.numpy(), _targets(target, loss, widths[-1]), widths[0], widths[-1], loss)


def _targets(target: torch.Tensor, loss: str, n_outputs: int) -> np.ndarray:
    """Targets as `shoal.parallel.learner.make_loss` takes them."""
    classes = not target.is_floating_point() and target.dim() == 1
    if loss == "cross_entropy" and not classes:
        raise UserError("cross_entropy needs one class number for each row")
    if loss == "cross_entropy":
        return target.numpy()
    if classes and n_outputs > 1:
        if int(target.min()) < 0 or int(target.max()) >= n_outputs:
            raise UserError(f"classes must be from 0 to {n_outputs - 1}, one for each output")
        return np.eye(n_outputs, dtype=np.float32)[target.numpy()]
    return target.reshape(len(target), -1).float().numpy()
