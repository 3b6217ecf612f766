"""One network, many workers.

    from shoal import parallel
    result = parallel.fit(model, train_set, valid_set, strategy="allreduce", workers=4)

| strategy | what |
|---|---|
| `serial` | one worker, one thread |
| `blas` | one worker, matrix products over threads |
| `allreduce` | each batch split over workers, gradients summed |
| `parameter_server` | one rank holds the weights; synchronous or asynchronous |
| `local_sgd` | workers train on rows of their own, weights averaged now and then |
| `gossip` | workers train on rows of their own, weights averaged with two neighbours in a ring |
| `tensor` | matrices of linear layers split over workers |
| `pipeline` | layers split over workers |
| `data+tensor` | matrices split over some workers, rows over the others |
| `data+pipeline` | layers split over some workers, rows over the others |
| `sharded` | parameters spread over workers, gathered layer by layer |
| `kfold` | cross-validation, folds spread over workers |
| `auto` | measures a few steps, takes the fastest |

A strategy of your own is a subclass of `Strategy`; see `shoal.parallel.strategies.base`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.parallel.divergence import Diverged as Diverged
    from shoal.parallel.launch.failures import WorkerError as WorkerError
    from shoal.parallel.launch.failures import WorkerLost as WorkerLost
    from shoal.parallel.strategies.updater import Updater as Updater
    from shoal.parallel.training import fit as fit
    from shoal.parallel.worker import Result as Result

from shoal.errors import MissingPackage
from shoal.parallel.job import BACKENDS, STRATEGIES
from shoal.parallel.strategies import Strategy

__all__ = ["BACKENDS", "STRATEGIES", "Diverged", "Result", "Strategy", "Updater", "WorkerError", "WorkerLost", "fit"]
_PLACES = {
    "fit": "training", "Result": "worker", "Updater": "strategies.updater", "Diverged": "divergence",
    "WorkerError": "launch.failures", "WorkerLost": "launch.failures",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """Names that need PyTorch are loaded when they are first used."""
    if name not in _PLACES:
        raise AttributeError(f"module 'shoal.parallel' has no attribute {name!r}")
    from importlib import import_module

    try:
        module = import_module(f"shoal.parallel.{_PLACES[name]}")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingPackage("shoal.parallel needs PyTorch: pip install 'shoal-ml[torch]'") from None
    return getattr(module, name)
