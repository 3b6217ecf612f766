"""Strategies that split the model over workers: matrices (tensor), layers (pipeline), or all parameters (sharded)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shoal.errors import UserError
from shoal.options import Options, option
from shoal.parallel.strategies.base import Strategy
from shoal.validate import whole

if TYPE_CHECKING:
    import torch
    from torch import nn

    from shoal.parallel.groups import Group
    from shoal.parallel.job import Job
    from shoal.parallel.updaters.base import Updater


def _mesh(name: str, value: Any) -> tuple[int, int]:
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise UserError(f"{name} must be two whole numbers, (data, model); got {value!r}")
    return whole(name, value[0], 1), whole(name, value[1], 1)


@dataclass(frozen=True)
class MeshOptions(Options):
    mesh: tuple[int, int] | None = option(
        None, "data+...: workers along (data, model).", check=_mesh, on_command_line=False, changes_result=False
    )


class SplitModel(Strategy):
    """Workers form a mesh of (data, model): one model is split along the second."""

    splits_model = True
    options = MeshOptions
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

    def parts_of_batch(self, job: Job) -> int:
        return job.shards if job.exact else job.workers

    def updater(self, job: Job, group: Group, model: nn.Module, rows: int, device: torch.device) -> Updater:
        if group.size == 1:
            from shoal.parallel.updaters.plain import PlainUpdater

            return PlainUpdater(job, group, model, rows)
        return self.split_updater(job, group, model, rows, device)

    def split_updater(self, job: Job, group: Group, model: nn.Module, rows: int, device: torch.device) -> Updater:
        """The updater for more than one worker."""
        raise NotImplementedError


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

    def parts_of_batch(self, job: Job) -> int:
        return job.workers
