"""Seconds that the cost model predicts for nodes that train on rows of their own and average their weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from torch import nn
from torch.utils.data import TensorDataset

from shoal.parallel.job import Job
from shoal.planner.cost.cluster import Cluster, NodeLink
from shoal.planner.cost.times import CostModel
from shoal.planner.measure.calibration import calibrate, probed
from shoal.planner.variants import VARIANTS

PLACES = {"own": "machines of their own", "shared": "sharing this machine"}
AVERAGINGS = ("end", "epoch")


@dataclass(frozen=True)
class Predicted:
    """Of a whole training."""

    computing: float
    averaging: float

    @property
    def seconds(self) -> float:
        return self.computing + self.averaging

    def as_dict(self) -> dict[str, float]:
        return {"seconds": self.seconds, **asdict(self)}


def measured(
    job: Job, model: nn.Module, data: TensorDataset, sizes: Sequence[int], link: str, rows: int | None = None
) -> dict[str, CostModel]:
    """One calibration for this network, and a cost model of it for each of PLACES.

    sizes    rows of the steps that are measured; the batch of the job may be larger
    rows     of an epoch; those of the data, if not given
    """
    variants = [VARIANTS[f"local_sgd:{every}"] for every in AVERAGINGS]
    small = replace(job, batch_size=min(job.batch_size, sizes[len(sizes) // 2]))
    here = calibrate(small, model, data, sizes)
    here = probed(here, small, model, data, sizes, variants)
    clusters = {"own": Cluster(NodeLink.parse(link), own_machines=True), "shared": Cluster()}
    return {place: CostModel(here, cluster, job, rows or len(data)) for place, cluster in clusters.items()}


def predict(
    model: CostModel, nodes: int, epochs: float, every: str = "end", folds: int = 1, split: bool = True
) -> Predicted:
    """A node trains a network on its rows. With folds it trains one without each fold, one after the other.

    split    rows are dealt to nodes; if not, each node trains on all rows, or folds are dealt to nodes
    """
    networks = folds if split else -(-folds // nodes)
    whole = model.rows / nodes if split else model.rows
    mine = whole * (folds - 1) / folds if folds > 1 else whole
    epoch = replace(model, rows=max(1, round(mine * nodes))).estimate(VARIANTS[f"local_sgd:{every}"], nodes)
    computing = epoch.seconds - epoch.communicating
    return Predicted(epochs * networks * computing, epochs * epoch.communicating + epoch.finish)


def both(models: dict[str, CostModel], nodes: int, epochs: float, **settings: Any) -> dict[str, dict[str, float]]:
    """What is predicted for each of PLACES."""
    return {place: predict(model, nodes, epochs, **settings).as_dict() for place, model in models.items()}
