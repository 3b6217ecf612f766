"""What is trained on what: a data set by name or a table of the user's own, and a network that fits it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.errors import MissingPackage, UserError
from shoal.members import ACTIVATIONS
from shoal.options import options_of
from shoal.parallel.options import TableOptions

if TYPE_CHECKING:
    from torch import nn

    from shoal.parallel.datasets import Data
    from shoal.parallel.tables import Prepared

Wanted = tuple[float, int | None, int]  # share for validation, how many rows to use, seed
File = Annotated[Path | None, typer.Argument(help="A table of your own: CSV, TSV (also gzipped), Parquet.")]
DataName = Annotated[
    str | None, typer.Option(help="mnist (default), fashion-mnist, iris, wine, digits or breast-cancer.")
]
Net = Annotated[
    str | None,
    typer.Option(
        help="mlp:784-256-10 (layer sizes), cnn, or file.py:make_network, a function that returns an nn.Module, "
        "called with (inputs, outputs) if it takes two. (default: an mlp that fits the data)"
    ),
]
Activation = Annotated[str, typer.Option(help=f"Of hidden layers: {', '.join(ACTIVATIONS)}.")]
RowCount = Annotated[int | None, typer.Option(help="Use only so many training rows.")]


def need_torch(command: str) -> None:
    from importlib.util import find_spec

    if find_spec("torch") is None or find_spec("cloudpickle") is None:
        raise MissingPackage(f"shoal {command} needs PyTorch: pip install 'shoal[torch]'")


def check_network(net: str | None, network: dict[str, Any]) -> None:
    """Refuse the name of a network that does not exist before data are loaded."""
    from shoal.parallel.networks import make_model

    if net is not None and ".py" not in net:
        make_model(net, **network)


@dataclass
class Subject:
    """What is trained on what."""

    name: str
    net: str
    sets: Data
    prepared: Prepared | None = None  # for a table of the user's own
    words: list[str] = field(default_factory=list)  # how the table was read, line by line


def check_source(
    command: str, file: Path | None, data: str | None, table: TableOptions, typed: Mapping[str, str]
) -> None:
    """A file or --data; options that only a file has need one."""
    if file is not None and data is not None:
        raise UserError("give a file of your own or --data, not both")
    if file is not None and table.target is None:
        raise UserError("say which column to predict: --target with a name or a number (-1 is the last column)")
    known = options_of(TableOptions)
    flags = [known[name].flags[0] for name in typed if name in known]
    if file is None and flags == ["--target"]:
        raise UserError(
            f"--target names a column of a file of your own, as in 'shoal {command} data.csv --target price'"
        )
    if file is None and flags:
        raise UserError(
            f"{', '.join(flags)}: only for a file of your own, as in 'shoal {command} data.csv --target price', and no "
            "file is given"
        )


def named_data(data: str, net: str | None, wanted: Wanted) -> Subject:
    """A data set by name, and a network that fits it unless one is given."""
    from shoal.parallel.datasets import load_data

    valid, rows, seed = wanted
    sets = load_data(data, valid, rows, seed=seed)
    return Subject(data, net or f"mlp:{sets.features}-256-{sets.classes}", sets)


def own_table(file: Path, table: TableOptions, net: str | None, wanted: Wanted) -> Subject:
    """A table of the user's own, and a network that fits it unless one is given."""
    from shoal.parallel.tables import check_sizes, load_table

    sets, prepared, words = load_table(file, table, *wanted)
    net = net or f"mlp:{sets.features}-64-64-{sets.classes}"
    check_sizes(net, sets, f"{len(prepared.classes)} classes" if prepared.classes else "a number")
    return Subject(file.name, net, sets, prepared, words)


def loss_of(subject: Subject, asked: Any) -> str:
    """The loss that fits the target, unless another is asked for."""
    from shoal.parallel.tables import default_loss

    assert subject.prepared is not None
    return default_loss(subject.prepared.kind, asked)


def model_of(subject: Subject, network: dict[str, Any]) -> nn.Module:
    from shoal.parallel.networks import make_model, own_network

    if ".py" in subject.net:
        return own_network(subject.net, subject.sets.features, subject.sets.classes, network["seed"])
    return make_model(subject.net, **network)
