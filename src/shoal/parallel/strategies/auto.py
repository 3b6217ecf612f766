"""Measures a few steps of several strategies, and takes the fastest."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from shoal.parallel.strategies.base import Strategy, Tell

if TYPE_CHECKING:
    from torch import nn
    from torch.utils.data import Dataset

    from shoal.parallel.job import Job


class Auto(Strategy):
    """Chosen by the clock, so two runs may differ in their last digits."""

    name = "auto"
    summary = "measures a few steps, takes the fastest"
    can_be_exact = True
    when_launched = "allreduce"  # processes that were started are to be used

    def default_workers(self, cores: int) -> int:
        return 1

    def resume(self, job: Job, earlier: dict[str, Any]) -> Job:
        """As the run began: measuring now might choose otherwise."""
        if earlier.get("strategy") == "plain":
            return replace(job, strategy="blas", workers=1)
        if earlier.get("strategy") == "allreduce":
            exact = earlier.get("exact") if job.exact is None else job.exact
            return replace(job, strategy="allreduce", backend="threads", workers=max(job.workers, 2), exact=exact)
        return job

    def choose(self, job: Job, model: nn.Module, train: Dataset[Any], tell: Tell) -> Job:
        from shoal.parallel.auto import choose

        return choose(job, model, train, tell)
