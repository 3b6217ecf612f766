"""Pipeline parallelism: layers split over workers, micro-batches passed from one to the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.errors import UserError
from shoal.parallel.strategies.base import Tell
from shoal.parallel.strategies.split_model import DataAndModel, SplitModel

if TYPE_CHECKING:
    import torch
    from torch import nn

    from shoal.parallel.groups import Group
    from shoal.parallel.job import Job
    from shoal.parallel.updaters.base import Updater


class Pipeline(SplitModel):
    """Its micro-batches depend on the batch alone, so it is exact."""

    name = "pipeline"
    summary = "layers split over workers"
    can_be_exact = True

    def exact_by_default(self, job: Job, tell: Tell) -> bool:
        return True

    def blas_threads(self, job: Job, share: int) -> int:
        return share if job.exact is False else 1

    def check_model(self, job: Job, model: nn.Module) -> None:
        from torch import nn

        super().check_model(job, model)
        pieces = job.mesh_shape[1]
        if pieces == 1:
            return
        if not isinstance(model, nn.Sequential) or type(model).forward is not nn.Sequential.forward:
            raise UserError(
                f"strategy 'pipeline' splits an nn.Sequential between its layers; the model is a {type(model).__name__}"
            )
        layers = [layer for layer in model._modules.values() if layer is not None]
        if len(layers) < pieces:
            raise UserError(f"the model has {len(layers)} layers, too few for a pipeline of {pieces}")

    def updater(self, job: Job, group: Group, model: nn.Module, rows: int, device: torch.device) -> Updater:
        """On one worker as well: the same micro-batches give the same bits."""
        from shoal.parallel.updaters.pipeline import PipelineUpdater

        return PipelineUpdater(job, group, model, rows, device)


class DataPipeline(DataAndModel, Pipeline):
    """Several pipelines, each with a part of the batch; not exact."""

    name = "data+pipeline"
    summary = "layers split over some workers, rows over the others"
    can_be_exact = False

    def exact_by_default(self, job: Job, tell: Tell) -> bool:
        return False

    def blas_threads(self, job: Job, share: int) -> int:
        return share
