"""The time of an epoch on n nodes, from what was measured on this machine. The formulas are those of the strategies."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from shoal.parallel.cost import Estimate, Facts, TrainingRound, Variant, gradient_phases, memory_of
from shoal.parallel.exact.tree_sum import shares
from shoal.planner.cost.cluster import Cluster
from shoal.planner.cost.collectives import Collectives
from shoal.planner.cost.curves import Curve
from shoal.planner.measure.calibration import MachineCalibration

if TYPE_CHECKING:
    from shoal.parallel.job import Job

DRAWS = 400  # of the slowest of n steps, of which the mean is taken


@dataclass(frozen=True)
class CostModel:
    """What the cost formulas of strategies ask for, and estimates from them."""

    calibration: MachineCalibration
    cluster: Cluster
    job: Job
    rows: int  # of an epoch
    corrected: bool = True  # by small steps of each strategy, measured on this machine
    shares: tuple[float, ...] | None = None  # of the rows, where nodes keep theirs and have more or fewer
    node_folds: int = 1  # networks that each node trains, one after the other, each without a fold of the node's rows
    batch_per_node: bool = False  # more nodes, larger batches, where nodes share a batch

    # ---- what was measured ----

    @property
    def facts(self) -> Facts:
        return self.calibration.facts

    def on_one_machine(self) -> CostModel:
        """The same for threads of one node."""
        return replace(self, cluster=replace(self.cluster, own_machines=False, speeds=()))

    # ---- computing ----

    @cached_property
    def _scales(self) -> tuple[float, float]:
        """How much longer products and copies take on the hardware asked for than here."""
        hardware, here = self.cluster.hardware, self.calibration
        if hardware is None:
            return 1.0, 1.0
        return here.peak_flops / hardware.flops, here.peak_bytes / hardware.bandwidth

    def threads(self, ranks: int) -> int:
        """BLAS threads of each node."""
        return (
            self.calibration.cores
            if self.cluster.own_machines or ranks == 1
            else max(1, self.calibration.cores // ranks)
        )

    def turns(self, ranks: int) -> float:
        """How many nodes take turns on a core."""
        return 1.0 if self.cluster.own_machines or ranks == 1 else max(1.0, ranks / self.calibration.cores)

    def contention(self, rows: float, ranks: int) -> float:
        """How much longer a step takes because others take theirs at the same time, on cores of their own."""
        here = self.calibration
        if self.cluster.own_machines or ranks == 1 or here.cores == 1 or not here.contention:
            return 1.0
        sizes, ratios = ([point[k] for point in here.contention] for k in (0, 1))
        full = float(np.interp(rows, sizes, ratios))
        return 1 + (full - 1) * min(1.0, (ranks - 1) / max(1, here.cores - 1))

    def _step(self, curves: dict[int, Curve], rows: float, ranks: int, steps: int = 1, waits: bool = True) -> float:
        """With the number of threads that is faster, where a node has all cores.

        Nodes wait for the slowest one after so many `steps`: it takes fewer seconds more of each, the more they are.
        """
        cores = self.calibration.cores
        one, all_cores = (self._scaled(curves[count], rows) for count in (1, cores))
        seconds = min(one, between(one, all_cores, self.threads(ranks), cores))
        if self.job.blas_threads is not None:
            seconds = between(one, all_cores, min(self.job.blas_threads, cores), cores)
        seconds = seconds * self.turns(ranks) * self.contention(rows, ranks)
        if not waits:
            return seconds
        return (
            seconds
            * self.cluster.slowest(ranks)
            * (1 + (slowest_of(ranks, self.calibration.jitter) - 1) / math.sqrt(steps))
        )

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
        return self.calibration.apply * self.turns(ranks) * self._scales[1]

    def gradient(self, rows: float, ranks: int, waits: bool = True) -> float:
        """`waits`: for the slowest node."""
        step = self._step(self.calibration.vector, rows, ranks, waits=waits) if rows > 0 else 0.0
        return max(step - self.apply(ranks), 0.0)

    def one_thread(self, rows: float) -> float:
        """A step of the plain loop in one thread."""
        return self._scaled(self.calibration.plain[1], rows)

    # ---- messages ----

    def messages(self, ranks: int) -> Collectives:
        return Collectives(self.calibration.messages, self.cluster, self.turns(ranks), self.job.backend)

    def scattering(self, nodes: int) -> float:
        """Over MPI the first rank sends each its rows, epoch by epoch."""
        if self.job.backend != "mpi" or nodes == 1:
            return 0.0
        return self.messages(nodes).scatter(self.rows * self.facts.row, nodes)

    # ---- rows ----

    def without_fold(self, rows: int) -> int:
        """Rows that each network of a node learns from."""
        return rows - rows // self.node_folds if self.node_folds > 1 else rows

    def most_rows(self, nodes: int) -> int:
        """Rows of the node that has the most of them."""
        if self.shares is not None and len(self.shares) == nodes:
            return round(self.rows * max(self.shares) / sum(self.shares))
        return max(end - start for start, end in shares(self.rows, nodes))

    # ---- epochs ----

    def estimate(self, variant: Variant, nodes: int) -> Estimate:
        """What an epoch costs. On one node every strategy is training alone: no worker has to start."""
        return self.settled(variant, nodes)._estimate(variant, nodes)

    def settled(self, variant: Variant, nodes: int) -> CostModel:
        """The costs of this very training: with the batch of all nodes, and with folds where nodes have any."""
        grows = self.batch_per_node and not variant.own_algorithm
        job = replace(self.job, batch_size=self.job.batch_size * nodes) if grows else self.job
        return replace(self, job=job, batch_per_node=False, node_folds=self.node_folds if variant.can_fold else 1)

    def _estimate(self, variant: Variant, nodes: int) -> Estimate:
        strategy = variant.strategy
        if nodes == 1:
            return strategy.estimate(self, variant, 1) if strategy.holds_out_rows else self._alone()
        here, ranks = self.calibration, nodes + strategy.servers
        # Workers that share this machine also share its cores while they start.
        start = here.start * (1.0 if self.cluster.own_machines else max(1.0, ranks / max(1, here.workers)))
        return replace(strategy.estimate(self, variant, nodes), start=start)

    def _alone(self) -> Estimate:
        rows = self.without_fold(self.rows)
        whole, rest = divmod(rows, self.job.batch_size)
        typical = self._round_alone(min(self.job.batch_size, rows))
        seconds = whole * typical.seconds + (self._round_alone(rest).seconds if rest else 0.0)
        return Estimate(self.node_folds * seconds, 0.0, 0.0, memory_of(self, 1), typical)

    def _round_alone(self, rows: int) -> TrainingRound:
        seconds = self.plain(rows)
        update = min(self.apply(), seconds)
        return TrainingRound(gradient_phases(seconds - update, update))

    def unexplained(self, variant: Variant) -> float:
        """Seconds of a round that the formula does not know of: a small step, measured here, less what it says.

        Less than nothing where the formula says too much; but not for nodes unlike those that were measured.
        """
        found = self._beyond(variant)
        return found if self.cluster.is_this_machine else max(0.0, found)

    def _beyond(self, variant: Variant) -> float:
        here, name = self.calibration, variant.small_name
        if not self.corrected or name not in here.small:
            return here.overhead.get(name, 0.0) if self.corrected else 0.0
        rows, measured = here.small[name]
        inside = replace(self, cluster=Cluster(), job=replace(self.job, batch_size=rows), rows=rows * here.workers,
                         corrected=False)  # fmt: skip
        return variant.strategy.unexplained(inside, variant, rows, here.workers, measured)


def between(one: float, all_cores: float, threads: int, cores: int) -> float:
    """Seconds with some of the cores, from those with one and with all: a part of the work is shared (Amdahl).

    >>> between(8.0, 1.0, 4, 8), between(8.0, 8.0, 4, 8), between(8.0, 4.5, 2, 8)
    (2.0, 8.0, 6.0)
    """
    if cores == 1 or threads == 1:
        return one
    shared = max(0.0, one - all_cores) / (1 - 1 / cores)
    return one - shared * (1 - 1 / threads) if all_cores <= one else all_cores


def slowest_of(nodes: int, samples: Sequence[float]) -> float:
    """How much longer than one node's step the slowest of n steps takes, on average.

    `samples` are measured steps; they are drawn at random for each node.

    >>> slowest_of(1, [1.0, 2.0]), slowest_of(3, [1.0, 1.0])
    (1.0, 1.0)
    """
    if nodes == 1 or len(samples) < 2:
        return 1.0
    chance = random.Random(0)
    largest = [max(chance.choices(samples, k=nodes)) for _ in range(DRAWS)]
    return max(1.0, statistics.fmean(largest) / statistics.fmean(samples))
