"""Facts about a network that a cost model needs: its sizes, layer by layer."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from shoal.parallel.cost import Facts, Layer, LinearPair
from shoal.parallel.data.loader import Loader
from shoal.parallel.learner import Learner, make_loss
from shoal.parallel.strategies.tensor import linear_pairs

if TYPE_CHECKING:
    from shoal.parallel.job import Job


def facts_of(model: nn.Module, loader: Loader, job: Job) -> Facts:
    """Measured by sending two rows through a copy of the network."""
    learner = Learner(copy.deepcopy(model).cpu(), job, 1)
    vector = learner.new_vector(learner.width)
    state = _state_bytes(learner, vector)
    inputs, target = loader.take(torch.arange(min(2, len(loader))))
    layers = _layers(model, inputs)
    activations = _activations(model, inputs)
    tensors = tuple(parameter.nbytes for parameter in learner.parameters)
    return Facts(
        learner.count, tensors, vector.nbytes, sum(tensors) + state, state,
        activations, _row_bytes((inputs, target)), _flops(model, job, inputs, target), layers,
        _pairs(model, inputs),
    )  # fmt: skip


def _state_bytes(learner: Learner, vector: torch.Tensor) -> int:
    """What the optimiser keeps of each parameter, found by a step of no size."""
    learner.apply(vector, 0)
    values = [value for state in learner.optimizer.state.values() for value in state.values()]
    return sum(value.nbytes for value in values if isinstance(value, torch.Tensor))


def _flops(model: nn.Module, job: Job, inputs: Any, target: Any) -> float:
    from torch.utils.flop_counter import FlopCounterMode

    trial = copy.deepcopy(model).cpu().train()
    with FlopCounterMode(display=False) as counter:
        make_loss(job.loss)(trial(inputs), target).backward()
    return counter.get_total_flops() / len(target)


def _layers(model: nn.Module, inputs: Any) -> tuple[Layer, ...]:
    """The layers of an nn.Sequential, by sending rows through one after the other; none if not all give tensors."""
    from torch.utils.flop_counter import FlopCounterMode

    if not isinstance(model, nn.Sequential) or not isinstance(inputs, torch.Tensor):
        return ()
    found, rows = [], len(inputs)
    value = inputs
    for position, layer in enumerate(copy.deepcopy(model).cpu().train()):
        entering = value.detach().requires_grad_(position > 0 and value.is_floating_point())
        with FlopCounterMode(display=False) as counter:
            value = layer(entering.clone())  # a copy: a layer may work in place
            if not isinstance(value, torch.Tensor):
                return ()
            if value.requires_grad:
                value.sum().backward()
        count = sum(parameter.numel() for parameter in layer.parameters())
        found.append(Layer(type(layer).__name__, count, counter.get_total_flops() / rows,
                           entering[0].numel(), value[0].numel()))  # fmt: skip
    return tuple(found)


def _pairs(model: nn.Module, inputs: Any) -> tuple[LinearPair, ...]:
    """What is summed and computed where linear layers are split as the strategy `tensor` splits them; by looking on."""
    trial = copy.deepcopy(model).cpu().train()
    seen: dict[nn.Module, tuple[int, int, bool, float]] = {}  # numbers a row in and out; not the network's own; flops

    def see(module: Any, given: Any, output: Any) -> None:
        if not given:  # called by keyword: not seen
            return
        entering, inner = given[0][0].numel(), given[0].requires_grad
        flops = (6.0 if inner else 4.0) * entering * module.out_features
        seen[module] = (entering, output[0].numel(), inner, flops)

    for module in trial.modules():
        if isinstance(module, nn.Linear):
            module.register_forward_hook(see)
    trial(inputs)
    found = []
    for names in linear_pairs(trial):
        layers = [trial.get_submodule(name) for name in names if name is not None]
        known = [seen[layer] for layer in layers if layer in seen]
        if known:
            (entering, _, inner, _), (_, leaving, _, _) = known[0], known[-1]
            found.append(LinearPair((leaving, entering) if inner else (leaving,), sum(flops for *_, flops in known)))
    return tuple(found)


def _activations(model: nn.Module, inputs: Any) -> int:
    """Bytes of all outputs of modules, of a row."""
    sizes: list[int] = []

    def see(module: nn.Module, given: Any, output: Any) -> None:
        if isinstance(output, torch.Tensor) and not list(module.children()):
            sizes.append(output.nbytes // max(1, len(output)))

    trial = copy.deepcopy(model).cpu().eval()
    for module in trial.modules():
        module.register_forward_hook(see)
    with torch.no_grad():
        trial(inputs)
    return sum(sizes)


def _row_bytes(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        return value[0].nbytes
    parts = value.values() if isinstance(value, dict) else value
    return sum(map(_row_bytes, parts))
