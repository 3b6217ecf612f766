"""PyTorch, loaded when it is first used, so that options are checked and `--help` is shown without it.

Modules that a strategy imports take `torch` and `nn` from here. One rule follows: they use them inside functions only,
never in a base class, a default value or a constant of the module. Annotations are not evaluated and may name both.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from shoal.errors import MissingPackage


class LazyModule:
    """Imports the module when an attribute is asked for.

    >>> LazyModule("fractions").Fraction(1, 2)
    Fraction(1, 2)
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._module: Any = None

    def __getattr__(self, attribute: str) -> Any:
        if self._module is None:
            try:
                self._module = import_module(self._name)
            except ModuleNotFoundError as error:
                if error.name != "torch":
                    raise
                raise MissingPackage("shoal.parallel needs PyTorch: pip install 'shoal-ml[torch]'") from None
        return getattr(self._module, attribute)


if TYPE_CHECKING:
    import torch as torch
    from torch import nn as nn
else:
    torch, nn = LazyModule("torch"), LazyModule("torch.nn")
