"""Networks by name, such as `mlp:784-1024-10` and `cnn`, or from a function in a user's file."""

from __future__ import annotations

import importlib.util
import inspect
import itertools
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import nn

from shoal.errors import UserError
from shoal.parallel.exact.randomness import random_numbers_kept
from shoal.population.members import INITS
from shoal.torch import ACTIVATIONS
from shoal.validate import nearest, one_of

KINDS = ("mlp", "cnn")


def make_model(
    net: str,
    activation: str = "relu",
    output: str = "identity",
    init: str = "torch",
    dropout: float = 0.0,
    seed: int = 0,
) -> nn.Sequential:
    """A network by name, its weights drawn from the seed.

    >>> make_model("mlp:4-50-3")
    Sequential(
      (0): Linear(in_features=4, out_features=50, bias=True)
      (1): ReLU()
      (2): Linear(in_features=50, out_features=3, bias=True)
    )
    """
    one_of("activation", activation, tuple(ACTIVATIONS))
    one_of("output activation", output, tuple(ACTIVATIONS))
    one_of("init", init, INITS)
    if not 0 <= dropout < 1:
        raise UserError(f"dropout must be from 0 to below 1; got {dropout!r}")
    sizes = layer_sizes(net)
    with random_numbers_kept(seed):
        layers = _mlp(sizes, activation, dropout) if sizes else _cnn(activation, dropout)
        if output != "identity":
            layers.append(ACTIVATIONS[output]())
        model = nn.Sequential(*layers)
        if init == "glorot":
            _glorot(model)
    return model


def own_network(net: str, inputs: int, outputs: int, seed: int = 0) -> nn.Module:
    """The network that `file.py:make_network` makes, called with (inputs, outputs) if it takes two arguments."""
    file, _, name = net.rpartition(":")
    if not file.endswith(".py"):
        raise UserError(f"a custom network is named by file and function, as in file.py:make_network; got {net!r}")
    with _folder_importable(Path(file)):
        function = getattr(_module(Path(file)), name, None)
        if not callable(function):
            raise UserError(f"--net {net}: {file} has no function {name!r}")
        with random_numbers_kept(seed):
            try:
                model = function(inputs, outputs) if _takes_two(function) else function()
            except (Exception, SystemExit) as error:
                raise UserError(f"--net {net}: {name} failed: {type(error).__name__}: {error}") from None
    if not isinstance(model, nn.Module):
        raise UserError(f"--net {net}: {name} must return a torch.nn.Module; it returned {type(model).__name__}")
    return model


@contextmanager
def _folder_importable(file: Path) -> Iterator[None]:
    """Modules beside the user's file can be imported, as in a script; they are sent to workers by value."""
    import cloudpickle

    folder, before, here = file.absolute().parent, set(sys.modules), os.getcwd()
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        os.chdir(here)  # other paths are relative to it
    for name in set(sys.modules) - before:
        if "." not in name and _lies_in(sys.modules[name], folder):
            cloudpickle.register_pickle_by_value(sys.modules[name])


def _lies_in(module: Any, folder: Path) -> bool:
    """Whether a module is a file or package directly in the folder, not in an environment below it."""
    places = [getattr(module, "__file__", None) or "", *getattr(module, "__path__", ())]
    return any(Path(place).parent == folder for place in places)


def _module(file: Path) -> Any:
    """The user's file as a module that is sent to workers by value, since they cannot import it."""
    import cloudpickle

    if not file.is_file():
        raise UserError(f"--net: there is no file {file}")
    name = f"_shoal_network_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise UserError(f"--net: {file} cannot be run: {type(error).__name__}: {error}") from None
    cloudpickle.register_pickle_by_value(module)
    return module


def _takes_two(function: Any) -> bool:
    try:
        inspect.signature(function).bind(1, 1)
    except TypeError:
        return False
    return True


def layer_sizes(net: str) -> list[int]:
    """The layers of an mlp; none for a cnn. Other names are refused.

    >>> layer_sizes("mlp:784-256-10"), layer_sizes("cnn")
    ([784, 256, 10], [])
    """
    kind, _, text = net.partition(":")
    if kind not in KINDS:
        raise UserError(
            f"a network is named mlp:784-256-10 or cnn; got {net!r}{nearest(kind, KINDS)} (a custom one: "
            "--net file.py:make_network, or shoal.parallel.fit in Python)"
        )
    if kind == "cnn":
        if text:
            raise UserError(f"cnn has no sizes to choose; got {net!r}")
        return []
    parts = text.split("-")
    if len(parts) < 2 or not all(part.isdigit() and int(part) > 0 for part in parts):
        raise UserError(f"the layers of an mlp are whole numbers, as in mlp:784-256-10; got {net!r}")
    return [int(part) for part in parts]


def _mlp(sizes: list[int], activation: str, dropout: float) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for k, (fan_in, fan_out) in enumerate(itertools.pairwise(sizes)):
        layers.append(nn.Linear(fan_in, fan_out))
        if k < len(sizes) - 2:
            layers.append(ACTIVATIONS[activation]())
            if dropout:
                layers.append(nn.Dropout(dropout))
    return layers


def _cnn(activation: str, dropout: float) -> list[nn.Module]:
    """Two convolutions of 32 and 64 channels with pooling, then 128-64-10; for rows of 784 pixels."""
    act = ACTIVATIONS[activation]
    body: list[nn.Module] = [
        nn.Unflatten(1, (1, 28, 28)),
        nn.Conv2d(1, 32, 3, padding=1), act(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), act(), nn.MaxPool2d(2),
        nn.Flatten(),
    ]  # fmt: skip
    return body + _mlp([64 * 7 * 7, 128, 64, 10], activation, dropout)


def _glorot(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Conv2d)):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
