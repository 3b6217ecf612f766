"""Training on workers elsewhere: shards go out as bytes, networks and assessments come back."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from shoal.encoders.encoder import arrays_under
from shoal.executors.dispatch import Dispatcher
from shoal.executors.interface import Done, RemoteJob, RemoteTask, Skipped, Status, Workers
from shoal.executors.worker import TaskStopped, stopping
from shoal.files import atomic, tensors
from shoal.runs.journal import writing
from shoal.search.budget.costs import SAMPLE_CELLS
from shoal.search.remote import payloads
from shoal.search.remote.payloads import Setting
from shoal.search.remote.shards import LEAST_SECONDS, cut, state_bytes
from shoal.search.remote.workplace import Workplace
from shoal.search.rounds.candidates import FIRST_COST, Batch, Measured, Order, Trainer, networks_of
from shoal.search.rounds.training import Control, Workload, train

LOAD, WORK = "shoal.search.remote.payloads:load_setting", "shoal.search.remote.on_workers:work"  # what workers call
SLOW = 1e-9  # seconds for each unit of cost, on a slow machine: so even the first shard cannot hang for ever
DATA_COPIES = 2.0  # times the bytes of the inputs that a shard needs beside its networks, at most


# ---- in the worker ----


def work(setting: Setting, payload: bytes, threads: int) -> bytes:
    """Do a shard: what a worker calls."""
    begun = time.perf_counter()
    task = payloads.load_work(setting, payload)
    about = tensors.unpack(payload)[1]
    trained = train(setting.matrices, setting.metric, task, threads, Control(stop=stopping))
    if stopping():
        raise TaskStopped
    found = [trained.assessments[place] for place in range(len(task.members))]
    small = setting.matrices.n * setting.matrices.task.n_outputs <= SAMPLE_CELLS
    whole = [small or wanted for wanted in about["whole"]]
    arrays = payloads.pack_assessments(setting.matrices, found, whole, setting.sample_rows)
    packed = payloads.pack_networks(trained.networks, moments=not all(about["final"]))
    arrays |= {f"networks.{name}": array for name, array in packed.items()}
    return tensors.pack(arrays, {"seconds": time.perf_counter() - begun})


# ---- in the driver ----


class OnWorkers(Trainer):
    """Trains on workers. Survivors of a rung continue from their weights, which travel."""

    def __init__(self, setting: Setting, workers: Workers, file: Path | None = None) -> None:
        """`file`: where to put what all shards share, for workers that see the same disk."""
        self.setting, self.matrices, self._file = setting, setting.matrices, file
        content = payloads.pack_setting(setting)
        if file is not None:
            with writing(file.parent, len(content)):
                atomic.write_bytes(file, content)
        self.dispatcher = Dispatcher(workers, RemoteJob.of(content, LOAD, WORK, file), seconds_per_cost=SLOW)
        self.status: Status = self.dispatcher.status
        self.measured = Measured()
        self.bytes_sent = self.bytes_received = self.shards = 0
        self._numbers, self._slots = count(), 1
        self.dispatcher.__enter__()
        self.workplace: Workplace = Workplace.of(self.dispatcher)

    def slots(self) -> int:
        self._slots = max(1, self.dispatcher.workers.slots())
        return self._slots

    def close(self) -> None:
        self.dispatcher.close()
        if self._file is not None:
            self._file.unlink(missing_ok=True)

    def describe(self) -> dict[str, Any]:
        team, status = self.dispatcher.settings, self.dispatcher.status
        return {
            "workers": self.dispatcher.workers.name, "slots": self._slots, "threads": team.threads,
            "bytes_sent": self.bytes_sent, "bytes_received": self.bytes_received, "shards": self.shards,
            "lost": status.lost, "repeated": status.repeated,
        }  # fmt: skip

    def train(self, orders: Sequence[Order], control: Control, anew: bool = False) -> Generator[Batch, None, None]:
        least = LEAST_SECONDS / self.measured.rate if self.measured.rate else FIRST_COST * LEAST_SECONDS
        tasks = [self._task(shard) for shard in cut(self.matrices, orders, self.slots(), least)]
        for outcome in self.dispatcher.run(tasks, control.stop, self._halves):
            if isinstance(outcome, Skipped):
                yield Batch(outcome.task.about, None, {}, 0.0, skip_reason=outcome.reason)
            else:
                yield self._batch(outcome)

    # ---- out ----

    def _task(self, shard: list[Order]) -> RemoteTask:
        candidates = [order.candidate for order in shard]
        encoding = candidates[0].recipe.encoding
        name = f"{next(self._numbers)}-recipes-{candidates[0].number}-{candidates[-1].number}"
        size = 3 * state_bytes(self.matrices, encoding, candidates).sum()
        size += DATA_COPIES * self.matrices.inputs[encoding].nbytes
        return RemoteTask(name, lambda: self._payload(shard), sum(order.cost for order in shard), int(size), shard)

    def _payload(self, shard: list[Order]) -> bytes:
        """Made when the shard goes out, not before: the driver holds few of them at a time."""
        candidates = [order.candidate for order in shard]
        encoding = candidates[0].recipe.encoding
        networks = networks_of(self.matrices, encoding, candidates)
        until = np.array([order.until for order in shard], dtype=np.int64)
        members = tuple(candidate.recipe.member for candidate in candidates)
        task = Workload(encoding, members, until, self.setting.seed, networks)
        final, whole = ([getattr(order, name) for order in shard] for name in ("final", "whole"))
        packed = payloads.pack_work(task, {"final": final, "whole": whole})
        self.bytes_sent += len(packed)
        return packed

    def _halves(self, task: RemoteTask) -> list[RemoteTask]:
        """Two that are the same work; none where it cannot be cut."""
        middle = len(task.about) // 2
        return [self._task(half) for half in (task.about[:middle], task.about[middle:])] if middle else []

    # ---- back ----

    def _batch(self, done: Done) -> Batch:
        arrays, _ = tensors.unpack(done.content)
        shard: list[Order] = done.task.about
        self.bytes_received += len(done.content)
        self.measured.saw(done.task.cost, done.seconds)
        self.shards += 1
        members = [order.candidate.recipe.member for order in shard]
        packed = arrays_under("networks.", arrays)
        networks = payloads.load_networks(self.matrices, shard[0].candidate.recipe.encoding, members, packed)
        found = payloads.load_assessments(self.matrices, self.setting.sample_rows, arrays, len(members))
        return Batch(shard, networks, dict(enumerate(found)), done.seconds)
