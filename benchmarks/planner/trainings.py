"""Short real trainings that the planner is judged by: a network, rows of MNIST, a strategy, a number of workers."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn
    from torch.utils.data import TensorDataset

    from shoal.parallel.data.datasets import LoadedData

COMMON: dict[str, Any] = {"optimizer": "sgd", "learning_rate": 0.05, "device": "cpu"}
TEST_ROWS = 4000


@cache
def data() -> LoadedData:
    from shoal.parallel.data.datasets import load_data

    return load_data("mnist")


def rows_of(count: int) -> TensorDataset:
    from torch.utils.data import TensorDataset

    return TensorDataset(*[tensor[:count].clone() for tensor in data().train.tensors])


def test_rows() -> TensorDataset:
    from torch.utils.data import TensorDataset

    return TensorDataset(*[tensor[:TEST_ROWS].clone() for tensor in data().test.tensors])


def network(net: str, seed: int = 0) -> nn.Module:
    from shoal.parallel.networks import make_model

    return make_model(net, seed=seed)


def train(run: dict[str, Any]) -> dict[str, Any]:
    """One training; `settings` are those of `parallel.fit`. Seconds of an epoch: the best, without the first."""
    from benchmarks.parallel.workers import accuracy
    from shoal import parallel

    result = parallel.fit(network(run["net"], run.get("seed", 0)), rows_of(run["rows"]), **COMMON, **run["settings"])
    seconds = [record["seconds"] for record in result.history[1:]] or [result.history[0]["seconds"]]
    found = {"seconds": min(seconds), "raw_seconds": seconds}
    if run.get("score"):
        found["accuracy"] = accuracy(result.model, test_rows())
    return found
