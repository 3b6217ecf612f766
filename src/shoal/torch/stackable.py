"""Checks what a stack can run: refuses some layers at once, and compares its calls with the modules alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from shoal.errors import UserError

ALONE = "train the modules one after the other"
APART = 0.1  # relative distance of gradients: rounding may turn a rectifier on or off, a wrong weight does more
ROUNDING = 1e-4  # of the largest gradient of a module


def refuse_unstackable(part: nn.Module) -> None:
    """Refuse a layer for which torch.func has no rule, or whose weights it would not see."""
    kind = type(part).__name__
    if isinstance(part, nn.RNNBase):
        raise UserError(f"nn.{kind} cannot run in a stack, since torch.func.vmap has no rule for it; {ALONE}")
    if isinstance(part, (nn.Embedding, nn.EmbeddingBag)) and part.sparse:
        raise UserError(f"nn.{kind}(sparse=True) cannot be trained in a stack; give sparse=False, for the same result")
    computed = [name for name, value in vars(part).items() if isinstance(value, Tensor)
                and (value.grad_fn is not None or part._forward_pre_hooks)]  # fmt: skip
    if computed:
        raise UserError(
            f"{computed[0]!r} of an nn.{kind} is computed by a hook before each call, as torch.nn.utils.weight_norm "
            "and spectral_norm do, and a stack cannot do that; use those of torch.nn.utils.parametrizations"
        )


@dataclass(frozen=True)
class SingleCall:
    """A module of a stack and its inputs, to be run without the stack."""

    number: int
    network: nn.Module
    inputs: Sequence[Any]


def compare(
    base: nn.Module, networks: list[nn.Module], draws: list[torch.Generator], stacked: Callable[[], Any],
    alone: Sequence[SingleCall],
) -> None:  # fmt: skip
    """Refuse modules that do not compute in a stack what they compute alone, in the mode that they are in.

    Outputs are compared, and the gradients of their sum: a wrong result must never be handed out. Everything is as
    before afterwards, and torch's fast path of attention, which has no gradients, is off meanwhile.

    base  the code that runs for all of them
    """
    parts = [part for one in alone for part in one.network.modules()]
    if _drops_elsewhere(alone[0].network):
        return
    states, others = [own.get_state() for own in draws], _other_random_numbers()
    with _as_they_were(parts, list(base.modules()), draws), torch.enable_grad():
        together = stacked()
        if _other_random_numbers() != others:
            raise UserError(
                f"a module of the stack draws random numbers of Python or NumPy; use nn.Dropout, or {ALONE}"
            )
        _refuse_kept(base)
        for one in alone:
            before = _versions(one.network)
            torch.set_rng_state(states[one.number])
            try:
                own = one.network(*one.inputs)
            except SystemExit as error:
                raise exits(error) from error
            changed = [name for name, version in _versions(one.network).items() if before.get(name) != version]
            if changed:
                raise UserError(f"forward() changes the parameter {changed[0]!r}, which a stack cannot keep; {ALONE}")
            _compare_one(one.number, one.network, _tensors(together, one.number), _tensors(own))


def exits(error: SystemExit) -> UserError:
    code = "" if error.code is None else repr(error.code)
    return UserError(f"a module of the stack calls sys.exit({code}); let it raise an error instead")


def _drops_elsewhere(network: nn.Module) -> bool:
    """Whether dropout, which is on, draws other numbers alone than in a stack: on a CPU the same."""
    on = any(isinstance(part, nn.Dropout) and part.training and part.p > 0 for part in network.modules())
    return on and any(parameter.device.type != "cpu" for parameter in network.parameters())


def _versions(network: nn.Module) -> dict[str, int]:
    """How often each parameter was changed in place."""
    return {name: parameter._version for name, parameter in network.named_parameters()}


def _refuse_kept(base: nn.Module) -> None:
    """A tensor of all modules that forward() leaves in an attribute would be lost: no module gets its part."""
    for part in base.modules():
        for name, value in vars(part).items():
            if isinstance(value, Tensor) and torch._C._functorch.is_functorch_wrapped_tensor(value):
                raise UserError(
                    f"forward() of an {type(part).__name__} keeps a tensor in {name!r}, which a stack cannot; "
                    f"make it a buffer with register_buffer, or {ALONE}"
                )


def _other_random_numbers() -> str:
    """The states of generators that a stack knows nothing of."""
    state = np.random.get_state(legacy=False)["state"]
    return repr((random.getstate(), state["key"].tolist(), state["pos"]))


@contextmanager
def _as_they_were(parts: list[nn.Module], code: list[nn.Module], draws: list[torch.Generator]) -> Iterator[None]:
    """Undo what calls inside do to these parts, to attributes of those without numbers, and to random numbers."""
    attributes = [(vars(part), dict(vars(part)), part._buffers, dict(part._buffers)) for part in (*parts, *code)]
    parameters = [(one, one._version, one.detach().clone()) for part in parts
                  for one in part._parameters.values() if one is not None]  # fmt: skip
    values = [(one, one.clone()) for part in parts for one in part._buffers.values() if one is not None]
    states, state, fast = [own.get_state() for own in draws], torch.get_rng_state(), _fast_path()
    numbers = random.getstate(), np.random.get_state()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        torch.set_rng_state(state)
        random.setstate(numbers[0])
        np.random.set_state(numbers[1])
        for own, its in zip(draws, states, strict=True):
            own.set_state(its)
        for place, before, buffers, their in attributes:
            place.clear()
            place.update(before)
            buffers.clear()
            buffers.update(their)
        with torch.no_grad():
            for parameter, version, its_values in parameters:
                if parameter._version != version:  # writing to it would end the gradients of earlier calls
                    parameter.copy_(its_values)
            for buffer, its_values in values:
                buffer.copy_(its_values)


def _fast_path() -> bool:
    return bool(torch.backends.mha.get_fastpath_enabled())


def _compare_one(k: int, network: nn.Module, together: list[Tensor], own: list[Tensor]) -> None:
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    same = len(together) == len(own) and all(map(_close, together, own))
    if same and trained and any(one.requires_grad for one in own):
        try:
            grads = [torch.autograd.grad(_total(outputs), trained, retain_graph=True, allow_unused=True)
                     if any(one.requires_grad for one in outputs) else [None] * len(trained)
                     for outputs in (together, own)]  # fmt: skip
        except RuntimeError as error:  # such as of torch.utils.checkpoint, which calls forward() again
            reason = str(error).partition("\n")[0]
            raise UserError(f"module {k} cannot be trained in a stack ({reason}); {ALONE}") from error
        largest = max((float(one.norm()) for one in grads[1] if one is not None), default=0.0)
        same = all(_near(one, other, largest) for one, other in zip(*grads, strict=True))
    if not same:
        raise UserError(f"module {k} does not compute in a stack what it computes alone; {ALONE}")


def _tensors(outputs: Any, k: int | None = None) -> list[Tensor]:
    leaves = [leaf for leaf in tree_leaves(outputs) if isinstance(leaf, Tensor)]
    return leaves if k is None else [leaf[k] for leaf in leaves]


def _total(outputs: list[Tensor]) -> Tensor:
    """A number that depends on every output, and not on all in the same way."""
    parts = [one for one in outputs if one.requires_grad]
    return torch.stack([(one * torch.linspace(1, 2, one.numel(), device=one.device).view_as(one).to(one.dtype)).sum()
                        .float() for one in parts]).sum()  # fmt: skip


def _close(one: Tensor, other: Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype or one.device != other.device:
        return False
    if not one.is_floating_point():
        return True
    allowed = torch.finfo(one.dtype).eps ** 0.5
    one, other = one.detach(), other.detach()
    finite = other[other.isfinite()]
    size = float(finite.abs().max()) if finite.numel() else 0.0
    return torch.allclose(one, other, rtol=allowed, atol=allowed * size, equal_nan=True)


def _near(one: Tensor | None, other: Tensor | None, largest: float) -> bool:
    """Gradients that are zero, such as of a bias before a normalisation, are rounding errors of the `largest`."""
    if one is None or other is None:
        return all(grad is None or float(grad.norm()) <= ROUNDING * largest for grad in (one, other))
    if not bool(other.isfinite().all()):
        return True
    return float((one - other).norm()) <= APART * float(other.norm()) + ROUNDING * largest + 1e-6
