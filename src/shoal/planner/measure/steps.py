"""Seconds of training steps, measured with the ordinary training loop on a few batches."""

from __future__ import annotations

import copy
import itertools
import statistics
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils.data import Dataset, StackDataset, Subset, TensorDataset

from shoal.parallel.events import EpochProgress, Notify, silent
from shoal.parallel.groups import Alone, Group
from shoal.parallel.strategies.local_sgd import ALONE
from shoal.parallel.worker import Worker

if TYPE_CHECKING:
    from shoal.parallel.job import Job

EPOCHS = 4  # of a short run; the first one allocates memory and does not count
MOST_EPOCHS = 40  # of a run that goes on
GENTLE = 1e-9  # the learning rate of a short run: the same few rows again and again must not diverge


def step_seconds(
    job: Job,
    model: nn.Module,
    data: Dataset[Any],
    batch: int,
    steps: int,
    group: Group | None = None,
    enough: float = 0.0,
) -> list[float]:
    """Mean seconds of a step in each epoch of a short run of `steps` steps an epoch, of so many rows each.

    enough  seconds: a run that took less goes on with as many epochs more as fit into them
    """
    group = group or Alone()
    worker = _short(job, model, data, batch, steps, group, silent)
    done = worker.updater.steps_in(len(worker.train))
    found = [record["seconds"] / done for record in worker.run().history[1:]]
    more = int(group.first_object(min(MOST_EPOCHS, int(enough / max(min(found) * done, 1e-6)) - len(found))))
    if more > 0:  # the first epoch does not count
        again = _short(job, model, data, batch, steps, group, silent, more + 1)
        found += [record["seconds"] / done for record in again.run().history[1:]]
    return found


def step_jitter(job: Job, model: nn.Module, data: Dataset[Any], batch: int, steps: int = 12) -> tuple[float, ...]:
    """Single steps of the plain loop, relative to their mean; those of the calmest epoch."""
    seen: list[tuple[int, float]] = []

    def hear(event: str, content: Any) -> bool:
        if isinstance(content, EpochProgress):
            seen.append((content.epoch, time.perf_counter()))
        return False

    _short(job, model, data, batch, steps, Alone(), hear).run()
    by_epoch: dict[int, list[float]] = {}
    for (epoch, before), (same, now) in itertools.pairwise(seen):
        if same == epoch > 0:
            by_epoch.setdefault(epoch, []).append(now - before)
    times = min(by_epoch.values(), key=statistics.fmean, default=[])
    mean = statistics.fmean(times) if times else 0.0
    return tuple(seconds / mean for seconds in times) if mean else ()


def _short(
    job: Job,
    model: nn.Module,
    data: Dataset[Any],
    batch: int,
    steps: int,
    group: Group,
    notify: Notify,
    epochs: int = EPOCHS,
) -> Worker:
    """The worker of a short run."""
    job = replace(job, batch_size=batch, epochs=epochs, checkpoint=None, schedule="constant", shuffle=True)
    if not callable(job.optimizer):
        job = replace(job, learning_rate=GENTLE)
    each = batch * (job.workers if job.method.owns_rows else 1)
    whole = max(1, min(steps, len(data) // each))  # type: ignore[arg-type]
    few = part_of(data, min(whole * each, len(data)))  # type: ignore[arg-type]
    return Worker(job, group, copy.deepcopy(model), few, None, notify)


def alone(job: Job, strategy: str, threads: int) -> Job:
    """The job of one worker by itself: its own loop ("plain"), or the loop over flat vectors ("vector")."""
    own = "native" if job.strategy == "native" else "blas"
    settings: dict[str, Any] = {"strategy": own, "workers": 1} if strategy == "plain" else ALONE
    return replace(job, backend="processes", mesh=None, exact=None, blas_threads=threads, **settings)


def part_of(data: Dataset[Any], rows: int) -> Dataset[Any]:
    """The first rows, as tensors where the data are tensors."""
    if type(data) is TensorDataset:
        return TensorDataset(*[tensor[:rows] for tensor in data.tensors])
    return Subset(data, range(rows))


def as_data(item: Any) -> Dataset[Any]:
    """A batch as a data set again. Inputs may be lists or dicts of tensors."""
    if all(isinstance(part, torch.Tensor) for part in item):
        return TensorDataset(*item)
    return StackDataset(*map(_stacked, item))


def _stacked(value: Any) -> Any:
    if isinstance(value, dict):
        return StackDataset(**{name: _stacked(part) for name, part in value.items()})
    return StackDataset(*map(_stacked, value)) if isinstance(value, (list, tuple)) else value
