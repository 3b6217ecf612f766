"""What a checkpoint is bound to besides the options: the rows, and the network with its code."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from inspect import isbuiltin, isfunction, ismethod
from types import CodeType
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset

from shoal.parallel.loader import Loader

SAMPLED = 1000  # rows that are read of a data set which is not in memory, evenly spaced
READ_TWICE = 32  # of those: rows that differ between two reads are random, and only their shapes count
PIECE = 1 << 24  # bytes
OF_EVERY_MODULE = frozenset(vars(nn.Module()))


def data_hash(*sets: Dataset[Any] | None) -> str:
    """A checksum of data sets: every byte of tensors in memory, and `SAMPLED` rows of any other set."""
    digest = hashlib.sha256()
    for data in sets:
        _add_data(digest, data)
    return digest.hexdigest()


def _add_data(digest: Any, data: Any) -> None:
    if data is None:
        digest.update(b"none")
    elif type(data) is TensorDataset:
        for tensor in data.tensors:
            _add_tensor(digest, tensor)
    elif type(data) is Subset:
        _add_data(digest, data.dataset)
        _add_tensor(digest, torch.as_tensor(list(data.indices), dtype=torch.int64))
    elif type(data) is ConcatDataset:
        for part in data.datasets:
            _add_data(digest, part)
    else:
        _add_rows(digest, data)


def _add_tensor(digest: Any, tensor: torch.Tensor) -> None:
    digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
    if tensor.numel():
        flat = tensor.detach().to_dense() if tensor.layout is not torch.strided else tensor.detach()
        content: Any = flat.cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        for start in range(0, len(content), PIECE):
            digest.update(content[start : start + PIECE])


def _add_rows(digest: Any, data: Any) -> None:
    rows = sorted({round(place) for place in np.linspace(0, len(data) - 1, min(SAMPLED, len(data)))})
    digest.update(f"{len(data)} rows".encode())
    loader = Loader(data, torch.device("cpu"))
    with _random_numbers_kept():
        first = [_row_hash(loader, row) for row in rows]
        random_rows = [_row_hash(loader, row) for row in rows[:READ_TWICE]] != first[:READ_TWICE]
        digest.update("".join(_row_hash(loader, row, shapes=True) if random_rows else own
                              for row, own in zip(rows, first, strict=True)).encode())  # fmt: skip


def _row_hash(loader: Loader, row: int, shapes: bool = False) -> str:
    digest = hashlib.sha256()
    random.seed(row)
    np.random.seed(row)  # rows may be drawn with either
    _add_value(digest, loader._row(row, 0), shapes)
    return digest.hexdigest()


def _add_value(digest: Any, value: Any, shapes: bool) -> None:
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biufc":
        value = torch.as_tensor(np.array(value))
    if isinstance(value, torch.Tensor):
        _add_tensor(digest, value.new_empty(0).reshape(0, *value.shape) if shapes else value)
    elif isinstance(value, (list, tuple)):
        for part in value:
            _add_value(digest, part, shapes)
    elif isinstance(value, dict):
        for name, part in value.items():
            digest.update(str(name).encode())
            _add_value(digest, part, shapes)
    else:
        plain = isinstance(value, (bool, int, float, complex, str, bytes, type(None))) and not shapes
        digest.update((repr(value) if plain else type(value).__name__).encode())


@contextmanager
def _random_numbers_kept() -> Iterator[None]:
    """The generators of Python and numpy afterwards give the numbers that they would have given."""
    before = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])


# ---- the network ----


def network_lines(model: nn.Module) -> list[str]:
    """A network in words: its layers with their settings, its parameters with their shapes, its own code.

    >>> for line in network_lines(nn.Sequential(nn.Linear(2, 1), nn.Tanh())): print(line)
    Sequential
    0: Linear in_features=2, out_features=1
    0.weight: [1, 2] of float32, trained
    0.bias: [1] of float32, trained
    1: Tanh
    """
    lines: list[str] = []
    codes: dict[str, str] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        plain = {key: described(value) for key, value in vars(module).items() if key not in OF_EVERY_MODULE}
        settings = ", ".join(f"{key}={value}" for key, value in plain.items() if value)
        kind = type(module)
        lines.append(f"{f'{name}: ' if name else ''}{kind.__name__} {settings}".rstrip())
        tensors = [*module._parameters.items(), *module._buffers.items()]
        lines += [f"{f'{name}.' if name else ''}{own}: {_shape(value)}" for own, value in tensors if value is not None]
        codes |= {f"code of {one.__name__}": code for one in kind.__mro__ if (code := _class_code(one))}
    return lines + [f"{name}: {code}" for name, code in codes.items()]


def _shape(value: torch.Tensor) -> str:
    trained = ", trained" if value.requires_grad else ""
    return f"{list(value.shape)} of {str(value.dtype).removeprefix('torch.')}{trained}"


def _class_code(kind: type) -> str:
    """A checksum of a class's methods; empty for classes of PyTorch and Python, which their versions name."""
    if kind.__module__.split(".")[0] in ("torch", "builtins"):
        return ""
    methods = {}
    for name, value in vars(kind).items():
        value = getattr(value, "__func__", getattr(value, "fget", value))  # of static, class and property methods
        if isfunction(value) or isinstance(value, (bool, int, float, str)):
            methods[name] = described(value)
    skipped = ("__module__", "__doc__", "__qualname__", "__firstlineno__")
    return _short(sorted(f"{name} {text}" for name, text in methods.items() if name not in skipped))


def described(value: Any, inside: bool = False) -> str:
    """A setting as text that is the same in every process; empty for objects that have none."""
    if isinstance(value, (bool, int, float, complex, str, bytes, type(None))):
        return repr(value)
    if isinstance(value, (torch.dtype, torch.Size)):
        return str(value)
    if isinstance(value, (np.ndarray, np.generic, torch.Tensor)) and not isinstance(value, nn.Parameter):
        digest = hashlib.sha256()
        _add_value(digest, value, shapes=False)
        return digest.hexdigest()[:16]
    if isinstance(value, (list, tuple)):
        return f"({', '.join(described(part, inside) for part in value)})"
    if isinstance(value, (set, frozenset)):
        return f"{{{', '.join(sorted(described(part, inside) for part in value))}}}"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {described(part, inside)}' for key, part in value.items())}}}"
    if isinstance(value, partial):
        return f"{described(value.func)} of {described(value.args)}, {described(value.keywords)}"
    if isinstance(value, type) or isbuiltin(value):
        return str(value.__name__)
    if ismethod(value):
        return described(value.__func__, inside)
    return _function(value, inside) if isfunction(value) else ""


def _function(value: Any, inside: bool) -> str:
    """Its name, and a checksum of its code with the values that it keeps; of functions among those only the code."""
    kept: list[Any] = []
    if not inside:
        kept = [cell.cell_contents for cell in value.__closure__ or () if _is_filled(cell)]
        kept += [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
    return f"{value.__name__} {_short([_code(value.__code__), *(described(one, True) for one in kept)])}"


def _is_filled(cell: Any) -> bool:
    try:
        return bool(cell.cell_contents is not cell)
    except ValueError:  # a name that is bound later
        return False


def _code(code: CodeType) -> str:
    constants = [_code(one) if isinstance(one, CodeType) else described(one) for one in code.co_consts]
    return _short([code.co_code.hex(), *code.co_names, *code.co_varnames, *constants])


def _short(parts: list[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16] if parts else ""
