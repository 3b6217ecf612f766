"""Modules of one architecture as one: their parameters stacked, one call of torch.func.vmap for all."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from functools import partial
from inspect import isbuiltin, isfunction, ismethod, isroutine
from itertools import chain
from numbers import Number
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional
from torch.nn.utils.parametrize import type_before_parametrizations

from shoal.errors import UserError, WrongType
from shoal.torch.numbered import Numbered, keep_factors
from shoal.torch.stackable import ALONE, SingleCall, compare, exits, refuse_unstackable
from shoal.validate import shown, whole

Loss = Callable[[Tensor, Tensor], Tensor]


def stack(modules: Iterable[nn.Module], seeds: Sequence[int] | None = None) -> Stack:
    """Modules of one architecture as one module, which trains them where they are.

    Each module ends as it would have alone, in plain PyTorch.

    Parameters
    ----------
    modules : iterable of nn.Module
        As from `seeded`.
    seeds : list of int, optional
        Of dropout, one for each module (0, 1, ... by default): on a CPU a module drops what it would have dropped alone
        after `torch.manual_seed(seed)`.

    Returns
    -------
    Stack
        An nn.Module with `losses` and `parameter_groups`; its outputs are [modules, rows, outputs].

    Examples
    --------
    >>> networks = seeded(lambda: nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), seeds=range(5))
    >>> stacked = stack(networks)
    >>> optimizer = torch.optim.SGD(stacked.parameter_groups(lr=[0.1, 0.2, 0.3, 0.4, 0.5]))
    >>> outputs = stacked(torch.zeros(7, 3))
    >>> stacked.losses(outputs, torch.zeros(7, dtype=torch.long)).sum().backward()
    >>> optimizer.step()
    """
    return Stack(modules, seeds)


def seeded(make: Callable[[], nn.Module], seeds: Iterable[int]) -> list[nn.Module]:
    """A module for each seed. The random generator of the caller stays as it is.

    Parameters
    ----------
    make : callable
        Makes a module; called after `torch.manual_seed(seed)`.
    seeds : iterable of int
        One for each module.

    Returns
    -------
    list of nn.Module

    Examples
    --------
    >>> first, again, other = seeded(lambda: nn.Linear(2, 1), [3, 3, 4])
    >>> torch.equal(first.weight, again.weight), torch.equal(first.weight, other.weight)
    (True, False)
    """
    modules = []
    for seed in seeds:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(whole("seed", seed, 0, (1 << 63) - 1))
            modules.append(make())
    return modules


class Stack(Numbered):
    """What `stack` gives: the modules by number, and a `forward` that runs all of them in one call.

    Parameters are stacked anew in each call, which costs one copy of them, so that each module keeps parameters of its
    own: any optimiser of torch works, with settings for each module, and modules can be dropped or used alone.
    """

    def __init__(self, modules: Iterable[nn.Module], seeds: Sequence[int] | None = None) -> None:
        found = _checked_modules(modules)
        numbers = list(range(len(found)) if seeds is None else seeds)
        if len(numbers) != len(found):
            raise UserError(f"give one seed for each of {len(found)} modules; got {len(numbers)}")
        super().__init__(found, [whole("a seed", seed, 0, (1 << 63) - 1) for seed in numbers])
        self._turn = _Turn()
        self._settings: dict[str, Any] = {}  # of each module, when they were compared last
        self._compared: set[tuple[bool, ...]] = set()  # modes in which a call was compared with the modules alone

    def __getstate__(self) -> dict[str, Any]:
        """For copies, which compare anew: settings may hold code, which cannot be pickled."""
        return super().__getstate__() | {"_settings": {}}

    def forward(self, *inputs: Any, each: bool = False) -> Any:
        """All modules on the same inputs, or, with `each`, on a part for each: [modules, rows, ...].

        Gives what the modules give, with one more dimension in front: one entry for each module, as in `active`.
        """
        if each:
            _check_parts(inputs, len(self))
        networks = list(self.networks.values())
        modes = [[part.training for part in network.modules()] for network in networks]
        if any(mode != modes[0] for mode in modes):
            raise UserError("some modules are in training mode and others are not: call train() or eval() of the stack")
        self._follow()
        mode = modes[0]
        if tuple(mode) not in self._compared:
            compare(self._base[0], networks, list(self.draws.values()), lambda: self._call(inputs, each, mode)[0],
                    [SingleCall(k, networks[k], [x[k] for x in inputs] if each else inputs)
                     for k in sorted({0, len(networks) - 1})])  # fmt: skip
            self._compared.add(tuple(mode))
        outputs, buffers = self._call(inputs, each, mode)
        self._keep_buffers(networks, buffers)
        return outputs

    def _follow(self) -> None:
        """Run the modules as they are now: settings, layers and ties may have been changed since the last call."""
        settings = {number: _changeable(network) for number, network in self.networks.items()}
        if any(settings[number] != self._settings.get(number) for number in settings):
            networks = _checked_modules(self.networks.values())
            # In a tuple, so that it is no submodule: it has the code, and no numbers of its own.
            self._base = (_WithBuffers(_with_own_dropout(_without_numbers(networks[0]), self._turn)),)
            self._compared = set()
        self._settings = settings

    def _call(self, inputs: Sequence[Any], each: bool, mode: list[bool]) -> tuple[Any, dict[str, Tensor]]:
        """Outputs of all modules, and their buffers afterwards."""
        base, networks = self._base[0], list(self.networks.values())
        for part, training in zip(base.module.modules(), mode, strict=True):
            part.training = training
        parameters = _stacked([dict(network.named_parameters()) for network in networks])
        buffers = _stacked([dict(network.named_buffers()) for network in networks])
        places = torch.arange(len(networks))
        self._turn.draws = list(self.draws.values())

        def one(state: dict[str, Tensor], place: Tensor, *inputs: Any) -> Any:
            self._turn.place = place
            return functional_call(base, state, inputs)

        state = {f"module.{name}": value for name, value in (parameters | buffers).items()}
        try:
            return vmap(one, in_dims=(0, 0, *([0 if each else None] * len(inputs))))(state, places, *inputs)
        except (RuntimeError, ValueError) as error:
            raise _explained(error) from error
        except SystemExit as error:
            raise exits(error) from error
        finally:
            self._turn.place = None

    def _keep_buffers(self, networks: list[nn.Module], buffers: dict[str, Tensor]) -> None:
        """Running means and the like, which a call in training changes."""
        if self.training:
            with torch.no_grad():
                for k, network in enumerate(networks):
                    for name, buffer in network.named_buffers():
                        buffer.copy_(buffers[name][k])

    def losses(self, outputs: Tensor, target: Tensor, loss: Loss = functional.cross_entropy) -> Tensor:
        """The loss of each module for the same target, [modules]. For other losses or targets write your own."""
        return torch.stack([loss(own, target) for own in outputs])

    def parameter_groups(self, **settings: float | Sequence[float]) -> list[dict[str, Any]]:
        """For an optimiser of torch, a group for each module. A setting is one value, or one for each module.

        >>> stacked = stack([nn.Linear(2, 1), nn.Linear(2, 1)])
        >>> [group["lr"] for group in stacked.parameter_groups(lr=[0.1, 0.2], weight_decay=0.01)]
        [0.1, 0.2]
        """
        values = {name: self._per_network(name, value) for name, value in settings.items()}
        return [
            {"params": list(network.parameters()), **{name: value[k] for name, value in values.items()}}
            for k, network in enumerate(self.networks.values())
        ]

    def _per_network(self, name: str, value: Any) -> list[Any]:
        if hasattr(value, "tolist"):  # an array or a tensor
            value = value.tolist()
        if not isinstance(value, (list, range)):  # a tuple is one value, such as the betas of Adam
            return [value] * len(self)
        if len(value) != len(self):
            raise UserError(
                f"{name} must be one value, or a list of {len(self)}, one for each module; got {len(value)}"
            )
        return list(value)

    def extract(self, number: int) -> nn.Module:
        """A copy of one module; `network(number)` is the module itself."""
        return copy.deepcopy(self.network(number))

    def extra_repr(self) -> str:
        return f"{len(self)} modules of one architecture"


class _Turn:
    """Which module of a stack a call is for, and the random numbers of all: what dropout inside of vmap needs."""

    place: Tensor | None = None
    draws: list[torch.Generator] = []  # noqa: RUF012


class _WithBuffers(nn.Module):
    """A module whose buffers are outputs too, as they are after the call: changed in place, or replaced."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *inputs: Any) -> tuple[Any, dict[str, Tensor]]:
        outputs = self.module(*inputs)
        return outputs, dict(self.module.named_buffers())


class _OwnDropout(nn.Module):
    """`nn.Dropout` in a stack: each module drops by its own random numbers, whatever the others do."""

    def __init__(self, dropout: float, turn: _Turn) -> None:
        super().__init__()
        self.dropout, self.turn = dropout, turn

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.dropout == 0:
            return x
        return x * _Kept.apply(self.turn.place, x.detach(), self.dropout, self.turn.draws)


class _Kept(torch.autograd.Function):
    """What dropout multiplies with, for all modules at once. Only vmap calls it, since `place` differs by module."""

    @staticmethod
    def forward(place: Tensor, x: Tensor, dropout: float, draws: list[torch.Generator]) -> Tensor:
        raise NotImplementedError

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(output)

    @staticmethod
    def vmap(
        info: Any, in_dims: Any, place: Tensor, x: Tensor, dropout: float, draws: list[torch.Generator]
    ) -> tuple[Tensor, int]:
        shape = x.shape if in_dims[1] is None else x.movedim(in_dims[1], 0).shape[1:]
        return torch.stack([keep_factors(own, shape, dropout, x) for own in draws]), 0


def _with_own_dropout(module: nn.Module, turn: _Turn) -> nn.Module:
    """The same module; a dropout layer that it has in several places is one layer afterwards too."""
    made: dict[nn.Module | None, nn.Module] = {
        part: _OwnDropout(part.p, turn) for part in module.modules() if type(part) is nn.Dropout
    }
    for part in list(module.modules()):
        for name, child in part._modules.items():  # named_children would name a layer once
            if child in made:
                part._modules[name] = made[child]
    return made.get(module, module)


def _stacked(states: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.stack([state[name] for state in states]) for name in states[0]}


def _without_numbers(module: nn.Module) -> nn.Module:
    """A copy on the device "meta". `to` copies a tied tensor once for each of its names; here it is tied again."""
    base = copy.deepcopy(module)
    first_names = _first_names(base)
    base.to("meta")
    for name, first in first_names.items():
        if name != first:
            owner, _, own = name.rpartition(".")
            holder = base.get_submodule(owner)
            kept = holder._parameters if own in holder._parameters else holder._buffers
            kept[own] = _tensors(base)[first]  # type: ignore[assignment]
    return base


def _check_parts(inputs: Sequence[Any], count: int) -> None:
    for x in inputs:
        if not isinstance(x, Tensor) or not x.ndim or len(x) != count:
            got = list(x.shape) if isinstance(x, Tensor) else shown(x)
            raise UserError(f"with each=True an input is a tensor with a part for each of {count} modules; got {got}")


def _explained(error: RuntimeError | ValueError) -> Exception:
    """An error of vmap in words; any other as it is, such as one of shapes that do not fit."""
    text = str(error)
    if "must only return Tensors" in text:
        return UserError(f"the modules of a stack must return tensors: {text.splitlines()[0]}")
    if "random" in text and "vmap" in text:
        return UserError(
            "a stack knows the random numbers of nn.Dropout only, and this module draws others; "
            "use nn.Dropout, call eval(), or train the modules one after the other"
        )
    if "vmap" in text or "functorch" in text or "Batching rule" in text:
        return UserError(
            f"this module cannot run in a stack, since torch.func.vmap refuses it: {text.splitlines()[0]}; {ALONE}"
        )
    return error


# ---- are these modules of one architecture? ----


def _checked_modules(modules: Any) -> list[nn.Module]:
    if isinstance(modules, nn.Module) and not isinstance(modules, nn.ModuleList):
        raise WrongType(f"modules must be a list of them; put the single one into a list; got a {_kind(modules)}")
    if not isinstance(modules, Iterable):
        raise WrongType(f"modules must be a list of torch.nn.Module; got {shown(modules)}")
    found = list(modules)
    if not found:
        raise UserError("a stack needs at least one module; got none")
    for k, module in enumerate(found):
        if not isinstance(module, nn.Module):
            raise WrongType(f"modules must be torch.nn.Module; number {k} is {shown(module)}")
    for part in (part for module in found for part in module.modules()):
        refuse_unstackable(part)
    if any(nn.parameter.is_lazy(one) for module in found for one in _tensors(module).values()):
        raise UserError("a lazy module has no shapes yet: run each module once before it is stacked")
    owners: dict[int, int] = {}
    for k, module in enumerate(found):
        for one in [module, *_tensors(module).values()]:
            if owners.setdefault(id(one), k) != k:
                raise UserError(f"modules {owners[id(one)]} and {k} share parts: give each its own parameters")
    for k, module in enumerate(found[1:], 1):
        difference = _difference(found[0], module)
        if difference:
            raise UserError(f"a stack is of one architecture, but modules 0 and {k} differ: {difference}")
    return found


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    """By all of their names: those of tied ones must agree as well."""
    return dict(chain(module.named_parameters(remove_duplicate=False), module.named_buffers(remove_duplicate=False)))


def _difference(one: nn.Module, other: nn.Module) -> str:
    """The first difference of two modules, in words; empty if they have the same code, shapes and settings."""
    ours, theirs = dict(one.named_modules()), dict(other.named_modules())
    for name in [*ours, *(name for name in theirs if name not in ours)]:
        kinds = [_kind(parts[name]) if name in parts else "missing" for parts in (ours, theirs)]
        where = f"{name!r} is " if name else "they are "
        if kinds[0] != kinds[1] or type_before_parametrizations(ours[name]) is not type_before_parametrizations(
            theirs[name]
        ):
            return f"{where}{kinds[0]} and {kinds[1]}"
        settings, others = _settings(ours[name]), _settings(theirs[name])
        for key in settings | others:
            if key not in settings or key not in others or settings[key] != others[key]:
                place = f"{name}.{key}" if name else key
                values = [_worded(vars(parts[name]).get(key, "missing")) for parts in (ours, theirs)]
                return f"{place!r} is {values[0]} and {values[1]}" + ", of other values" * (values[0] == values[1])
    shapes, other_shapes = ({name: _described(t) for name, t in _tensors(m).items()} for m in (one, other))
    for name in [*shapes, *(name for name in other_shapes if name not in shapes)]:
        if shapes.get(name) != other_shapes.get(name):
            return f"{name!r} is {shapes.get(name, 'missing')} and {other_shapes.get(name, 'missing')}"
    for name, first in _first_names(one).items():
        if first != (other_first := _first_names(other)[name]):
            tied = [f"tied to {other!r}" if other != name else "not tied" for other in (first, other_first)]
            return f"{name!r} is {tied[0]} and {tied[1]}"
    return ""


def _first_names(module: nn.Module) -> dict[str, str]:
    """The first name of each tensor, by all names that it has."""
    tensors = _tensors(module)
    first: dict[int, str] = {}
    for name, tensor in tensors.items():
        first.setdefault(id(tensor), name)
    return {name: first[id(tensor)] for name, tensor in tensors.items()}


def _described(tensor: Tensor) -> str:
    return f"{list(tensor.shape)} of {str(tensor.dtype).removeprefix('torch.')} on {tensor.device}"


def _settings(module: nn.Module, of_tensor: Callable[[Any], Any] = Tensor.tolist) -> dict[str, Any]:
    """What the module keeps beside parameters and parts: a stride, an activation that is a function, hooks."""
    kept = {name: value for name, value in vars(module).items() if name not in _OF_EVERY_MODULE}
    kept |= {name: list(hooks.values()) for name in _HOOKS if (hooks := vars(module)[name])}
    return {name: one if type(one) in _QUICK else _comparable(one, of_tensor) for name, one in kept.items()}


def _changeable(network: nn.Module) -> list[Any]:
    """Equal as long as a module has the same code, settings and ties; values of parameters and buffers do not count."""
    return [
        (type(part), _settings(part, _version), [*map(id, part._parameters.values())]) for part in network.modules()
    ]


def _version(tensor: Any) -> Any:
    """Which tensor, and how often it was changed in place: quicker than its values."""
    return (id(tensor), tensor._version) if isinstance(tensor, Tensor) else tensor.tolist()


def _comparable(value: Any, of_tensor: Callable[[Any], Any] = Tensor.tolist, seen: tuple[int, ...] = ()) -> Any:
    """Something that is equal where values are: an object is its class and its attributes."""
    if type(value) in _QUICK:
        return value
    if id(value) in seen:
        return type(value)
    inner = partial(_comparable, of_tensor=of_tensor, seen=(*seen, id(value)))
    if isinstance(value, (nn.Parameter, nn.Module)):  # also in a list of the module's own
        return type(value)
    if isinstance(value, Tensor):
        return of_tensor(value)
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if isinstance(value, dict):
        return {key: inner(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [inner(one) for one in value]
    if isinstance(value, partial):
        return [inner(one) for one in (value.func, value.args, value.keywords)]
    if isfunction(value):  # of two modules that make a function each, one with the same code and settings
        kept = [cell.cell_contents for cell in value.__closure__ or ()]
        kept += [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
        return value.__code__, [inner(one) for one in kept]
    if ismethod(value):
        return value.__func__
    if isinstance(value, (*_PLAIN, type, Enum)) or isbuiltin(value):
        return value
    return type(value), inner(vars(value)) if hasattr(value, "__dict__") else None


_PLAIN = (bool, int, float, complex, str, bytes, torch.dtype, torch.device, range, set, frozenset, Number)
_QUICK = frozenset({*_PLAIN, type(None)})
_HOOKS = [name for name in vars(nn.Module()) if name.endswith("_hooks") and "state_dict" not in name]
_OF_EVERY_MODULE = frozenset(vars(nn.Module()))


def _worded(value: Any) -> str:
    return str(value.__name__) if isroutine(value) else shown(value)


def _kind(module: nn.Module) -> str:
    return type(module).__name__
