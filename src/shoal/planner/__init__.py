"""Predicts the cost and accuracy of a training on n nodes, and whether it pays.

from shoal import planner
found = planner.plan(model, train_set, test_set, nodes=(1, 2, 4, 8), link="1gbit,0.1ms", epochs=10)
print(found)               # the verdict, in a sentence
found.row("allreduce", 4)  # seconds, speed-up, efficiency, accuracy, ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.planner.planning import Plan as Plan
    from shoal.planner.planning import Row as Row
    from shoal.planner.planning import plan as plan

from shoal.errors import MissingPackage

__all__ = ["Plan", "Row", "plan"]


def __getattr__(name: str) -> Any:
    """Names that need PyTorch are loaded when they are first used."""
    if name not in __all__:
        raise AttributeError(f"module 'shoal.planner' has no attribute {name!r}")
    from importlib import import_module

    try:
        module = import_module("shoal.planner.planning")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingPackage("shoal.planner needs PyTorch: pip install 'shoal-ml[torch]'") from None
    return getattr(module, name)
