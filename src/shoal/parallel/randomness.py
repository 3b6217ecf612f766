"""Random numbers that belong to a shard, not to whoever computes it.

Layers such as dropout draw from one generator of the process. Before a shard is computed that generator is set by the
shard's own key; where several threads share the process, each gets a generator of its own instead.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

LIKE = {torch.ops.aten.rand_like: "uniform_", torch.ops.aten.randn_like: "normal_"}
LENDING = threading.Lock()


class OwnGenerator(TorchDispatchMode):
    """Operations that would draw from the process's generator draw from this one; for the present thread only."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self.generator = generator

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        named = [argument.name for argument in func._schema.arguments]
        if "generator" in named and kwargs.get("generator") is None and len(args) <= named.index("generator"):
            kwargs["generator"] = self.generator
        elif torch.Tag.nondeterministic_seeded in func.tags and "generator" not in named:
            return self._otherwise(func, args, kwargs)
        return func(*args, **kwargs)

    def _otherwise(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Operations that take no generator: by their sister that does, by hand, or with the process's, lent."""
        packet, name = func.overloadpacket, func._overloadname
        sister = "generator" if name == "default" else f"{name}_generator"
        if sister in packet.overloads():
            return getattr(packet, sister)(*args, generator=self.generator, **kwargs)
        if packet in LIKE:
            return getattr(torch.empty_like(args[0], **kwargs), LIKE[packet])(generator=self.generator)
        with LENDING:
            before = torch.get_rng_state()
            torch.set_rng_state(self.generator.get_state())
            try:
                return func(*args, **kwargs)
            finally:
                self.generator.set_state(torch.get_rng_state())
                torch.set_rng_state(before)


@contextmanager
def keyed(key: int, threaded: bool) -> Iterator[None]:
    """Random numbers drawn within come from this key."""
    if threaded:
        with OwnGenerator(torch.Generator().manual_seed(key)):
            yield
    else:
        torch.manual_seed(key)
        yield


def draws_random_numbers(model: torch.nn.Module, inputs: Any) -> bool:
    """Whether a forward pass in training draws any; found by trying, on a copy, with a generator for the trial."""
    import copy

    trial = copy.deepcopy(model).train()
    own = torch.Generator().manual_seed(0)
    before = own.get_state()
    with torch.no_grad(), OwnGenerator(own):
        trial(inputs)
    return not torch.equal(before, own.get_state()) or _on_accelerator(model)


def _on_accelerator(model: torch.nn.Module) -> bool:
    """Generators of other devices are not looked at: the answer there is a cautious yes."""
    return any(parameter.device.type != "cpu" for parameter in model.parameters())


@contextmanager
def torch_as_it_was() -> Iterator[None]:
    """The caller's threads, generator and switches are the same afterwards."""
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    deterministic = torch.are_deterministic_algorithms_enabled()
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_rng_state(state)
        torch.use_deterministic_algorithms(deterministic)
