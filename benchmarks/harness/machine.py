"""The machine a benchmark ran on: what it is, and what its matrix product reaches."""

from __future__ import annotations

import datetime
import importlib
import importlib.metadata
import importlib.util
import os
import platform
import time
from typing import Any

from shoal.errors import MissingPackage
from shoal.machine import instruction_set, processor, thread_count
from shoal.version import __version__

EXTRAS = {"torch": "bench", "matplotlib": "bench", "jax": "jax"}


def require(*modules: str) -> None:
    """Raise one clear sentence if a module that a benchmark needs is not installed."""
    for module in modules:
        if not installed(module):
            extra = EXTRAS[module]
            raise MissingPackage(f"this benchmark needs {module}: pip install '.[{extra}]'", name=module)


class Lazy:
    """A module that is imported when something in it is first asked for."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._module), name)


def installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def describe() -> dict[str, Any]:
    """Facts that numbers are worth nothing without. No paths, no names of machines or people."""
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "cpu": processor(),
        "cores": thread_count(),
        "instruction_set": instruction_set(),
        "system": f"{platform.system()} {platform.machine()}",
        "load_average_before": load_average(),
        "versions": {
            "python": platform.python_version(),
            "shoal": __version__,
            **{name: version(name) for name in ("numpy", "scikit-learn", "torch", "jax", "mapie")},
        },
    }


def load_average() -> list[float]:
    """Busy cores over the last 1, 5 and 15 minutes; empty where the system does not say."""
    return [round(value, 2) for value in os.getloadavg()] if hasattr(os, "getloadavg") else []


def version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


class MatrixProduct:
    """torch's own product of two square matrices: the peak that every share is a share of."""

    def __init__(self, threads: int, size: int = 2048) -> None:
        import torch

        self.threads, self.size = threads, size
        self.left, self.right = torch.randn(size, size), torch.randn(size, size)
        self.out = torch.empty(size, size)
        self.best = float("inf")  # seconds

    def __call__(self) -> None:
        import torch

        before = torch.get_num_threads()
        torch.set_num_threads(self.threads)
        try:
            begun = time.perf_counter()
            torch.mm(self.left, self.right, out=self.out)
            self.best = min(self.best, time.perf_counter() - begun)
        finally:
            torch.set_num_threads(before)

    @property
    def gflops(self) -> float:
        """The best of all calls so far."""
        return 2.0 * self.size**3 / self.best / 1e9

    def as_dict(self) -> dict[str, Any]:
        return {"gflops": self.gflops, "threads": self.threads, "size": self.size, "library": "torch.mm"}
