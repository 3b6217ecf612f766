"""Cost of moving numbers between n nodes, by the algorithms that the backends really use.

Each has two parts. The software's part (copies, sums, system calls) was measured between two workers on this machine,
as a curve over bytes; the part of the link is its latency and bandwidth. Without a link given, messages are what was
measured here, and the link has no part.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from shoal.parallel.exact.tree_sum import cover, shares
from shoal.planner.cost.cluster import Cluster
from shoal.planner.cost.curves import Curve

# In gloo, bytes that two nodes send each other at the same time slow each other down; plain sockets do not. So many
# times the bytes of one direction are counted (measured by benchmarks/planner/duplex.py). A ring all-reduce cuts the
# vector into segments, and is hardly slowed down.
BOTH_WAYS = {"exchange": 1.7, "all_gather": 1.3, "all_reduce": 1.08}


@dataclass(frozen=True)
class Collectives:
    """Seconds of operations over n nodes. `slowed`: how many times the software's part takes longer."""

    measured: Mapping[str, Curve]  # between two workers, against bytes of one of them
    cluster: Cluster
    slowed: float = 1.0
    backend: str = "processes"

    def _both_ways(self, name: str) -> float:
        return BOTH_WAYS[name] if self.backend == "processes" else 1.0

    def _software(self, name: str, count: float) -> float:
        curve = self.measured.get(name)
        return self.slowed * curve(count) if curve is not None and count > 0 else 0.0

    def all_reduce(self, count: float, nodes: int) -> float:
        """A ring, as gloo's: 2 (n - 1) steps, each with an n-th of the vector. MPI's tree has fewer steps:

        halves, then quarters, ... to the one and back (Rabenseifner), 2 log2(n) of them.
        """
        if nodes == 1 or count <= 0:
            return 0.0
        steps, piece = 2 * (nodes - 1), count / nodes
        if self.backend == "mpi":
            levels, moved = math.ceil(math.log2(nodes)), steps * piece
            curve = self.measured.get("all_reduce")
            fixed = min(curve.fixed, curve(count)) if curve is not None else 0.0
            software = levels * fixed + (self._software("all_reduce", count) / self.slowed - fixed) * moved / count
            return self.slowed * software + self.cluster.wire(moved, 2 * levels)
        on_link = self.cluster.wire(self._both_ways("all_reduce") * steps * piece, steps)
        return self._software("all_reduce", 2 * piece) * (nodes - 1) + on_link

    def tree_sum(self, count: float, nodes: int, shards: int) -> float:
        """The exact sum: parts of the vector to each other node, then the sums gathered."""
        if nodes == 1:
            return 0.0
        pair = self._held(nodes, shards) * count / nodes  # bytes from one node to another
        exchange = self._software("exchange", 2 * pair) * (nodes - 1)
        exchange += self.cluster.wire(self._both_ways("exchange") * pair * (nodes - 1))
        return exchange + self.all_gather(count / nodes, nodes)

    @staticmethod
    def _held(nodes: int, shards: int) -> int:
        """Nodes of the tree that the busiest worker holds: one, where the number of workers divides the shards."""
        return max(len(cover(part, (0, shards))) for part in shares(shards, nodes))

    def tree_sum_bytes(self, count: float, nodes: int, shards: int) -> float:
        if nodes == 1:
            return 0.0
        return (self._held(nodes, shards) + 1) * count / nodes * (nodes - 1)

    def all_gather(self, chunk: float, nodes: int) -> float:
        """A ring: n - 1 steps with a chunk each. Measured: the vector of which two workers hold a half each."""
        steps = nodes - 1
        on_link = self.cluster.wire(self._both_ways("all_gather") * steps * chunk, steps)
        return self._software("all_gather", 2 * chunk) * steps + on_link

    def reduce_scatter(self, count: float, nodes: int) -> float:
        """Half of a ring all-reduce."""
        return self.all_reduce(count, nodes) / 2

    def message(self, count: float) -> float:
        """From one node to another."""
        return self._software("message", count) + self.cluster.wire(count)

    def occupied(self, count: float) -> float:
        """Seconds of a message during which the receiver's link has no room for another."""
        return self.cluster.wire(count) if self.cluster.link else self.message(count)

    def to_one(self, count: float, nodes: int) -> float:
        """From n nodes to one, whose link they share; or back."""
        return self._software("message", count) * nodes + self.cluster.wire(count * nodes)

    def scatter(self, count: float, nodes: int) -> float:
        """All rows of an epoch from the first node to the others."""
        return self._software("scatter", count) + self.cluster.wire(count * (nodes - 1) / nodes)

    def neighbours(self, count: float, nodes: int) -> float:
        """On a ring, to the left and to the right at the same time; of two nodes, to the other one."""
        if nodes == 1:
            return 0.0
        ways = 1 if nodes == 2 else 2
        return self._software("message", count) * 2 * ways + self.cluster.wire(count * ways)
