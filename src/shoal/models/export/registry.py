"""The table of exporters: the programs that a model can be written for.

A new exporter is one file beside this one, with `write` and `run`, and one line in `EXPORTERS`.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.errors import MissingPackage, UserError
from shoal.validate import nearest

if TYPE_CHECKING:
    from shoal.models.export.plan import ExportPlan


class Exporter(ABC):
    """How a model is written as a file of another program, and how such a file is run to check it.

    A custom object works in place of a name: `export_model(model, MyExporter(), path)`.
    """

    name: str
    suffix: str  # of its files, with the dot
    packages: tuple[str, ...] = ()  # that must be installed
    refused: Mapping[str, str] = {}  # kinds of columns that it cannot take, and why

    @abstractmethod
    def write(self, plan: ExportPlan, metadata: Mapping[str, Any], path: Path) -> None:
        """Write the model; `metadata` is what users of the file must know, ready for JSON."""

    @abstractmethod
    def run(self, path: Path, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
        """(n, n_outputs): what the file predicts for "numbers" (n, d) float64 and "categories" (n, c) strings."""


@dataclass(frozen=True)
class ModuleExporter(Exporter):
    """An exporter whose `write` and `run` are in the module of its name, which is loaded when it is used."""

    name: str
    suffix: str
    packages: tuple[str, ...]
    refused: Mapping[str, str] = field(default_factory=dict)

    def write(self, plan: ExportPlan, metadata: Mapping[str, Any], path: Path) -> None:
        self._module.write(plan, metadata, path)

    def run(self, path: Path, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
        return np.asarray(self._module.run(path, inputs))

    @property
    def _module(self) -> Any:
        return importlib.import_module(f"shoal.models.export.{self.name}")


EXPORTERS: dict[str, Exporter] = {
    "torch": ModuleExporter("torch", ".pt2", ("torch",)),
    "onnx": ModuleExporter("onnx", ".onnx", ("onnx", "onnxruntime")),
}


def find_exporter(to: str | Exporter) -> Exporter:
    """The exporter of this name, or the one that is given."""
    if isinstance(to, Exporter):
        return to
    if not isinstance(to, str) or to not in EXPORTERS:
        hint = nearest(to, tuple(EXPORTERS)) if isinstance(to, str) else ": give a name or an Exporter object"
        raise UserError(f"a model is exported to {' or '.join(EXPORTERS)}; got {to!r}{hint}")
    return EXPORTERS[to]


def describe_exporters() -> str:
    """All of them in words: "torch (a .pt2 file) or onnx (a .onnx file)"."""
    return " or ".join(f"{name} (a {exporter.suffix} file)" for name, exporter in EXPORTERS.items())


def require_packages(exporter: Exporter) -> None:
    """Refuse to continue without the packages that an exporter needs."""
    for package in exporter.packages:
        try:
            importlib.import_module(package)
        except ModuleNotFoundError as error:
            if error.name != package:
                raise
            raise MissingPackage(
                f"exporting to {exporter.name} needs the package {package}, which is not installed: "
                f"run `pip install {' '.join(exporter.packages)}`",
                name=package,
            ) from None
