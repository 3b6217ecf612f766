"""A parameter server: one rank more holds weights and optimiser, the others send gradients and get weights back.

Synchronous, it waits for all workers and equals all-reduce. Asynchronous (Downpour), it applies each gradient when it
arrives and records its staleness: how many others were applied since its worker last got weights.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shoal.options import Options, option
from shoal.parallel.cost import (
    SHORTEST,
    Estimate,
    TrainingRound,
    Variant,
    compute,
    gradient_phases,
    link,
    memory_of,
)
from shoal.parallel.data.loader import Loader, key, rows_in
from shoal.parallel.data.ownership import batch_sizes, batches, split_rows
from shoal.parallel.exact.tree_sum import shares
from shoal.parallel.lazy import nn, torch
from shoal.parallel.strategies.base import Strategy
from shoal.parallel.strategies.updater import Items, WholeModelUpdater, given

if TYPE_CHECKING:
    from shoal.parallel.groups import Group
    from shoal.parallel.job import Job
    from shoal.planner.cost.times import CostModel

SERVER = 0
HEADER = 2  # numbers before a gradient: the version of the weights it was computed with, and how many rows


@dataclass(frozen=True)
class ParameterServerOptions(Options):
    asynchronous: bool = option(False, "parameter_server: do not wait for other workers.")


class ParameterServerUpdater(WholeModelUpdater):
    """Rank 0 is the server and has no rows."""

    def __init__(self, job: Job, group: Group, model: nn.Module, train: Loader) -> None:
        super().__init__(job, group, model, train)
        self.message = self.learner.new_vector(HEADER + self.learner.width)
        self.reply = self.learner.new_vector(self.learner.width)  # the version, then weights and buffers
        self.version = 0
        self.serving = group.rank == SERVER

    @property
    def workers(self) -> int:
        """Without the server."""
        return self.group.size - 1

    def round_rows(self) -> int:
        return self.rows if self.job.asynchronous else self.job.batch_size

    def steps_in(self, rows: int) -> int:
        if not self.job.asynchronous:
            return super().steps_in(rows)
        parts = [end - start for start, end in split_rows(rows, self.workers, self.least)]
        return sum(len(batch_sizes(part, self.job.batch_size, self.least)) for part in parts)

    def parts(self, rows: torch.Tensor) -> list[torch.Tensor]:
        if self.serving:
            return []
        start, end = split_rows(len(rows), self.workers, self.least)[self.group.rank - 1]
        if self.job.asynchronous:
            return batches(rows[start:end], self.job.batch_size, self.least)
        return [rows[start:end]] if end > start else []

    def round(self, items: Items, rows: int, step: int) -> tuple[float, int]:
        if self.job.asynchronous:
            done = self._serve(rows, step) if self.serving else self._work(items, step)
            self._synchronise()
            return done
        if self.serving:
            return self._serve_together(rows, step)
        for item in items:
            inputs, target = given(item)
            self._send_gradient(inputs, target, rows_in(target) / rows, step)
        self._take_weights()
        return 0.0, 0

    # ---- the server ----

    def _serve_together(self, rows: int, step: int) -> tuple[float, int]:
        """Sum in the order of the workers, take one step, send the weights to all."""
        busy = [k + 1 for k, (start, end) in enumerate(split_rows(rows, self.workers, self.least)) if end > start]
        total = torch.zeros_like(self.message[HEADER:])
        for worker in busy:
            self.group.receive(self.message, worker)
            total += self.message[HEADER:]
        loss = self.learner.apply(total, step)
        self.report_loss(loss, step)
        self._write_reply()
        for worker in range(1, self.group.size):
            self.group.send(self.reply, worker)
        return loss * rows, rows

    def _serve(self, rows: int, step: int) -> tuple[float, int]:
        """Asynchronous: apply each gradient as it arrives, answer its worker."""
        loss, seen = 0.0, 0
        staleness = self.extra.setdefault("staleness", [])
        for k in range(self.steps_in(rows)):
            worker = self.group.receive(self.message)
            version, count = int(self.message[0]), int(self.message[1])
            staleness.append(float(self.version - version))
            found = self.learner.apply(self.message[HEADER:].clone(), step + k)
            self.report_loss(found, step + k)
            loss += found * count
            seen += count
            self.version += 1
            self._write_reply()
            self.group.send(self.reply, worker)
        return loss, seen

    def _write_reply(self) -> None:
        self.reply[0] = float(self.version)
        self.reply[1:] = self.learner.weights()

    # ---- a worker ----

    def _work(self, items: Items, step: int) -> tuple[float, int]:
        for k, item in enumerate(items):
            inputs, target = given(item)
            self._send_gradient(inputs, target, 1.0, step + k)
            self._take_weights()
        return 0.0, 0

    def _send_gradient(self, inputs: Any, target: Any, share: float, step: int) -> None:
        self.learner.gradient(inputs, target, share, key(self.job.seed, step, self.group.rank), self.message[HEADER:])
        self.message[0], self.message[1] = float(self.version), float(rows_in(target))
        self.group.send(self.message, SERVER)

    def _take_weights(self) -> None:
        self.group.receive(self.reply, SERVER)
        self.version = int(self.reply[0])
        self.learner.set_weights(self.reply[1:])

    def _synchronise(self) -> None:
        """After an asynchronous epoch, all have the server's weights."""
        if self.serving:
            self._write_reply()
        self.group.broadcast(self.reply)
        self.version = int(self.reply[0])
        self.learner.set_weights(self.reply[1:])


class ParameterServer(Strategy):
    """Synchronous, it equals all-reduce; asynchronous, the result depends on which worker is faster."""

    name = "parameter_server"
    updater_class = ParameterServerUpdater
    servers = 1

    def smallest_part(self, job: Job, rows: int, least: int, targets: torch.Tensor | None = None) -> int:
        if not job.asynchronous:
            return super().smallest_part(job, rows, least)
        parts = [end - start for start, end in split_rows(rows, job.workers, least)]
        return min(size for part in parts for size in batch_sizes(part, job.batch_size, least))

    def parts_of_batch(self, job: Job) -> int:
        return 1 if job.asynchronous else job.workers

    # ---- what it costs ----

    def variants(self) -> list[Variant]:
        return [Variant("parameter_server", "server", self, by_default=True),
                Variant("parameter_server-async", "server, asynchronous", self, {"asynchronous": True},
                        own_algorithm=True)]  # fmt: skip

    def memory(self, costs: CostModel, variant: Variant, nodes: int) -> float:
        return memory_of(costs, nodes, vectors=3, replicas=1 if variant.options.get("asynchronous") else nodes)

    def round_cost(self, costs: CostModel, variant: Variant, rows: int, nodes: int) -> TrainingRound:
        """Gradients to one rank more, which takes the step and sends the weights back."""
        here = costs.calibration
        back = costs.messages(nodes).to_one(costs.facts.width, nodes)
        there = back + nodes * here.add
        work = costs.gradient(-(-rows // nodes), nodes)
        update = costs.apply(nodes) + here.copy
        phases = (link("gradients to the server", there), compute("update", update), link("weights back", back))
        taking = compute("take weights", here.copy)
        return TrainingRound((*gradient_phases(work, 0.0), *phases, taking), costs.facts.width)

    def estimate(self, costs: CostModel, variant: Variant, nodes: int) -> Estimate:
        if not variant.options.get("asynchronous"):
            return super().estimate(costs, variant, nodes)
        here, width, batch = costs.calibration, costs.facts.width, costs.job.batch_size
        message, service = costs.messages(nodes).message(width), service_seconds(costs)
        steps = [-(-(end - start) // batch) for start, end in shares(costs.rows, nodes)]
        work = costs.gradient(batch, nodes, waits=False) + here.copy
        each = [work / speed for speed in costs.cluster.speeds_of(nodes)]
        found = serve(steps, each, message, costs.messages(nodes).occupied(width), service, here.jitter or (1.0,))
        seconds = found.seconds
        if not costs.cluster.own_machines:  # workers and server share the cores: none of their work is free
            seconds = max(seconds, sum(steps) * (work / costs.turns(nodes) + 2 * message + service) / here.cores)
        waiting = max(0.0, seconds - max(count * own for count, own in zip(steps, each, strict=True)))
        corrected = max(SHORTEST * seconds, seconds + max(steps) * costs.unexplained(variant))
        factor = min(1.0, corrected / seconds) if 0 < seconds < math.inf else 1.0
        spans = [{**span, **{key: factor * span[key] for key in ("start", "seconds")}}  # type: ignore[operator]
                 for span in found.spans]  # fmt: skip
        return Estimate(corrected + costs.scattering(nodes), factor * waiting, max(steps) * width,
                        self.memory(costs, variant, nodes), spans=spans,
                        note=f"gradients are {found.staleness:.1f} updates old on average")  # fmt: skip

    def unexplained(self, costs: CostModel, variant: Variant, rows: int, workers: int, measured: float) -> float:
        if not variant.options.get("asynchronous"):
            return super().unexplained(costs, variant, rows, workers, measured)
        # A step of any worker was measured; they take theirs side by side.
        return measured * workers - self.estimate(costs, variant, workers).seconds


def service_seconds(costs: CostModel) -> float:
    """What the asynchronous server needs for a gradient."""
    return costs.calibration.apply + 2 * costs.calibration.copy


@dataclass(frozen=True)
class Served:
    """An epoch of an asynchronous server."""

    seconds: float
    staleness: float  # gradients applied between a worker's weights and its gradient, mean
    spans: list[dict[str, object]]  # of the first gradients of each node


def serve(
    steps: Sequence[int],
    compute: Sequence[float],
    message: float,
    occupied: float,
    service: float,
    samples: Sequence[float] = (1.0,),
    seed: int = 0,
) -> Served:
    """An epoch in which each worker computes, sends its gradient, and waits for new weights.

    steps     of each worker; compute: seconds of its steps
    message   seconds that a message is under way, `occupied` of which the server's link has no room for another
    service   seconds that the server needs for a gradient, one after the other
    samples   measured steps relative to their mean: drawn at random for each step
    """
    chance = random.Random(seed)
    counter = itertools.count()
    left, spans = list(steps), []
    version, since = 0, [0] * len(steps)
    link_free = server_free = end = 0.0
    stale: list[int] = []
    events: list[tuple[float, int, int]] = []

    def begin(worker: int, now: float) -> None:
        seconds = compute[worker] * chance.choice(samples)
        if steps[worker] - left[worker] < 2:
            spans.append({"node": worker + 1, "lane": "compute", "name": "gradient", "start": now, "seconds": seconds})
        heapq.heappush(events, (now + seconds, next(counter), worker))

    for worker, count in enumerate(steps):
        if count:
            begin(worker, 0.0)
    while events:
        ready, _, worker = heapq.heappop(events)
        arrival = max(ready, link_free) + message
        link_free = max(ready, link_free) + occupied
        started = max(arrival, server_free)
        server_free = started + service
        back = server_free + message
        if steps[worker] - left[worker] < 2:
            spans.append({"node": worker + 1, "lane": "link", "name": "to the server and back", "start": ready,
                          "seconds": back - ready})  # fmt: skip
            spans.append({"node": 0, "lane": "compute", "name": "update", "start": started, "seconds": service})
        stale.append(version - since[worker])
        version += 1
        since[worker] = version
        left[worker] -= 1
        end = max(end, back)
        if left[worker]:
            begin(worker, back)
    return Served(end, statistics.fmean(stale) if stale else 0.0, spans)
