"""The table of strategies: names for `--strategy` and `fit(strategy=...)`, in the order that help and docs show."""

from __future__ import annotations

from typing import Any

from shoal.errors import UserError
from shoal.members import nearest
from shoal.parallel.strategies.allreduce import AllReduce
from shoal.parallel.strategies.auto import Auto
from shoal.parallel.strategies.base import Strategy
from shoal.parallel.strategies.kfold import KFold
from shoal.parallel.strategies.local_sgd import LocalSgd
from shoal.parallel.strategies.parameter_server import ParameterServer
from shoal.parallel.strategies.pipeline import DataPipeline, Pipeline
from shoal.parallel.strategies.serial import Blas, Serial
from shoal.parallel.strategies.sharded import Sharded
from shoal.parallel.strategies.tensor import DataTensor, Tensor

TABLE: dict[str, Strategy] = {
    strategy.name: strategy
    for strategy in (
        Serial(), Blas(), AllReduce(), LocalSgd(), ParameterServer(), Tensor(), Pipeline(), DataTensor(),
        DataPipeline(), Sharded(), KFold(), Auto(),
    )
}  # fmt: skip


def register(strategy: Strategy) -> None:
    """Make a strategy of your own known by its name, in this process."""
    if not strategy.name:
        raise UserError(f"a strategy needs a name; {type(strategy).__name__} has none: set its attribute `name`")
    TABLE[strategy.name] = strategy


def find_strategy(wanted: Any) -> Strategy:
    """The strategy of a name; an object of a user's own is taken as it is."""
    if isinstance(wanted, Strategy):
        return wanted
    if wanted not in TABLE:
        raise UserError(
            f"strategy must be one of {', '.join(TABLE)}; got {wanted!r}{nearest(str(wanted), tuple(TABLE))} "
            "(or, in Python, a shoal.parallel.Strategy of your own)"
        )
    return TABLE[wanted]
