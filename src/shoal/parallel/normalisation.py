"""Batch normalisation of a part of a batch is another algorithm than that of the whole batch; users are told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from shoal.parallel.updaters.base import fewest_rows
from shoal.parallel.worker import Tell

if TYPE_CHECKING:
    from shoal.parallel.job import Job


def tell_normalisation(job: Job, model: nn.Module, tell: Tell) -> None:
    """A note, where the model normalises batches and these are cut into parts."""
    parts = job.method.parts_of_batch(job)
    if parts > 1 and fewest_rows(model) > 1:
        tell({"note": f"batch normalisation: each batch is cut into up to {parts} parts, and each has its own mean "
                      "and variance; the result differs from that of --strategy serial"})  # fmt: skip
