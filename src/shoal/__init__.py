"""Shoal: train thousands of neural networks as one."""

from __future__ import annotations

import importlib
from typing import Any

from shoal.console import early

early.listen()  # before numpy is loaded

from shoal.population import rows  # noqa: E402, F401
from shoal.population.members import ACTIVATIONS, Member, grid, sample  # noqa: E402
from shoal.population.population import Population  # noqa: E402
from shoal.version import __version__  # noqa: E402, F401

__all__ = [
    "ACTIVATIONS", "FeatureSelector", "Member", "Population", "ProgressBar", "ShoalClassifier", "ShoalForestClassifier",
    "ShoalForestRegressor", "ShoalRegressor", "grid", "load", "sample", "save",
]  # fmt: skip

# Loaded when first asked for: they need PyTorch or scikit-learn. Modules are not in `__all__`: `from shoal import *`
# must not hide the user's own `torch`.
_LAZY_MODULES = ("parallel", "planner", "plots", "torch")
_LAZY = {
    "FeatureSelector": "shoal.tools.selection",
    "ProgressBar": "shoal.console.progress",
    "ShoalClassifier": "shoal.search.estimators",
    "ShoalForestClassifier": "shoal.tools.forest",
    "ShoalForestRegressor": "shoal.tools.forest",
    "ShoalRegressor": "shoal.search.estimators",
    "load": "shoal.models.saving",
    "save": "shoal.models.saving",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    if name in _LAZY_MODULES:
        return importlib.import_module(f"shoal.{name}")
    raise AttributeError(f"module 'shoal' has no attribute {name!r}")
