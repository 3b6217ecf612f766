"""Random numbers that depend on the shard, not on the worker that computes it.

Layers such as dropout draw from the generator of the process. Before a shard is computed, that generator is seeded with
the shard's key; where several threads share the process, each uses a generator of its own instead.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

LIKE = {torch.ops.aten.rand_like: "uniform_", torch.ops.aten.randn_like: "normal_"}
GENERATOR_LOCK = threading.Lock()


class OwnGenerator(TorchDispatchMode):
    """In this thread, operations that would draw from the process's generator draw from this one."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self.generator = generator

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        named = [argument.name for argument in func._schema.arguments]
        if "generator" in named and kwargs.get("generator") is None and len(args) <= named.index("generator"):
            kwargs["generator"] = self.generator
        elif torch.Tag.nondeterministic_seeded in func.tags and "generator" not in named:
            return self._without_argument(func, args, kwargs)
        return func(*args, **kwargs)

    def _without_argument(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Operations without a generator argument: use an overload that has one, or a fill, or set the process's."""
        packet, name = func.overloadpacket, func._overloadname
        overload = "generator" if name == "default" else f"{name}_generator"
        if overload in packet.overloads():
            return getattr(packet, overload)(*args, generator=self.generator, **kwargs)
        if packet in LIKE:
            return getattr(torch.empty_like(args[0], **kwargs), LIKE[packet])(generator=self.generator)
        with GENERATOR_LOCK:
            before = torch.get_rng_state()
            torch.set_rng_state(self.generator.get_state())
            try:
                return func(*args, **kwargs)
            finally:
                self.generator.set_state(torch.get_rng_state())
                torch.set_rng_state(before)


def draw_weights(model: torch.nn.Module, key: int) -> None:
    """Initialise all layers anew that can do so themselves (`reset_parameters`), with random numbers of this key."""
    with torch.no_grad(), OwnGenerator(torch.Generator().manual_seed(key)):
        for module in model.modules():
            if callable(reset := getattr(module, "reset_parameters", None)):
                reset()


@contextmanager
def keyed(key: int, threaded: bool) -> Iterator[None]:
    """Random numbers drawn inside are seeded with this key."""
    if threaded:
        with OwnGenerator(torch.Generator().manual_seed(key)):
            yield
    else:
        torch.manual_seed(key)
        yield


def draws_random_numbers(model: torch.nn.Module, inputs: Any) -> bool:
    """Whether a forward pass in training draws any; tried on a copy of the model."""
    import copy

    trial = copy.deepcopy(model).train()
    own = torch.Generator().manual_seed(0)
    before = own.get_state()
    with torch.no_grad(), OwnGenerator(own):
        trial(inputs)
    return not torch.equal(before, own.get_state()) or _on_accelerator(model)


def _on_accelerator(model: torch.nn.Module) -> bool:
    """Generators of other devices are not checked: there the answer is yes, to be safe."""
    return any(parameter.device.type != "cpu" for parameter in model.parameters())


@contextmanager
def torch_as_it_was() -> Iterator[None]:
    """Restore the caller's number of threads, generator and deterministic mode afterwards."""
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    deterministic = torch.are_deterministic_algorithms_enabled()
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_rng_state(state)
        if torch.are_deterministic_algorithms_enabled() != deterministic:  # to set it takes torch a second of imports
            torch.use_deterministic_algorithms(deterministic)
