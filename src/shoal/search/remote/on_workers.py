"""Training on workers elsewhere: shards go out as bytes, networks and assessments come back."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from shoal.encoders.encoder import arrays_under
from shoal.executors.dispatch import Dispatcher
from shoal.executors.interface import Done, RemoteJob, RemoteTask, Skipped, Status, Workers
from shoal.executors.worker import TaskStopped, stopping
from shoal.files import atomic, tensors
from shoal.population.population import Population
from shoal.runs.journal import writing
from shoal.search.budget.costs import SAMPLE_CELLS
from shoal.search.remote import payloads
from shoal.search.remote.payloads import Setting
from shoal.search.remote.shards import LEAST_SECONDS, LEAST_TURNS, Shard, cut, state_bytes
from shoal.search.remote.workplace import Workplace
from shoal.search.rounds.candidates import FIRST_COST, Batch, Measured, Order, Trainer, networks_of
from shoal.search.rounds.training import Control, FoldResults, Workload, combine, train

LOAD, WORK = "shoal.search.remote.payloads:load_setting", "shoal.search.remote.on_workers:work"  # what workers call
SLOW = 1e-9  # seconds for each unit of cost, on a slow machine: so even the first shard cannot hang for ever
SURVIVING = 1 / 3  # of the candidates of a rung go on
DATA_COPIES = 2.0  # times the bytes of the inputs that a shard needs beside its networks, at most


# ---- in the worker ----


def work(setting: Setting, payload: bytes, threads: int) -> bytes:
    """Do a shard: what a worker calls."""
    if not payload[0]:  # an echo, to measure the link; tensors begin with a length that is 56 more than 64 times k
        return payload
    begun = time.perf_counter()
    task = payloads.load_work(setting, payload)
    about = tensors.unpack(payload)[1]
    trained = train(setting.matrices, setting.metric, task, threads, Control(stop=stopping))
    if stopping():
        raise TaskStopped
    arrays: dict[str, np.ndarray] = {}
    if task.folds is None:
        found = [trained.assessments[place] for place in range(len(task.members))]
        small = setting.matrices.n * setting.matrices.task.n_outputs <= SAMPLE_CELLS
        whole = [small or wanted for wanted in about["whole"]]
        arrays |= payloads.pack_assessments(setting.matrices, found, whole, setting.sample_rows)
    else:
        arrays |= payloads.pack_results(trained.results)
    if about["networks"]:
        packed = payloads.pack_networks(trained.networks, moments=not all(about["final"]))
        arrays |= {f"networks.{name}": array for name, array in packed.items()}
    return tensors.pack(arrays, {"seconds": time.perf_counter() - begun})


# ---- in the driver ----


@dataclass(eq=False)
class Parts:
    """A candidate whose folds are trained apart: what has come back so far."""

    order: Order
    results: dict[int, FoldResults] = field(default_factory=dict)
    networks: dict[int, tuple[Population, int]] = field(default_factory=dict)
    seconds: float = 0.0


class OnWorkers(Trainer):
    """Trains on workers. Survivors of a rung continue from their weights, which travel; or, where the link is slow and
    training is quick, they are trained again from the beginning, which gives the same bits."""

    def __init__(self, setting: Setting, workers: Workers, file: Path | None = None) -> None:
        """`file`: where to put what all shards share, for workers that see the same disk."""
        self.setting, self.matrices = setting, setting.matrices
        content = payloads.pack_setting(setting)
        if file is not None:
            with writing(file.parent, len(content)):
                atomic.write_bytes(file, content)
        self.dispatcher = Dispatcher(workers, RemoteJob.of(content, LOAD, WORK, file), seconds_per_cost=SLOW)
        self.status: Status = self.dispatcher.status
        self.measured = Measured()
        self.bytes_sent = self.bytes_received = self.shards = self.with_networks = 0
        self._numbers, self._slots = count(), 1
        self.dispatcher.__enter__()
        self.workplace: Workplace = Workplace.of(self.dispatcher)

    def slots(self) -> int:
        self._slots = max(1, self.dispatcher.workers.slots())
        return self._slots

    def close(self) -> None:
        self.dispatcher.close()

    def describe(self) -> dict[str, Any]:
        team, status = self.dispatcher.settings, self.dispatcher.status
        return {
            "workers": self.dispatcher.workers.name, "slots": self._slots, "threads": team.threads,
            "turn_seconds": self.workplace.turn_seconds, "bytes_per_second": self.workplace.bytes_per_second,
            "bytes_sent": self.bytes_sent, "bytes_received": self.bytes_received, "shards": self.shards,
            "shards_with_networks": self.with_networks,
            "lost": status.lost, "repeated": status.repeated,
        }  # fmt: skip

    def train(self, orders: Sequence[Order], control: Control, anew: bool = False) -> Generator[Batch, None, None]:
        seconds = max(LEAST_SECONDS, LEAST_TURNS * self.workplace.turn_seconds)
        least = seconds / self.measured.rate if self.measured.rate else FIRST_COST * seconds
        shards = cut(self.matrices, orders, self.slots(), least)
        parts: dict[int, Parts] = {}
        for outcome in self.dispatcher.run([self._task(shard) for shard in shards], control.stop, self._halves):
            shard: Shard = outcome.task.about
            if isinstance(outcome, Skipped):
                yield self._skipped(shard, outcome.reason, parts)
                continue
            batch = self._batch(shard, outcome, parts)
            if batch is not None:
                yield batch

    # ---- out ----

    def _task(self, shard: Shard) -> RemoteTask:
        first = shard.orders[0].candidate.number
        name = f"{next(self._numbers)}-recipes-{first}-{shard.orders[-1].candidate.number}"
        size = int(self._state_bytes(shard).sum())
        inputs = self.matrices.inputs[shard.encoding].nbytes
        return RemoteTask(name, lambda: self._payload(shard), shard.cost, int(3 * size + DATA_COPIES * inputs), shard)

    def _state_bytes(self, shard: Shard) -> np.ndarray:
        return shard.share * state_bytes(self.matrices, shard.encoding, [one.candidate for one in shard.orders])

    def _payload(self, shard: Shard) -> bytes:
        """Made when the shard goes out, not before: the driver holds few of them at a time."""
        candidates = [order.candidate for order in shard.orders]
        networks = networks_of(self.matrices, shard.encoding, candidates)
        if networks is not None and shard.folds is not None:
            networks = networks.select(list(shard.folds))
        until = np.array([order.until for order in shard.orders], dtype=np.int64)
        if shard.folds is not None:
            until = until[:, list(shard.folds)]
        members = tuple(candidate.recipe.member for candidate in candidates)
        task = Workload(shard.encoding, members, until, self.setting.seed, networks, shard.folds)
        final = [order.final for order in shard.orders]
        travels = self._travels(shard)
        whole = [order.whole for order in shard.orders]
        packed = payloads.pack_work(task, {"final": final, "whole": whole, "networks": travels})
        self.bytes_sent += len(packed)
        return packed

    def _halves(self, task: RemoteTask) -> list[RemoteTask]:
        return [self._task(half) for half in task.about.halves(len(self.matrices.folds))]

    def _travels(self, shard: Shard) -> bool:
        """Whether its networks come back: always at the end; before it, if that is quicker than training them again.

        The link is shared by all workers, and training again is shared out among them.
        """
        if all(order.whole for order in shard.orders) or not self.measured.rate:
            return True
        sent = (1 + SURVIVING) * float(self._state_bytes(shard).sum()) / self.workplace.bytes_per_second
        again = SURVIVING * shard.cost * self.measured.rate / self.slots()
        return sent < again

    # ---- back ----

    def _batch(self, shard: Shard, done: Done, parts: dict[int, Parts]) -> Batch | None:
        """What a shard has brought; None while folds of its candidate are missing."""
        arrays, _ = tensors.unpack(done.content)
        self.bytes_received += len(done.content)
        self.measured.saw(shard.cost, done.seconds)
        self.shards += 1
        candidates = [order.candidate for order in shard.orders]
        members = [candidate.recipe.member for candidate in candidates]
        packed = arrays_under("networks.", arrays)
        networks = None
        if packed:
            self.with_networks += 1
            networks = payloads.load_networks(self.matrices, shard.encoding, members, shard.folds, packed)
        if shard.folds is None:
            rows = self.setting.sample_rows
            found = payloads.load_assessments(self.matrices, rows, arrays, len(candidates))
            return Batch(shard.encoding, shard.orders, networks, dict(enumerate(found)), done.seconds)
        mine = parts.setdefault(candidates[0].number, Parts(shard.orders[0]))
        results = payloads.load_results(self.matrices, shard.folds, arrays, 1)
        mine.results |= dict(zip(shard.folds, results, strict=True))
        if networks is not None:
            mine.networks |= {fold: (networks, place) for place, fold in enumerate(shard.folds)}
        mine.seconds += done.seconds
        return self._joined(shard.encoding, mine)

    def _joined(self, encoding: str, parts: Parts) -> Batch | None:
        folds = range(len(self.matrices.folds))
        if len(parts.results) < len(folds):
            return None
        (found,) = combine(self.matrices, [parts.results[k] for k in folds])
        networks = None
        if len(parts.networks) == len(folds):
            networks = Population.gather([parts.networks[k] for k in folds])
        return Batch(encoding, [parts.order], networks, {0: found}, parts.seconds)

    def _skipped(self, shard: Shard, reason: str, parts: dict[int, Parts]) -> Batch:
        for order in shard.orders:
            parts.pop(order.candidate.number, None)
        return Batch(shard.encoding, shard.orders, None, {}, 0.0, skip_reason=reason)
