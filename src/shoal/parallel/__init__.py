"""One network, many workers.

    from shoal import parallel
    result = parallel.fit(model, train_set, valid_set, strategy="allreduce", workers=4)

| strategy | what |
|---|---|
| `serial` | one worker, one thread |
| `blas` | one worker, matrix products over threads |
| `native` | one worker, compiled code for linear layers, on all threads |
| `allreduce` | each batch split over workers, gradients summed |
| `parameter_server` | one rank holds the weights; synchronous or asynchronous |
| `local_sgd` | workers train on their own rows, weights averaged now and then |
| `gossip` | workers train on their own rows, weights averaged with two neighbours in a ring |
| `tensor` | matrices of linear layers split over workers |
| `pipeline` | layers split over workers |
| `data+tensor` | matrices split over some workers, rows over the others |
| `data+pipeline` | layers split over some workers, rows over the others |
| `sharded` | parameters spread over workers, gathered layer by layer |
| `kfold` | cross-validation, folds spread over workers |
| `auto` | measures a few steps, takes the fastest |

A custom strategy is a subclass of `Strategy`; see `shoal.parallel.strategies.base`.
"""

from __future__ import annotations

from shoal.parallel.divergence import Diverged
from shoal.parallel.job import BACKENDS, STRATEGIES
from shoal.parallel.launch.failures import WorkerError, WorkerLost
from shoal.parallel.strategies import Strategy
from shoal.parallel.strategies.updater import Updater
from shoal.parallel.training import fit
from shoal.parallel.worker import Result

__all__ = ["BACKENDS", "STRATEGIES", "Diverged", "Result", "Strategy", "Updater", "WorkerError", "WorkerLost", "fit"]
