"""The time of an epoch on n nodes, strategy by strategy, from what was measured on this machine."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from shoal.parallel.strategies import find_strategy
from shoal.parallel.tree_sum import shares
from shoal.parallel.updaters.pipeline import balanced, micro_batches
from shoal.planner.calibration import Calibration, small_name
from shoal.planner.collectives import Collectives
from shoal.planner.curves import Curve
from shoal.planner.events import serve, slowest_of
from shoal.planner.machines import Cluster
from shoal.planner.memory import memory_of
from shoal.planner.rounds import SHORTEST, Estimate, Phase, Round, compute, link

if TYPE_CHECKING:
    from shoal.parallel.job import Job
    from shoal.planner.variants import Variant

FORWARD = 1 / 3  # of the time of a gradient; the backward pass has two products for each one of the forward pass


@dataclass(frozen=True)
class CostModel:
    """`job` has the batch size, the rows are those of an epoch."""

    calibration: Calibration
    cluster: Cluster
    job: Job
    rows: int
    corrected: bool = True  # by small steps of each strategy, measured on this machine
    shares: tuple[float, ...] | None = None  # of the rows, where nodes keep theirs and have more or fewer
    node_folds: int = 1  # networks that each node trains, one after the other, each without a fold of the node's rows

    # ---- computing ----

    @cached_property
    def _scales(self) -> tuple[float, float]:
        """How much longer products and copies take on the hardware asked for than here."""
        hardware, here = self.cluster.hardware, self.calibration
        if hardware is None:
            return 1.0, 1.0
        return here.peak_flops / hardware.flops, here.peak_bytes / hardware.bandwidth

    def _shared(self, ranks: int) -> tuple[int, float]:
        """BLAS threads of each node, and how many nodes take turns on a core."""
        cores = self.calibration.cores
        if self.cluster.own_machines or ranks == 1:
            return cores, 1.0
        return max(1, cores // ranks), max(1.0, ranks / cores)

    def _contention(self, rows: float, ranks: int) -> float:
        """How much longer a step takes because others take theirs at the same time, on cores of their own."""
        here = self.calibration
        if self.cluster.own_machines or ranks == 1 or here.cores == 1 or not here.contention:
            return 1.0
        sizes, ratios = ([point[k] for point in here.contention] for k in (0, 1))
        full = float(np.interp(rows, sizes, ratios))
        return 1 + (full - 1) * min(1.0, (ranks - 1) / max(1, here.cores - 1))

    def _step(self, curves: dict[int, Curve], rows: float, ranks: int, steps: int = 1) -> float:
        """With the number of threads that is faster, where a node has all cores.

        Nodes wait for the slowest one after so many `steps`: it takes fewer seconds more of each, the more they are.
        """
        threads, turns = self._shared(ranks)
        one, all_cores = (self._scaled(curves[count], rows) for count in (1, self.calibration.cores))
        seconds = min(one, between(one, all_cores, threads, self.calibration.cores))
        waiting = 1 + (slowest_of(ranks, self.calibration.jitter) - 1) / math.sqrt(steps)
        return seconds * turns * self._contention(rows, ranks) * self.cluster.slowest(ranks) * waiting

    def _scaled(self, curve: Curve, rows: float) -> float:
        """On the hardware asked for: the fixed part follows its memory, the part of each row its products."""
        per_row, fixed = self._scales
        seconds = curve(rows)
        base = min(curve.fixed, seconds)
        return base * fixed + (seconds - base) * per_row

    def plain(self, rows: float, ranks: int = 1) -> float:
        """A step of the plain loop on each node."""
        return self._step(self.calibration.plain, rows, ranks) if rows > 0 else 0.0

    def vector(self, rows: float, ranks: int = 1, steps: int = 1) -> float:
        """A step over flat vectors on each node: gradient, and step of the optimiser; so many before they wait."""
        return self._step(self.calibration.vector, rows, ranks, max(1, steps)) if rows > 0 else 0.0

    def apply(self, ranks: int = 1) -> float:
        """The optimiser's step: the same on every node, whatever their number."""
        return self.calibration.apply * self._shared(ranks)[1] * self._scales[1]

    def gradient(self, rows: float, ranks: int) -> float:
        return max(self.vector(rows, ranks) - self.apply(ranks), 0.0)

    def collectives(self, ranks: int) -> Collectives:
        return Collectives(self.calibration.messages, self.cluster, self._shared(ranks)[1], self.job.backend)

    # ---- rounds of each strategy ----

    def training_alone(self, rows: int) -> Round:
        seconds = self.plain(rows)
        update = min(self.apply(), seconds)
        return Round(gradient_phases(seconds - update, update))

    def allreduce(self, rows: int, nodes: int) -> Round:
        """Gradients summed by a ring while the backward pass goes on (processes), or after it."""
        facts, part = self.calibration.facts, -(-rows // nodes)
        moved = 2 * (nodes - 1) / nodes * facts.width
        if self.job.backend == "processes":
            seconds = self.plain(part, nodes)
            update = min(self.apply(nodes), seconds)
            summed = self.collectives(nodes).all_reduce(facts.width, nodes)
            backward = (1 - FORWARD) * (seconds - update)
            hidden = backward + summed - overlapped(backward, summed, facts.overlapped) if summed < math.inf else 0.0
            phases = gradient_phases(seconds - update, 0.0)
            summing = link("all-reduce", summed, hidden)
            return Round((*phases, summing, compute("update", update)), moved)
        summed = self._tree(nodes, nodes)
        return Round((*gradient_phases(self.gradient(part, nodes), 0.0), link("all-reduce", summed),
                      compute("update", self.apply(nodes))), moved if self.job.backend == "mpi" else 0.0)  # fmt: skip

    def _tree(self, nodes: int, shards: int) -> float:
        """The sum over shards: in memory between threads, else by all-to-all and gather."""
        here = self.calibration
        if self.job.backend == "threads":
            return here.add * (nodes - 1)
        return self.collectives(nodes).tree_sum(here.facts.width, nodes, shards) + here.add

    def exact(self, rows: int, nodes: int) -> Round:
        """Shards of a batch, computed one after the other by each of a node's threads, summed along a fixed tree."""
        here, shards = self.calibration, min(self.job.shards, rows)
        threads = 1 if self.job.backend == "threads" else self._shared(nodes)[0]
        mine = -(-self.job.shards // nodes)
        turns = -(-min(mine, shards) // threads)
        workers = min(nodes * threads, here.cores) if not self.cluster.own_machines else threads
        inside = replace(self, cluster=replace(self.cluster, own_machines=False, speeds=()))
        one = inside.gradient(rows / shards, max(1, workers)) * self.cluster.slowest(nodes)
        oversubscribed = self._shared(nodes)[1]
        work = turns * (one * oversubscribed + here.add)
        summed = self._tree(nodes, self.job.shards)
        sent = 0.0
        if self.job.backend != "threads":
            sent = self.collectives(nodes).tree_sum_bytes(here.facts.width, nodes, self.job.shards)
        return Round((*gradient_phases(work, 0.0), link("sum in a fixed order", summed),
                      compute("update", self.apply(nodes))), sent)  # fmt: skip

    def local(self, steps: int, nodes: int, average: bool) -> Round:
        """Steps of each node by itself, then an average."""
        here = self.calibration
        seconds = steps * self.vector(self.job.batch_size, nodes, steps)
        if not average or nodes == 1:
            return Round((compute(f"{steps} steps", seconds),))
        averaged = self.collectives(nodes).all_reduce(here.facts.averaged, nodes) + 2 * here.copy
        sent = 2 * (nodes - 1) / nodes * here.facts.averaged
        return Round((compute(f"{steps} steps", seconds), link("average", averaged)), sent)

    def gossip(self, steps: int, nodes: int) -> Round:
        here = self.calibration
        seconds = steps * self.vector(self.job.batch_size, nodes, steps)
        exchanged = self.collectives(nodes).neighbours(here.facts.averaged, nodes) + 2 * here.copy
        sent = min(nodes - 1, 2) * here.facts.averaged
        return Round((compute(f"{steps} steps", seconds), link("neighbours", exchanged)), sent)

    def server(self, rows: int, nodes: int) -> Round:
        """Gradients to one rank more, which takes the step and sends the weights back."""
        here, width = self.calibration, self.calibration.facts.width
        there = self.collectives(nodes).to_one(width, nodes) + nodes * here.add
        back = self.collectives(nodes).to_one(width, nodes)
        work = self.gradient(-(-rows // nodes), nodes)
        update = self.apply(nodes) + here.copy
        return Round((*gradient_phases(work, 0.0), link("gradients to the server", there), compute("update", update),
                      link("weights back", back), compute("take weights", here.copy)), width)  # fmt: skip

    def tensor(self, rows: int, nodes: int) -> Round:
        """Matrices split; sums of activations for each pair of linear layers, forward and backward."""
        facts = self.calibration.facts
        whole, update = self.plain(rows, nodes), self.apply(nodes) / nodes
        share = min(1.0, sum(pair.flops for pair in facts.pairs) / facts.flops) if facts.flops else 1.0
        split = max(0.0, whole - self.plain(1e-9, nodes) - rows * self.calibration.load)
        work = whole - split * share * (1 - 1 / nodes) - self.apply(nodes) * (1 - 1 / nodes)
        moved = [4 * rows * count for pair in facts.pairs for count in pair.sums]
        summed = sum(self.collectives(nodes).all_reduce(count, nodes) for count in moved)
        sent = 2 * (nodes - 1) / nodes * sum(moved)
        return Round((*gradient_phases(max(work - update, 0.0), 0.0), link("sums of activations", summed),
                      compute("update", update)), sent)  # fmt: skip

    def pipeline(self, rows: int, stages: int) -> Round:
        """GPipe: m micro-batches, one after the other, through the slowest stage; the first one, and the last, also
        through all others: with equal stages that is a bubble of (p - 1) / (m + p - 1)."""
        facts = self.calibration.facts
        count = micro_batches(rows, self.job.shards, 1)
        cuts = balanced([layer.parameters for layer in facts.layers], stages)
        total = sum(layer.flops for layer in facts.layers) or 1.0
        parts = [sum(layer.flops for layer in facts.layers[start:end]) / total for start, end in cuts]
        contention = self._contention(rows / count, stages)
        beside = sum(parts) / max(parts) - 1 if max(parts) > 0 else 1.0  # stages that are busy beside the slowest
        busy = beside / max(1, stages - 1)
        seconds = self.plain(rows / count, stages) / contention * (1 + (contention - 1) * busy)
        each = max(0.0, seconds - self.apply(stages))
        numbers = [facts.layers[end - 1].outputs for _, end in cuts[:-1]]
        moved = [4 * rows / count * number for number in numbers]
        passed = 2 * max((self.collectives(stages).message(size) for size in moved), default=0.0)
        turn, others = each * max(parts), each * (sum(parts) - max(parts))
        update = self.apply(stages) / stages
        return Round((*gradient_phases(count * turn, 0.0), compute("bubble", others),
                      link("activations", (count + stages - 1) * passed), compute("update", update)),
                     2 * count * max(moved, default=0.0))  # fmt: skip

    def sharded(self, rows: int, nodes: int) -> Round:
        """Parameters gathered for the forward and the backward pass, gradients summed and scattered."""
        width, part = sum(self.calibration.facts.tensors), -(-rows // nodes)
        moving = self.collectives(nodes)
        gathered = 2 * moving.all_gather(width / nodes, nodes)
        scattered = moving.reduce_scatter(width, nodes)
        update = self.apply(nodes) / nodes
        work = max(0.0, self.plain(part, nodes) - self.apply(nodes))
        return Round((*gradient_phases(work, 0.0), link("gather parameters", gathered),
                      link("scatter gradients", scattered), compute("update", update)),
                     3 * (nodes - 1) / nodes * width)  # fmt: skip

    def mixed(self, one: Callable[[int, int], Round], rows: int, nodes: int) -> Round:
        """Models split over two nodes each; batches over the pairs, whose gradients are summed tensor by tensor."""
        pairs, facts = nodes // 2, self.calibration.facts
        within = one(-(-rows // pairs), 2)
        moving = self.collectives(nodes)
        summed = sum(moving.all_reduce(count / 2, pairs) for count in facts.tensors)
        sent = within.sent + 2 * (pairs - 1) / pairs * sum(facts.tensors) / 2
        return Round((*within.phases, link("all-reduce", summed)), sent)

    # ---- epochs ----

    def estimate(self, variant: Variant, nodes: int) -> Estimate:
        """What an epoch costs. On one node every strategy is training alone: no worker has to start."""
        if nodes == 1:
            return self._alone(variant) if variant.settings["strategy"] != "kfold" else self._folds(1)
        ranks = nodes + find_strategy(variant.settings["strategy"]).servers
        return replace(self._together(variant, nodes), start=self._start(ranks))

    def _start(self, ranks: int) -> float:
        """Workers that share this machine also share its cores while they start."""
        here = self.calibration
        return here.start * (1.0 if self.cluster.own_machines else max(1.0, ranks / max(1, here.workers)))

    def _together(self, variant: Variant, nodes: int) -> Estimate:
        kind = str(variant.settings["strategy"])
        if kind == "kfold":
            return self._folds(nodes)
        if kind == "parameter_server" and variant.settings.get("asynchronous"):
            return self._asynchronous(variant, nodes)
        if kind in ("local_sgd", "gossip"):
            return self._averaging(variant, nodes)
        return self._synchronous(variant, nodes)

    def _alone(self, variant: Variant) -> Estimate:
        rows = self._without_fold(self.rows)
        whole, rest = divmod(rows, self.job.batch_size)
        typical = self.training_alone(min(self.job.batch_size, rows))
        seconds = whole * typical.seconds + (self.training_alone(rest).seconds if rest else 0.0)
        return Estimate(self.node_folds * seconds, 0.0, 0.0, memory_of(self, variant, 1), typical)

    def _maker(self, variant: Variant) -> Callable[[int, int], Round]:
        """The function of rows and nodes that gives a round of this strategy; of those that average, one step."""
        rounds: dict[str, Callable[[int, int], Round]] = {
            "allreduce": self.exact if variant.settings.get("exact") else self.allreduce,
            "parameter_server": self.server, "tensor": self.tensor, "pipeline": self.pipeline,
            "sharded": self.sharded,
            "data+tensor": lambda rows, nodes: self.mixed(self.tensor, rows, nodes),
            "data+pipeline": lambda rows, nodes: self.mixed(self.pipeline, rows, nodes),
            "local_sgd": lambda rows, nodes: self.local(1, nodes, True),
            "gossip": lambda rows, nodes: self.gossip(1, nodes),
        }  # fmt: skip
        return rounds[str(variant.settings["strategy"])]

    def _synchronous(self, variant: Variant, nodes: int) -> Estimate:
        """A round is one batch."""
        make = self._maker(variant)
        more = self.unexplained(variant)
        whole, rest = divmod(self.rows, self.job.batch_size)
        typical = make(min(self.job.batch_size, self.rows), nodes).changed(more)
        last = make(rest, nodes).changed(more) if rest else Round(())
        scattered = self._scatter(nodes)
        seconds, communicating = typical.times(whole)
        return Estimate(
            seconds + last.seconds + scattered, communicating + last.communicating + scattered,
            (whole + (rest > 0)) * typical.sent, memory_of(self, variant, nodes), typical,
        )  # fmt: skip

    def _averaging(self, variant: Variant, nodes: int) -> Estimate:
        """Steps of each node by itself; the slowest one has the most rows."""
        every = variant.settings["average_every"]
        ring = variant.settings["strategy"] == "gossip"
        mine, networks = self._without_fold(self._most_rows(nodes)), self.node_folds
        steps, rest_rows = -(-mine // self.job.batch_size), mine % self.job.batch_size
        each = steps if isinstance(every, str) else int(every)
        averages = every != "end"

        def make(count: int) -> Round:
            return self.gossip(count, nodes) if ring else self.local(networks * count, nodes, averages)

        more = self.unexplained(variant) * averages
        whole, rest = divmod(steps, each)
        typical = make(each).changed(more)
        last = make(rest).changed(more) if rest else Round(())
        saved = 0.0
        if rest_rows:  # the last step of a network has fewer rows; a part of a round becomes shorter as the whole did
            count = rest or each
            full, short = (self.vector(size, nodes, networks * count) for size in (self.job.batch_size, rest_rows))
            saved = (full - short) * make(count).kept(more)
        rounds, scattered = whole + (rest > 0), self._scatter(nodes)
        at_end = self.calibration.facts.averaged if every == "end" or ring else 0.0
        seconds, communicating = typical.times(whole)
        return Estimate(
            seconds + last.seconds - networks * saved + scattered,
            communicating + last.communicating + scattered,
            rounds * typical.sent, memory_of(self, variant, nodes), typical,
            finish=self.collectives(nodes).all_reduce(at_end, nodes), sent_at_end=2 * (nodes - 1) / nodes * at_end,
        )  # fmt: skip

    def _without_fold(self, rows: int) -> int:
        """Rows that each network of a node learns from."""
        return rows - rows // self.node_folds if self.node_folds > 1 else rows

    def _most_rows(self, nodes: int) -> int:
        """Rows of the node that has the most of them."""
        if self.shares is not None and len(self.shares) == nodes:
            return round(self.rows * max(self.shares) / sum(self.shares))
        return max(end - start for start, end in shares(self.rows, nodes))

    def _asynchronous(self, variant: Variant, nodes: int) -> Estimate:
        here, width = self.calibration, self.calibration.facts.width
        moving = self.collectives(nodes)
        message = moving.message(width)
        service = here.apply + 2 * here.copy
        steps = [-(-(end - start) // self.job.batch_size) for start, end in shares(self.rows, nodes)]
        alone = replace(self, cluster=replace(self.cluster, speeds=()), calibration=replace(here, jitter=()))
        work = alone.gradient(self.job.batch_size, nodes) + here.copy
        occupied = self.cluster.wire(width) if self.cluster.link else message
        each = [work / speed for speed in self.cluster.speeds_of(nodes)]
        found = serve(steps, each, message, occupied, service, here.jitter or (1.0,))
        seconds, total = found.seconds, sum(steps)
        if not self.cluster.own_machines:  # workers and server share the cores: none of their work is free
            seconds = max(seconds, total * (work / self._shared(nodes)[1] + 2 * message + service) / here.cores)
        waiting = max(0.0, seconds - max(count * own for count, own in zip(steps, each, strict=True)))
        corrected = max(SHORTEST * seconds, seconds + max(steps) * self.unexplained(variant))
        factor = min(1.0, corrected / seconds) if 0 < seconds < math.inf else 1.0
        spans = [{**span, **{key: factor * span[key] for key in ("start", "seconds")}}  # type: ignore[operator]
                 for span in found.spans]  # fmt: skip
        return Estimate(corrected + self._scatter(nodes), factor * waiting, max(steps) * width,
                        memory_of(self, None, nodes), spans=spans,
                        note=f"gradients are {found.staleness:.1f} updates old on average")  # fmt: skip

    def _folds(self, nodes: int) -> Estimate:
        """Each node trains whole folds, one on each core."""
        here, folds = self.calibration, self.job.folds
        at_once = nodes * here.cores if self.cluster.own_machines else nodes
        turns = -(-folds // at_once)
        running = min(folds, at_once)
        busy = min(running, here.cores) if self.cluster.own_machines else running
        rows = self.rows - self.rows // folds
        shared = replace(self, cluster=replace(self.cluster, own_machines=False))
        batch = min(self.job.batch_size, rows)
        step = self._scaled(here.plain[1], batch) * shared._contention(batch, busy) * shared._shared(max(busy, 1))[1]
        seconds = turns * rows / batch * step * self.cluster.slowest(nodes)
        return Estimate(seconds, 0.0, 0.0, memory_of(self, None, nodes), Round((compute("a step of a fold", step),)))

    def _scatter(self, nodes: int) -> float:
        """Over MPI the first rank sends each its rows, epoch by epoch."""
        if self.job.backend != "mpi" or nodes == 1:
            return 0.0
        count = self.rows * self.calibration.facts.row
        return self.collectives(nodes).scatter(count, nodes)

    def unexplained(self, variant: Variant) -> float:
        """Seconds of a round that the model does not know of: a small step, measured here, less what the model says.

        Less than nothing where the model says too much; but not for nodes unlike those that were measured.
        """
        found = self._beyond(variant)
        return found if self.cluster.is_this_machine else max(0.0, found)

    def _beyond(self, variant: Variant) -> float:
        here, name = self.calibration, small_name(variant)
        if not self.corrected or name not in here.small:
            return here.overhead.get(name, 0.0) if self.corrected else 0.0
        rows, measured = here.small[name]
        inside = replace(self, cluster=Cluster(), job=replace(self.job, batch_size=rows), corrected=False)
        if variant.settings.get("asynchronous"):  # measured: a step of any worker; they take theirs side by side
            known = replace(inside, rows=rows * here.workers)._asynchronous(variant, here.workers).seconds
            return measured * here.workers - known
        return measured - inside._maker(variant)(rows, here.workers).seconds


def between(one: float, all_cores: float, threads: int, cores: int) -> float:
    """Seconds with some of the cores, from those with one and with all: a part of the work is shared (Amdahl).

    >>> between(8.0, 1.0, 4, 8), between(8.0, 8.0, 4, 8), between(8.0, 4.5, 2, 8)
    (2.0, 8.0, 6.0)
    """
    if cores == 1 or threads == 1:
        return one
    shared = max(0.0, one - all_cores) / (1 - 1 / cores)
    return one - shared * (1 - 1 / threads) if all_cores <= one else all_cores


def gradient_phases(seconds: float, update: float) -> tuple[Phase, ...]:
    """A gradient as a forward and a backward pass, then the step of the optimiser."""
    phases = (compute("forward", FORWARD * seconds), compute("backward", (1 - FORWARD) * seconds))
    return (*phases, compute("update", update)) if update else phases


def overlapped(backward: float, summed: float, share: float) -> float:
    """Seconds of both together, `share` of the sums beside the backward pass: (b^g + s^g)^(1/g) as in AdaptDL.

    g is 1 where nothing overlaps (one bucket, complete only at the end), and large where nearly all does.

    >>> overlapped(3.0, 4.0, 0.0), overlapped(3.0, 4.0, 0.5)
    (7.0, 5.0)
    """
    if share >= 1 or math.isinf(summed):
        return max(backward, summed)
    power = 1 / (1 - share)
    largest = max(backward, summed)
    if largest == 0:
        return 0.0
    return largest * ((backward / largest) ** power + (summed / largest) ** power) ** (1 / power)
