"""Seconds of real short trainings of each strategy and batch size, one after the other in the same processes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from shoal.allocator import memory_kept
from shoal.parallel.exact.randomness import torch_as_it_was
from shoal.planner.measure.calibration import run_probe
from shoal.planner.measure.probe import VISITS, Probe, SmallStep
from shoal.planner.measure.steps import step_seconds

if TYPE_CHECKING:
    from torch import nn
    from torch.utils.data import Dataset

    from shoal.parallel.cost import Variant
    from shoal.parallel.job import Job

LEAST_SECONDS = 0.6  # of a real training that is measured at a time


def run_trainings(
    job: Job, model: nn.Module, data: Dataset[Any], variants: Sequence[Variant], batches: Sequence[int], workers: int
) -> dict[tuple[str, int], float]:
    """Seconds of an epoch, by the name of the strategy and the batch size."""
    steps: list[SmallStep] = []
    found: dict[tuple[str, int], float] = {}
    steps_in: dict[tuple[str, int], float] = {}  # an epoch; the last one may be a part of a step
    count = len(data)  # type: ignore[arg-type]
    for variant, batch in itertools.product(variants, batches):
        trial = replace(job, workers=workers, blas_threads=None, mesh=None, **{"exact": None, **variant.settings})
        own = batch * (workers if variant.strategy.owns_rows else 1)
        each = count // own
        if trial.asynchronous:  # workers share the batches out: as many for each
            each = max(workers, each - each % workers)
        steps_in[variant.name, batch] = count / own
        if job.backend == "threads" and trial.method.pools_threads:
            seconds = min(step_seconds(trial, model, data, batch, each, enough=VISITS * LEAST_SECONDS))
            found[variant.name, batch] = count / own * seconds
        else:
            steps.append(SmallStep(variant.name, trial, batch, each, LEAST_SECONDS))
    ranks = workers + (steps[0].job.method.servers if steps else 0)
    with torch_as_it_was(), memory_kept():
        measured = run_probe(Probe(job, (), {}, steps), job, model, data, ranks, count)[0] if steps else {}
    for step in steps:
        key = f"step {step.name} {step.batch}"
        if key in measured:
            found[step.name, step.batch] = measured[key] * steps_in[step.name, step.batch]
    return found
