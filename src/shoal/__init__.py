"""Shoal: train thousands of neural networks as one."""

from __future__ import annotations

import importlib
from typing import Any

from shoal import rows
from shoal.members import ACTIVATIONS, Member, grid, sample
from shoal.population import Population

__version__ = "0.1.0"
__all__ = ["ACTIVATIONS", "Member", "Population", "grid", "rows", "sample", "torch"]


def __getattr__(name: str) -> Any:
    if name == "torch":  # needs PyTorch: loaded when first asked for
        return importlib.import_module("shoal.torch")
    raise AttributeError(f"module 'shoal' has no attribute {name!r}")
