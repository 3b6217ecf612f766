"""Code that `shoal train` and `shoal plan` share: the data and the network, and a training written as a command."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.errors import MissingPackage, UserError
from shoal.options import Options, options_of
from shoal.parallel.options import NetworkOptions, TableOptions

if TYPE_CHECKING:
    from torch import nn

    from shoal.parallel.data.datasets import LoadedData
    from shoal.parallel.data.tables import Prepared
    from shoal.parallel.job import Job

File = Annotated[Path | None, typer.Argument(help="Your table: CSV, TSV (also gzipped) or Parquet.")]
DEFAULT_DATA = "mnist"
# The headings of the options that both commands have.
DATA = "data target task test valid rows drop kinds missing sep header"
TRAINING = (
    "net activation output init dropout epochs batch_size learning_rate optimizer momentum weight_decay schedule loss "
    "seed"
)
STRATEGIES = "blas_threads device exact shards asynchronous average_every split shares start until_error folds"
RESUMING = "checkpoint checkpoint_every restarts allow_fewer timeout"


@dataclass
class NetworkAndData:
    """A network and its data."""

    name: str
    net: str
    sets: LoadedData
    network: dict[str, Any]  # arguments of `make_model`, besides the name
    prepared: Prepared | None = None  # for a table
    words: list[str] = field(default_factory=list)  # how the table was read, line by line

    def model(self, seed: int | None = None) -> nn.Module:
        """The network, made anew; with the weights of another seed, if given."""
        from shoal.parallel.networks import make_model, own_network

        network = self.network if seed is None else {**self.network, "seed": seed}
        if ".py" in self.net:
            return own_network(self.net, self.sets.features, self.sets.classes, network["seed"])
        return make_model(self.net, **network)

    def loss(self, asked: Any, typed: bool) -> Any:
        """The loss that fits the target, unless another is asked for."""
        from shoal.parallel.data.tables import default_loss

        return asked if self.prepared is None else default_loss(self.prepared.kind, asked if typed else None)


def need_torch(command: str) -> None:
    from importlib.util import find_spec

    if find_spec("torch") is None or find_spec("cloudpickle") is None:
        raise MissingPackage(f"shoal {command} needs PyTorch: pip install 'shoal-ml[torch]'")


def check_source(
    command: str, file: Path | None, asked: NetworkOptions, table: TableOptions, typed: Mapping[str, str]
) -> None:
    """A file or --data; options that only a file has need one. The name of the network is checked as well."""
    from shoal.parallel.networks import layer_sizes

    if file is not None and asked.data is not None:
        raise UserError("give a file or --data, not both")
    if file is not None and table.target is None:
        raise UserError("name the column to predict: --target with a name or a number (-1 is the last column)")
    known = options_of(TableOptions)
    flags = [known[name].flags[0] for name in typed if name in known]
    if file is None and flags == ["--target"]:
        raise UserError(
            f"--target names a column of a file, as in 'shoal {command} data.csv --target price'; give the file"
        )
    if file is None and flags:
        raise UserError(
            f"{', '.join(flags)}: only for a file, as in 'shoal {command} data.csv --target price'; give the file"
        )
    if asked.net is not None and ".py" not in asked.net:
        layer_sizes(asked.net)


def load_subject(file: Path | None, asked: NetworkOptions, table: TableOptions, seed: int) -> NetworkAndData:
    """A table or a data set by name, and a network that fits it unless one is given."""
    from shoal.parallel.data.datasets import load_data
    from shoal.parallel.data.tables import check_sizes, load_table

    network = asked.network(seed)
    if file is None:
        name = asked.data or DEFAULT_DATA
        sets = load_data(name, asked.valid, asked.rows, seed=seed)
        return NetworkAndData(name, asked.net or f"mlp:{sets.features}-256-{sets.classes}", sets, network)
    sets, prepared, words = load_table(file, table, asked.valid, asked.rows, seed)
    net = asked.net or f"mlp:{sets.features}-64-64-{sets.classes}"
    check_sizes(net, sets, f"{len(prepared.classes)} classes" if prepared.classes else "a number")
    return NetworkAndData(file.name, net, sets, network, prepared, words)


# ---- a training as a command ----


def train_arguments(file: Path | None, asked: NetworkOptions, table: TableOptions, job: Job) -> list[str]:
    """What `shoal train` has to be given for a training; options with their defaults are skipped."""
    strategy = ["--strategy", job.method.name]
    workers = [] if job.method.one_worker else ["--workers", str(job.workers)]
    others = [*arguments_of(asked), *arguments_of(table), *arguments_of(job, {"strategy", "workers"})]
    return [*([] if file is None else [str(file)]), *others, *strategy, *workers]


def arguments_of(options: Options, without: set[str] = frozenset()) -> list[str]:  # type: ignore[assignment]
    """Options that differ from their defaults, as they are typed."""
    found: list[str] = []
    for name, known in options_of(type(options)).items():
        value = getattr(options, name)
        if name in without or not known.on_command_line or value == known.default:
            continue
        if isinstance(value, bool):
            found.append(known.flags[0].split("/")[0 if value or known.switches_off else -1])
        elif isinstance(value, tuple) and known.parse is None:
            found += [part for each in value for part in (known.flag, str(each))]
        else:
            found += [known.flag, ",".join(map(str, value)) if isinstance(value, tuple) else str(value)]
    return found
