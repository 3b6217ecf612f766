"""The probe: a strategy whose workers do not train, but measure what working together costs on this machine."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.utils.data import Dataset, TensorDataset

from shoal.parallel.data.loader import Loader
from shoal.parallel.data.scatter import scattered
from shoal.parallel.strategies import Strategy
from shoal.parallel.strategies.updater import Items, Updater, given
from shoal.planner.measure.steps import alone, as_data, step_seconds

if TYPE_CHECKING:
    from torch import nn

    from shoal.parallel.groups import Group
    from shoal.parallel.job import Job

BLOCKS = 5  # times that a message size is measured; the best counts
BLOCK_SECONDS = 0.03  # of one of them, about
STEPS = 6  # of a short run, in each epoch
TURNS = 5  # short runs of all workers at the same time
LONG_STEP = 0.1  # seconds of a step of which two short runs are enough
VISITS = 2  # times that the small steps of all strategies are measured, one after the other
MANY, FEW = 20, 8  # small steps of all workers: how long one waits for another differs from step to step


class SmallStep(NamedTuple):
    """Steps of a strategy to be measured: `batch` rows each, so many in an epoch."""

    name: str
    job: Job
    batch: int
    steps: int
    enough: float = 0.0  # seconds to measure for, at least


class Probe(Strategy):
    """Measures messages of some sizes (bytes); steps of some sizes (rows), of one worker and of all at the same time;
    and small steps of jobs."""

    name = "probe"

    def __init__(self, plain: Job, sizes: Sequence[int], rows: Mapping[int, int], jobs: Sequence[SmallStep]) -> None:
        """`plain`: the job of one worker by itself; `rows`: steps of each size; `jobs`: those of all workers."""
        self.plain, self.sizes, self.rows, self.jobs = plain, tuple(sizes), dict(rows), tuple(jobs)

    def updater(self, job: Job, group: Group, model: nn.Module, train: Loader) -> Updater:
        return ProbeUpdater(self, job, group, model, train)


class ProbeUpdater(Updater):
    """What it finds is in the record of its only epoch."""

    def __init__(self, probe: Probe, job: Job, group: Group, model: nn.Module, train: Loader) -> None:
        super().__init__(job, group, model, train)
        self.probe = probe

    def round_rows(self) -> int:
        return self.rows

    def steps_in(self, rows: int) -> int:
        return 1

    def parts(self, rows: torch.Tensor) -> list[torch.Tensor]:
        return [rows]

    def round(self, items: Items, rows: int, step: int) -> tuple[float, int]:
        data = as_data(given(items[0]))
        found: dict[str, float] = {}
        for size in self.probe.sizes:
            for name, operation in self._operations(size).items():
                found[f"{name} {size}"] = self._timed(operation)
        for count, steps in self.probe.rows.items():
            found[f"alone {count}"], found[f"together {count}"] = self._steps_of_all(data, count, steps)
        if self.group.scatters_rows and isinstance(data, TensorDataset):
            size = sum(tensor.nbytes for tensor in data.tensors)
            found[f"scatter {size}"] = self._timed(lambda: self._scatter(data))
        for small in self.probe.jobs * VISITS:
            self._barrier()
            try:
                values = step_seconds(small.job, self.model, data, small.batch, small.steps, self.group,
                                      small.enough)  # fmt: skip
            except (ValueError, RuntimeError, NotImplementedError):  # this strategy cannot train this network
                continue
            key = f"step {small.name} {small.batch}"
            found[key] = min(found.get(key, math.inf), *values)
        for name, values in self._gathered(found).items():
            self.extra[name] = [max(values)]  # the slowest worker counts
        return 0.0, 1

    def _steps_of_all(self, data: Dataset[Any], count: int, steps: int) -> tuple[float, float]:
        """Seconds of a step of `count` rows of the first worker while others wait, and of all at the same time.

        They take turns: the machine's speed may drift, and it is the ratio that counts.
        """
        single: list[float] = []
        every: list[float] = []
        job = alone(self.probe.plain, "vector", 1)
        for turn in range(TURNS):
            self._barrier()
            if self.group.rank == 0:
                single += step_seconds(job, self.model, data, count, steps)
            self._barrier()
            every += step_seconds(job, self.model, data, count, steps)
            if turn and self.group.first_object(min(single, default=0.0) > LONG_STEP):
                break
        return min(single, default=0.0), min(every)

    def _gathered(self, found: dict[str, float]) -> dict[str, list[float]]:
        parts = self.group.gather_objects(found)
        return {name: [part[name] for part in parts] for name in found if all(name in part for part in parts)}

    def _scatter(self, data: TensorDataset) -> None:
        """All rows from the first worker to all, in equal shares and, as in an epoch, in a random order."""
        order = torch.randperm(len(data), generator=torch.Generator().manual_seed(0))
        rows = order.tensor_split(self.group.size)[self.group.rank]
        list(scattered(self.group, Loader(data, torch.device("cpu")), [[rows]]))

    def _barrier(self) -> None:
        self.group.all_reduce(torch.zeros(1))

    def _operations(self, size: int) -> dict[str, Callable[[], object]]:
        """Each moves `size` bytes of a worker: the whole vector, its parts for others, its chunk, a message."""
        count, workers = max(1, size // 4), self.group.size
        vector = torch.zeros(count)
        chunk = torch.zeros(max(1, count // workers))
        parts = [chunk] * workers
        sizes = [len(chunk)] * workers
        return {
            "all_reduce": lambda: self.group.all_reduce(vector),
            "exchange": lambda: self.group.exchange(parts, sizes),
            "all_gather": lambda: self.group.all_gather(chunk),
            "message": lambda: self._there_and_back(vector),
        }

    def _there_and_back(self, vector: torch.Tensor) -> None:
        """Between the first two workers."""
        if self.group.rank == 0:
            self.group.send(vector, 1)
            self.group.receive(vector, 1)
        elif self.group.rank == 1:
            self.group.receive(vector, 0)
            self.group.send(vector, 0)

    def _timed(self, operation: Callable[[], object]) -> float:
        """Seconds of an operation; as many repeats as the first worker finds right."""
        operation()
        self._barrier()
        begun = time.perf_counter()
        operation()
        once = time.perf_counter() - begun
        repeats = int(self.group.first_object(max(2, min(200, round(BLOCK_SECONDS / max(once, 1e-6))))))
        found = []
        for _ in range(BLOCKS):
            self._barrier()
            begun = time.perf_counter()
            for _ in range(repeats):
                operation()
            found.append((time.perf_counter() - begun) / repeats)
        return min(found)

    def state(self) -> dict[str, Any]:
        return {"model": self.model.state_dict()}

    def load(self, state: dict[str, Any]) -> None: ...
