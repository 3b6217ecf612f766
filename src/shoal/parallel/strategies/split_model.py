"""Shared code of strategies that split the model: matrices (tensor), layers (pipeline), or all parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shoal.errors import UserError
from shoal.options import Options, option
from shoal.parallel.cost import TrainingRound, Variant, link, memory_of
from shoal.parallel.data.loader import Loader, Pair
from shoal.parallel.lazy import nn, torch
from shoal.parallel.strategies.base import Strategy
from shoal.parallel.strategies.updater import BackwardUpdater, Updater
from shoal.validate import whole

if TYPE_CHECKING:
    from shoal.parallel.groups import Group
    from shoal.parallel.job import Job
    from shoal.planner.cost.times import CostModel


def _mesh(name: str, value: Any) -> tuple[int, int]:
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise UserError(f"{name} must be two whole numbers, (data, model); got {value!r}")
    return whole(name, value[0], 1), whole(name, value[1], 1)


MICRO_BATCHES = 8  # unless the user chooses


@dataclass(frozen=True)
class MeshOptions(Options):
    mesh: tuple[int, int] | None = option(
        None, "data+...: workers along (data, model).", check=_mesh, on_command_line=False, changes_result=False
    )


class SplitModel(Strategy):
    """Workers form a mesh of (data, model): one model is split along the second."""

    splits_model = True
    repeats_layers = False  # a layer may be used in several places

    def check(self, job: Job) -> None:
        if job.backend == "threads" and job.workers > 1:
            raise UserError(f"strategy {self.name!r} splits the model over processes; use backend 'processes' or 'mpi'")

    def check_model(self, job: Job, model: nn.Module) -> None:
        """Parts of a split model are copies: a tied parameter would become two, which training then moves apart."""
        owners: dict[int, dict[str, int]] = {}
        for prefix, module in model.named_modules(remove_duplicate=False):
            for name, parameter in module._parameters.items():
                if parameter is not None:
                    owners.setdefault(id(parameter), {})[f"{prefix}.{name}" if prefix else name] = id(module)
        for names in owners.values():
            if len(names) > 1 and not (self.repeats_layers and len(set(names.values())) == 1):
                raise UserError(
                    f"strategy {self.name!r} cannot split tied parameters, and {' and '.join(map(repr, names))} are "
                    "one; use strategy 'allreduce'"
                )

    def default_shards(self, batch_size: int) -> int:
        return MICRO_BATCHES

    def parts_of_batch(self, job: Job) -> int:
        return job.shard_count if job.exact else job.workers

    def updater(self, job: Job, group: Group, model: nn.Module, train: Loader) -> Updater:
        if group.size == 1:
            return BackwardUpdater(job, group, model, train)
        return super().updater(job, group, model, train)

    def memory(self, costs: CostModel, variant: Variant, nodes: int) -> float:
        return memory_of(costs, nodes, split=nodes, split_rows=nodes)


class DataAndModel(SplitModel):
    """Rows are split as well: two workers along the model, unless `mesh` says otherwise."""

    def check(self, job: Job) -> None:
        super().check(job)
        if job.mesh is None and job.workers > 1 and job.workers % 2:
            raise UserError(
                f"strategy {self.name!r} needs an even number of workers, or mesh=(data, model); "
                f"got workers={job.workers}"
            )

    def possible_workers(self, workers: int) -> int:
        return workers - (workers > 1 and workers % 2)

    def mesh_shape(self, job: Job) -> tuple[int, int]:
        return job.mesh or ((job.workers // 2, 2) if job.workers > 1 else (1, 1))

    def default_shards(self, batch_size: int) -> int:
        return MICRO_BATCHES

    def parts_of_batch(self, job: Job) -> int:
        return job.workers

    def memory(self, costs: CostModel, variant: Variant, nodes: int) -> float:
        return memory_of(costs, nodes, replicas=nodes // 2, split=2)

    def round_cost(self, costs: CostModel, variant: Variant, rows: int, nodes: int) -> TrainingRound:
        """Models split over two nodes each; batches over the pairs, whose gradients are summed tensor by tensor."""
        pairs, facts, messages = nodes // 2, costs.facts, costs.messages(nodes)
        within = super().round_cost(costs, variant, -(-rows // pairs), 2)
        summed = sum(messages.all_reduce(count / 2, pairs) for count in facts.tensors)
        sent = within.sent + 2 * (pairs - 1) / pairs * sum(facts.tensors) / 2
        return TrainingRound((*within.phases, link("all-reduce", summed)), sent)


class SplitModelUpdater(BackwardUpdater):
    """The optimiser has the local parameters; rows are split over the mesh's data dimension."""

    evaluates_together = True

    def __init__(self, job: Job, group: Group, model: nn.Module, train: Loader) -> None:
        from torch.distributed.device_mesh import init_device_mesh

        self.replicas, self.pieces = shape = job.mesh_shape
        self.replica, self.piece = divmod(group.rank, self.pieces)
        self.device = train.device
        self.mesh: Any = None
        if group.size > 1:
            self.mesh = init_device_mesh(self.device.type, shape, mesh_dim_names=("data", "model"))
        self._split(model)
        super().__init__(job, group, model, train)
        self.learner.random = True  # whether it is, is not tried

    def _split(self, model: nn.Module) -> None:
        """Replace the model by this worker's part of it."""
        raise NotImplementedError

    def _reports(self) -> bool:
        return self.piece == 0

    def _backward(self, item: Pair, mine: int, rows: int, step: int) -> float:
        loss = super()._backward(item, mine, rows, step)
        self._sum_over_replicas()
        return loss

    def _sum_over_replicas(self) -> None:
        if self.replicas == 1:
            return
        import torch.distributed as dist

        with self.group.communication():
            for parameter in self.learner.named.values():
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                grad: Any = parameter.grad
                dist.all_reduce(
                    grad.to_local() if hasattr(grad, "to_local") else grad, group=self.mesh["data"].get_group()
                )
