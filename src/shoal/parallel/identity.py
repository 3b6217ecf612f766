"""The identity of a checkpoint apart from the options: the rows, and the network with its code."""

from __future__ import annotations

import dis
import hashlib
import random
import sys
from functools import _lru_cache_wrapper, partial
from inspect import isbuiltin, isfunction, ismethod
from itertools import takewhile
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.parallel.data.loader import Loader
from shoal.parallel.exact.randomness import random_numbers_kept
from shoal.parallel.lazy import nn, torch

if TYPE_CHECKING:
    from torch.utils.data import Dataset

SAMPLED = 1000  # rows that are read of a data set which is not in memory, evenly spaced
ROWS_READ_TWICE = 32  # of those: rows that differ between two reads are random, and only their shapes count
BYTES_HASHED_AT_ONCE = 1 << 24
LONGEST_CONTAINER = 100_000  # of a longer list or dict only the length counts
LOADS_OF_GLOBALS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
LOADS_OF_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
GENERATORS = (random.Random, np.random.Generator, np.random.RandomState)  # of random numbers; their states change
FOLDERS_OF_PACKAGES = ("site-packages", "dist-packages")


def data_hash(*sets: Dataset[Any] | None) -> str:
    """A checksum of data sets: every byte of tensors in memory, and `SAMPLED` rows of any other set."""
    digest = hashlib.sha256()
    for data in sets:
        _add_data(digest, data)
    return digest.hexdigest()


def _add_data(digest: Any, data: Any) -> None:
    if data is None:
        digest.update(b"none")
    elif type(data) is torch.utils.data.TensorDataset:
        for tensor in data.tensors:
            _add_tensor(digest, tensor)
    elif type(data) is torch.utils.data.Subset:
        _add_data(digest, data.dataset)
        _add_tensor(digest, torch.as_tensor(list(data.indices), dtype=torch.int64))
    elif type(data) is torch.utils.data.ConcatDataset:
        for part in data.datasets:
            _add_data(digest, part)
    else:
        _add_rows(digest, data)


def _add_tensor(digest: Any, tensor: torch.Tensor) -> None:
    digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
    if tensor.numel():
        flat = tensor.detach().to_dense() if tensor.layout is not torch.strided else tensor.detach()
        content: Any = flat.cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        for start in range(0, len(content), BYTES_HASHED_AT_ONCE):
            digest.update(content[start : start + BYTES_HASHED_AT_ONCE])


def _add_rows(digest: Any, data: Any) -> None:
    rows = sorted({round(place) for place in np.linspace(0, len(data) - 1, min(SAMPLED, len(data)))})
    digest.update(f"{len(data)} rows".encode())
    loader = Loader(data, torch.device("cpu"))
    with random_numbers_kept():
        first = [_row_hash(loader, row) for row in rows]
        random_rows = [_row_hash(loader, row) for row in rows[:ROWS_READ_TWICE]] != first[:ROWS_READ_TWICE]
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
    return _network_lines(model, set())


def _network_lines(model: nn.Module, seen: set[int]) -> list[str]:
    lines: list[str] = []
    codes: dict[str, str] = {}
    first: dict[int, str] = {}  # the first name of each tensor
    seen = seen | set(map(id, model.modules()))
    of_every_module = vars(nn.Module())
    for name, module in model.named_modules(remove_duplicate=False):
        own = {key: value for key, value in vars(module).items() if key not in of_every_module}
        own |= {key: list(hooks.values()) for key in HOOKS if (hooks := vars(module)[key])}
        plain = {key: described(value, set(seen)) for key, value in own.items()}
        settings = ", ".join(f"{key}={value}" for key, value in plain.items() if value)
        kind = type(module)
        lines.append(f"{f'{name}: ' if name else ''}{kind.__name__} {settings}".rstrip())
        for key, value in (*module._parameters.items(), *module._buffers.items()):
            if value is not None:
                full = f"{f'{name}.' if name else ''}{key}"
                tied = first.setdefault(id(value), full)
                lines.append(f"{full}: {_shape(value)}{'' if tied == full else f', the same as {tied}'}")
        codes |= {f"code of {one.__name__}": code for one in kind.__mro__ if (code := _class_code(one, set(seen)))}
    return lines + [f"{name}: {code}" for name, code in codes.items()]


def fixed_values(model: nn.Module) -> dict[str, str]:
    """A checksum of each tensor that no optimiser changes: buffers, and parameters that are not trained."""
    named = [*model.named_parameters(), *model.named_buffers()]
    return {name: described(value.detach()) for name, value in named if not value.requires_grad and not value.is_meta}


def weights_hash(model: nn.Module) -> str:
    return _short([described(value) for value in model.state_dict().values()])


def _shape(value: torch.Tensor) -> str:
    trained = ", trained" if value.requires_grad else ""
    return f"{list(value.shape)} of {str(value.dtype).removeprefix('torch.')}{trained}"


def _class_code(kind: type, seen: set[int]) -> str:
    """A checksum of a class's methods; empty for classes of PyTorch and Python, which their versions name."""
    if kind.__module__.split(".")[0] in ("torch", "builtins"):
        return ""
    seen.add(id(kind))
    parts = []
    for name, value in sorted(vars(kind).items()):
        value = getattr(value, "__func__", getattr(value, "fget", value))  # of static, class and property methods
        if isfunction(value) or not (name.startswith("__") and name.endswith("__")):
            parts.append(f"{name} {described(value, seen)}")
    return _short(parts)


def described(value: Any, seen: set[int] | None = None) -> str:
    """A setting as text that is the same in every process.

    seen  the functions, classes and networks that are described already, by their ids; of these only the name counts
    """
    seen = set() if seen is None else seen
    if isinstance(value, (bool, int, float, complex, str, bytes, type(None))):
        return repr(value)
    if isinstance(value, (torch.dtype, torch.Size)):
        return str(value)
    if isinstance(value, (np.ndarray, np.generic, torch.Tensor)) and not isinstance(value, nn.Parameter):
        digest = hashlib.sha256()
        _add_value(digest, value, shapes=False)
        return digest.hexdigest()[:16]
    if isinstance(value, (list, tuple, set, frozenset, dict)):
        return _container(value, seen)
    if isinstance(value, partial):
        return f"{described(value.func, seen)} of {described(value.args, seen)}, {described(value.keywords, seen)}"
    if ismethod(value):
        return f"{described(value.__func__, seen)} of {described(value.__self__, seen)}"
    if isinstance(value, _lru_cache_wrapper):
        return described(value.__wrapped__, seen)
    if isinstance(value, (type, ModuleType)) or isfunction(value) or isbuiltin(value):
        return _code_text(value, seen)
    if isinstance(value, nn.Module):
        return "" if id(value) in seen else _short(_network_lines(value, seen))
    return "" if isinstance(value, (*GENERATORS, torch.Generator)) else _object(value, seen)


def _object(value: Any, seen: set[int]) -> str:
    """Any other object: its class, and what it is made of, as a copy of it would be."""
    if id(value) in seen:
        return type(value).__name__
    try:
        parts = value.__reduce_ex__(2)
    except Exception:  # a lock, a file: there are no copies of it
        return type(value).__name__
    inner = seen | {id(value)}
    made = [] if isinstance(parts, str) else [described(one, inner) for one in parts[1:3]]
    return f"{described(type(value), inner)} {parts if isinstance(parts, str) else _short(made)}"


def _container(value: Any, seen: set[int]) -> str:
    if id(value) in seen or len(value) > LONGEST_CONTAINER:
        return f"{len(value)} values"
    inner = seen | {id(value)}  # it may hold itself
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {described(part, inner)}' for key, part in value.items())}}}"
    parts = [described(part, inner) for part in value]
    return f"({', '.join(parts)})" if isinstance(value, (list, tuple)) else f"{{{', '.join(sorted(parts))}}}"


def _code_text(value: Any, seen: set[int]) -> str:
    """The name of a class or function, and a checksum of its code with all that it uses; of a library only names."""
    name = str(value.__name__)
    if id(value) in seen or isinstance(value, ModuleType) or isbuiltin(value):
        return name
    if isfunction(value):
        seen.add(id(value))
        kept = [cell.cell_contents for cell in value.__closure__ or () if _is_filled(cell)]
        kept += [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
        used = [] if _is_library(value) else _used(value.__code__, value.__globals__, seen)
        return f"{name} {_short([_code(value.__code__), *(described(one, seen) for one in kept), *used])}"
    if _is_library(value):
        return name
    return f"{name} {_short([_class_code(one, seen) for one in value.__mro__ if not _is_library(one)])}"


def _is_library(value: Any) -> bool:
    """Whether a function or class is of Python or an installed package, whose code changes with its version only."""
    package = str(value.__module__ or "").partition(".")[0]
    if package in sys.stdlib_module_names or package in ("torch", "shoal"):
        return True
    place = str(getattr(sys.modules.get(package), "__file__", None) or "")
    return any(folder in place for folder in FOLDERS_OF_PACKAGES)


def _used(code: CodeType, names: dict[str, Any], seen: set[int]) -> list[str]:
    """The global values that code uses, and the attributes that it takes of them; not those that it sets itself."""
    steps = list(dis.get_instructions(code))
    skipped = {step.argval for step in steps if step.opname == "STORE_GLOBAL"}
    found = []
    for k, step in enumerate(steps):
        if step.opname in LOADS_OF_GLOBALS and step.argval in names and step.argval not in skipped:
            value, path = names[step.argval], [step.argval]
            for load in takewhile(lambda step: step.opname in LOADS_OF_ATTRIBUTES, steps[k + 1 :]):
                attribute = str(load.argval)
                if isinstance(value, type) or attribute not in getattr(value, "__dict__", {}):
                    break
                value = vars(value)[attribute]
                path.append(attribute)
            library = (isfunction(value) or isinstance(value, type)) and _is_library(value)
            found.append(f"{'.'.join(path)} {value.__name__ if library else described(value, seen)}")
    nested = [one for one in code.co_consts if isinstance(one, CodeType)]
    return found + [text for one in nested for text in _used(one, names, seen)]


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
