"""Checks what a stack can run: refuses some layers at once, and compares its first call with the modules alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from shoal.errors import UserError

ALONE = "train the modules one after the other"
APART = 0.1  # relative distance of gradients: rounding may turn a rectifier on or off, a wrong weight does more


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


def compare(networks: list[nn.Module], stacked: Callable[[], Any], inputs: Sequence[Any], each: bool) -> None:
    """Refuse modules that do not compute in a stack what they compute alone, first and last of them, in evaluation.

    Outputs are compared, and the gradients of their sum: a wrong result must never be handed out. Buffers and random
    numbers are as before afterwards, and torch's fast path of attention, which has no gradients, is off meanwhile.
    """
    modes = [[part.training for part in network.modules()] for network in networks]
    buffers = [(part, name, buffer, buffer.clone()) for k in {0, len(networks) - 1} for part in networks[k].modules()
               for name, buffer in part._buffers.items() if buffer is not None]  # fmt: skip
    state, fast = torch.get_rng_state(), torch.backends.mha.get_fastpath_enabled()
    try:
        torch.backends.mha.set_fastpath_enabled(False)
        for network in networks:
            network.eval()
        with torch.enable_grad():
            together = stacked()
            for k in {0, len(networks) - 1}:
                own = networks[k](*[x[k] for x in inputs] if each else inputs)
                _compare_one(k, networks[k], _tensors(together, k), _tensors(own))
    finally:
        torch.set_rng_state(state)
        torch.backends.mha.set_fastpath_enabled(fast)
        with torch.no_grad():
            for part, name, buffer, before in buffers:
                part._buffers[name] = buffer.copy_(before)
        for network, mode in zip(networks, modes, strict=True):
            for part, training in zip(network.modules(), mode, strict=True):
                part.training = training


def _compare_one(k: int, network: nn.Module, together: list[Tensor], own: list[Tensor]) -> None:
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    same = len(together) == len(own) and all(map(_close, together, own))
    if same and trained and any(one.requires_grad for one in own):
        grads = [torch.autograd.grad(_total(outputs), trained, retain_graph=True, allow_unused=True)
                 if any(one.requires_grad for one in outputs) else [None] * len(trained)
                 for outputs in (together, own)]  # fmt: skip
        same = all(map(_near, *grads))
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


def _near(one: Tensor | None, other: Tensor | None) -> bool:
    if one is None or other is None:
        return all(grad is None or not grad.any() for grad in (one, other))
    if not bool(other.isfinite().all()):
        return True
    return float((one - other).norm()) <= APART * float(other.norm()) + 1e-6
