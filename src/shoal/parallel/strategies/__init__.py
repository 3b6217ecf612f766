"""The table of strategies: names for `--strategy` and `fit(strategy=...)`, in the order that help and docs show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shoal.parallel.strategies.allreduce import AllReduce
from shoal.parallel.strategies.auto import Auto
from shoal.parallel.strategies.base import Strategy
from shoal.parallel.strategies.gossip import Gossip
from shoal.parallel.strategies.kfold import KFold, KFoldOptions
from shoal.parallel.strategies.local_sgd import LocalSgd
from shoal.parallel.strategies.native import Native
from shoal.parallel.strategies.own_rows import OwnRowsOptions
from shoal.parallel.strategies.parameter_server import ParameterServer, ParameterServerOptions
from shoal.parallel.strategies.pipeline import DataPipeline, Pipeline
from shoal.parallel.strategies.serial import Blas, Serial
from shoal.parallel.strategies.sharded import Sharded
from shoal.parallel.strategies.split_model import MeshOptions
from shoal.parallel.strategies.tensor import DataTensor, TensorParallel
from shoal.validate import one_of

TABLE: dict[str, Strategy] = {
    strategy.name: strategy
    for strategy in (
        Serial(), Blas(), Native(), AllReduce(), ParameterServer(), LocalSgd(), Gossip(), TensorParallel(), Pipeline(),
        DataTensor(), DataPipeline(), Sharded(), KFold(), Auto(),
    )
}  # fmt: skip


@dataclass(frozen=True)
class StrategyOptions(MeshOptions, KFoldOptions, ParameterServerOptions, OwnRowsOptions):
    """The options that only some strategies have. `Job` inherits them."""


def check_strategy(name: str, value: Any) -> str | Strategy:
    """A name in the table, or a custom object; `name` is what errors call the option."""
    return value if isinstance(value, Strategy) else one_of(name, value, TABLE)


def find_strategy(wanted: str | Strategy) -> Strategy:
    """The strategy of a name; a custom object is returned as it is."""
    found = check_strategy("strategy", wanted)
    return found if isinstance(found, Strategy) else TABLE[found]
