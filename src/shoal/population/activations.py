"""The activations: one row each, from which the rest of the package takes names, PyTorch modules and ONNX operators.

The order is that of the kernel's codes (native/shared/codes.hpp): new rows go to the end. PyTorch is imported only when
a row is asked for its module. `CONTRIBUTING.md` lists the other files that a new row needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from torch import nn


class OnnxGraph(Protocol):
    """A graph under construction (models/export/onnx.py); both methods return the name of a result."""

    def constant(self, value: Any, dtype: Any) -> str: ...

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str: ...


@dataclass(frozen=True, slots=True)
class Activation:
    """A function of single elements, applied to the sums of each hidden layer."""

    name: str
    help: str  # one line, for the documentation
    module: Callable[[], type[nn.Module]]  # imports PyTorch; an instance made without arguments is the activation
    onnx: Callable[[OnnxGraph, str], str]  # adds the operators to a graph, on float32
    jumps_at: tuple[float, ...] = ()  # where rounding of the argument may change the value by more than rounding
    zero_at_zero: bool = True  # neurons that only fill up a matrix then stay zero by themselves


def _nn(name: str) -> Callable[[], type[nn.Module]]:
    """A class of torch.nn, looked up when it is needed."""

    def found() -> type[nn.Module]:
        from torch import nn

        module: type[nn.Module] = getattr(nn, name)
        return module

    return found


def _operator(name: str, **attributes: float) -> Callable[[OnnxGraph, str], str]:
    """One ONNX operator."""
    return lambda graph, value: graph.add(name, value, **attributes)


def _onnx_gelu(graph: OnnxGraph, value: str) -> str:
    half = graph.add("Mul", value, graph.constant(0.5, np.float32))
    tail = graph.add("Erf", graph.add("Mul", value, graph.constant(math.sqrt(0.5), np.float32)))
    return graph.add("Mul", half, graph.add("Add", tail, graph.constant(1.0, np.float32)))


def _onnx_mish(graph: OnnxGraph, value: str) -> str:
    return graph.add("Mul", value, graph.add("Tanh", graph.add("Softplus", value)))


_ROWS = (
    Activation("identity", "x", _nn("Identity"), lambda graph, value: value),
    Activation("sigmoid", "1 / (1 + exp(-x))", _nn("Sigmoid"), _operator("Sigmoid"), zero_at_zero=False),
    Activation("tanh", "hyperbolic tangent", _nn("Tanh"), _operator("Tanh")),
    Activation("relu", "max(x, 0)", _nn("ReLU"), _operator("Relu")),
    Activation("elu", "x above 0, exp(x) - 1 below", _nn("ELU"), _operator("Elu", alpha=1.0)),
    Activation("selu", "1.0507 x above 0, 1.7581 (exp(x) - 1) below", _nn("SELU"), _operator("Selu")),
    Activation("gelu", "x times the normal distribution function of x, not approximated", _nn("GELU"), _onnx_gelu),
    Activation(
        "leaky_relu", "x above 0, 0.01 x below", _nn("LeakyReLU"), _operator("LeakyRelu", alpha=0.01)
    ),
    Activation(
        "hardshrink", "0 from -0.5 to 0.5, x elsewhere", _nn("Hardshrink"), _operator("Shrink", lambd=0.5, bias=0.0),
        jumps_at=(-0.5, 0.5),
    ),
    Activation("mish", "x tanh(log(1 + exp(x)))", _nn("Mish"), _onnx_mish),
)  # fmt: skip
TABLE = {row.name: row for row in _ROWS}


def check_complete(known: Container[str], where: str) -> None:
    """Raise unless a part of the package with formulas of its own has one for every row; `where` says which part."""
    missing = [name for name in TABLE if name not in known]
    if missing:
        raise NotImplementedError(
            f"{where} has no formula for {', '.join(missing)} of shoal.population.activations: add it there"
        )
