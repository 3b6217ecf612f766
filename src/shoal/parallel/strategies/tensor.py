"""Tensor parallelism: the matrices of linear layers are split over workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.errors import UserError
from shoal.parallel.strategies.split_model import DataAndModel, SplitModel

if TYPE_CHECKING:
    import torch
    from torch import nn

    from shoal.parallel.groups import Group
    from shoal.parallel.job import Job
    from shoal.parallel.updaters.base import Updater


class Tensor(SplitModel):
    """All workers compute on the same rows."""

    name = "tensor"
    summary = "matrices of linear layers split over workers"

    def parts_of_batch(self, job: Job) -> int:
        return 1

    def check_model(self, job: Job, model: nn.Module) -> None:
        from torch import nn

        super().check_model(job, model)
        if job.mesh_shape[1] > 1 and not any(isinstance(module, nn.Linear) for module in model.modules()):
            raise UserError("strategy 'tensor' splits nn.Linear layers, and the model has none; use 'allreduce'")

    def split_updater(self, job: Job, group: Group, model: nn.Module, rows: int, device: torch.device) -> Updater:
        from shoal.parallel.updaters.tensor import TensorUpdater

        return TensorUpdater(job, group, model, rows, device)


class DataTensor(DataAndModel, Tensor):
    """Several split models, each with a part of the batch."""

    name = "data+tensor"
    summary = "matrices split over some workers, rows over the others"
