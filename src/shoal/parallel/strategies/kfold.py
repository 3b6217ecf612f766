"""Cross-validation: a network for each fold, folds spread over the workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shoal.options import Options, option
from shoal.parallel.strategies.base import Runner, Strategy, Tell

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.utils.data import Dataset

    from shoal.parallel.job import Job
    from shoal.parallel.worker import Result


@dataclass(frozen=True)
class KFoldOptions(Options):
    folds: int = option(5, "kfold: how many.", least=2)


class KFold(Strategy):
    """Each fold is trained by `serial`, or by `allreduce` where there are several workers for a fold."""

    name = "kfold"
    summary = "cross-validation, folds spread over workers"
    can_be_exact = True
    holds_out_rows = True
    options = KFoldOptions

    def fewest_rows(self, job: Job) -> int:
        return job.folds

    def smallest_part(self, job: Job, rows: int, least: int, targets: torch.Tensor | None = None) -> int:
        from shoal.parallel.tree_sum import shares

        left = {rows - (end - start) for start, end in shares(rows, job.folds)}
        return min(super(KFold, self).smallest_part(job, count, least) for count in left)

    def parts_of_batch(self, job: Job) -> int:
        from shoal.parallel import environment

        if job.exact:
            return job.shards
        return 1 if environment.launcher() is not None else max(1, job.workers // job.folds)

    def run(
        self, job: Job, model: nn.Module, train: Dataset[Any], valid: Dataset[Any] | None, tell: Tell, workers: Runner
    ) -> Result:
        from shoal.parallel.kfold import run_folds

        return run_folds(job, model, train, tell)
