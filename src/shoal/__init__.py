"""Shoal: train thousands of neural networks as one."""

from __future__ import annotations

import importlib
from typing import Any

from shoal import early

early.listen()  # before numpy is loaded

from shoal import rows  # noqa: E402
from shoal.members import ACTIVATIONS, Member, grid, sample  # noqa: E402
from shoal.population import Population  # noqa: E402
from shoal.version import __version__  # noqa: E402, F401

__all__ = [
    "ACTIVATIONS", "FeatureSelector", "Member", "Population", "ShoalClassifier", "ShoalForestClassifier",
    "ShoalForestRegressor", "ShoalRegressor", "grid", "grow", "load", "lottery", "parallel", "rows", "sample", "save",
    "torch",
]  # fmt: skip

# Loaded when first asked for: they need PyTorch or scikit-learn.
_LAZY = {
    "FeatureSelector": "shoal.tools.selection",
    "ShoalClassifier": "shoal.search.estimators",
    "ShoalForestClassifier": "shoal.tools.forest",
    "ShoalForestRegressor": "shoal.tools.forest",
    "ShoalRegressor": "shoal.search.estimators",
    "grow": "shoal.tools.growing",
    "load": "shoal.search.saving",
    "lottery": "shoal.tools.random_networks",
    "save": "shoal.search.saving",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    if name in ("parallel", "torch"):
        return importlib.import_module(f"shoal.{name}")
    raise AttributeError(f"module 'shoal' has no attribute {name!r}")
