"""Modes that see every operation of a thread: random numbers of its own, and a count of floating-point operations.

This module loads PyTorch; others import it inside functions. Methods are set after their class is made: torch wraps
those that it finds in the class, and what wraps them loads its compiler when it is first called, for seconds.
"""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

LIKE = {torch.ops.aten.rand_like: "uniform_", torch.ops.aten.randn_like: "normal_"}
GENERATOR_LOCK = threading.Lock()


class OwnGenerator(TorchDispatchMode):
    """In this thread, operations that would draw from the process's generator draw from this one."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self.generator = generator

    def _drawing(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
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


class FlopCounter(TorchDispatchMode):
    """Counts the operations of matrix products and convolutions, by torch's own formulas."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def _counting(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        formula = flop_registry.get(func.overloadpacket)
        if formula is not None:
            self.total += formula(*args, **(kwargs or {}), out_val=found)
        return found


OwnGenerator.__torch_dispatch__ = OwnGenerator._drawing  # type: ignore[assignment, method-assign]
FlopCounter.__torch_dispatch__ = FlopCounter._counting  # type: ignore[assignment, method-assign]
