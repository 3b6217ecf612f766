"""The interface of engines, their registry, and the choice of an engine.

An engine is stateless arithmetic. `train` trains the members in `which` up to the epoch counts in `until`, writes
losses and scores to `log`, and leaves every member of `state` at the end of an epoch, also after an error.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Protocol

import numpy as np

from shoal.errors import MissingPackage, UserError
from shoal.machine import instruction_set
from shoal.population.engines.program import Assignment, Data, Program, Resources, Selection, Training
from shoal.validate import nearest, one_of


class Engine(Protocol):
    name: str

    def train(self, training: Training) -> bool:
        """Train. Returns whether all members reached their epochs (False: stopped by `progress`)."""
        ...

    def predict(self, selection: Selection, X: np.ndarray, out: np.ndarray) -> None:
        """Fill out[k] of shape (n_rows, n_outputs) with the raw outputs of member which[k]."""
        ...

    def evaluate(self, selection: Selection, data: Data) -> tuple[np.ndarray, np.ndarray]:
        """Mean loss, and accuracy (cross_entropy, bce) or R2 (mse), of each member over all rows of `data`."""
        ...

    def workspace(self, program: Program, rows: Assignment, resources: Resources) -> int:
        """Bytes that `train` will need beyond the population's own buffers and the data."""
        ...


# name -> (module, class): torch is imported only when one of its engines is used.
DEVICES = ("cpu", "cuda", "mps")
REGISTRY = {
    "native": ("shoal.population.engines.native", "NativeEngine"),
    "grouped": ("shoal.population.engines.torch_engine", "GroupedEngine"),
}


def get_engine(name: str, device: str = "cpu") -> Engine:
    """The engine of that name; "auto" is native on the CPU and grouped on a GPU."""
    if name == "auto":
        name = "native" if device == "cpu" else "grouped"
    if name not in REGISTRY:
        raise UserError(f"engine must be auto, {', '.join(REGISTRY)}; got {name!r}{nearest(name, REGISTRY)}")
    if name == "native" and device != "cpu":
        raise UserError(f"the native engine runs on the cpu, not on {device!r}; use engine='grouped' or 'auto'")
    if name == "native":
        instruction_set()  # a name in SHOAL_ISA that this machine does not have
    if device != "cpu":
        _check_device(device)
    module, attribute = REGISTRY[name]
    try:
        engine: Engine = getattr(importlib.import_module(module), attribute)()
    except ModuleNotFoundError as missing:
        if missing.name != "torch":
            raise
        raise MissingPackage(f"engine {name!r} needs PyTorch: pip install 'shoal-ml[torch]'", name="torch") from None
    return engine


def _check_device(device: str) -> None:
    """Raise unless PyTorch is installed and has such a device."""
    kind = one_of("device", str(device).partition(":")[0], DEVICES)
    if importlib.util.find_spec("torch") is None:
        raise MissingPackage(f"device {device!r} needs PyTorch: pip install 'shoal-ml[torch]'", name="torch")
    import torch

    there = torch.cuda.is_available() if kind == "cuda" else torch.backends.mps.is_available()
    if not there:
        raise UserError(f"PyTorch finds no device {device!r} here; use device='cpu'")


def available_engines() -> dict[str, str]:
    """Each engine with "yes" or the reason why it cannot run here."""
    found = {}
    for name in REGISTRY:
        try:
            get_engine(name)
            found[name] = "yes"
        except ImportError as error:
            found[name] = str(error)
    return found
