"""Memory of a node: the process itself, the data, weights, gradients, the optimiser, activations."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.planner.times import CostModel
    from shoal.planner.variants import Variant

VECTORS = {"allreduce": 1, "local_sgd": 2, "gossip": 3, "parameter_server": 3}  # flat copies that an updater holds


def memory_of(model: CostModel, variant: Variant | None, nodes: int) -> float:
    """Bytes, by counting; `variant` None: a strategy whose workers hold the whole model."""
    facts, job = model.calibration.facts, model.job
    settings = variant.settings if variant is not None else {"strategy": "parameter_server"}
    kind = str(settings["strategy"])
    weights = sum(facts.tensors)
    split = nodes if kind in ("tensor", "pipeline", "sharded") else 2 if kind.startswith("data+") and nodes > 1 else 1
    held = (2 * weights + facts.state) / split
    vectors = VECTORS.get(kind, 0) * facts.width if nodes > 1 else 0
    if settings.get("exact") and nodes > 1:
        vectors += -(-job.shards // nodes) * facts.width
    own_batch = kind in ("local_sgd", "gossip", "kfold") or settings.get("asynchronous")
    replicas = 1 if own_batch else max(1, nodes // (2 if kind.startswith("data+") else 1))
    rows = -(-job.batch_size // (1 if kind in ("tensor", "pipeline") else replicas))
    activations = facts.activations * rows / (split if kind in ("tensor", "pipeline") else 1)
    data = facts.row * model.rows / (nodes if job.backend == "mpi" else 1)
    return model.calibration.base + data + held + vectors + activations
