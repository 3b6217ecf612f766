"""The nodes that a plan is about: what each computes with, whether they share this machine, the link between them."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from shoal.errors import UserError
from shoal.planner.cost.links import Link

FLOPS = {"gflops": 1e9, "tflops": 1e12, "pflops": 1e15}
RATES = {"gb/s": 1e9, "tb/s": 1e12, "gbyte/s": 1e9, "tbyte/s": 1e12}
LEAST, MOST = 1e-6, 1e6  # of these units
PAYLOAD = 0.95  # of a link's nominal bandwidth, as plain sockets reach it; the rest are headers of Ethernet, IP, TCP
NODE_EXAMPLE = "as in --node 4tflops,200gb/s"


@dataclass(frozen=True)
class Hardware:
    """Another node than this machine, by what its matrix product and its memory reach.

    >>> Hardware.parse("4tflops,200gb/s")
    Hardware(flops=4000000000000.0, bandwidth=200000000000.0)
    """

    flops: float
    bandwidth: float

    @classmethod
    def parse(cls, text: str, name: str = "--node") -> Hardware:
        parts = [part.strip().lower() for part in text.split(",")]
        if len(parts) != 2:
            raise UserError(f"{name} is floating-point operations and bytes a second, {NODE_EXAMPLE}; got {text!r}")
        return cls(_value(name, parts[0], FLOPS, text), _value(name, parts[1], RATES, text))


def _value(name: str, text: str, units: dict[str, float], whole: str) -> float:
    found = re.fullmatch(r"([0-9.]+)\s*([a-z/]+)", text)
    try:
        value = float(found[1]) if found else 0.0
    except ValueError:
        value = 0.0
    if found is None or found[2] not in units or not LEAST <= value <= MOST:
        raise UserError(f"{name}: {text!r} is no number from {LEAST:g} to {MOST:,.0f} with one of the units "
                        f"{', '.join(units)}, {NODE_EXAMPLE}; got {whole!r}")  # fmt: skip
    return value * units[found[2]]


@dataclass(frozen=True)
class Cluster:
    """`link` None: messages take what was measured between workers on this machine."""

    link: Link | None = None
    own_machines: bool = False  # each node is a machine by itself; else all share this one's cores
    speeds: tuple[float, ...] = ()  # of each node, this machine's is 1; the last one holds for all further nodes
    hardware: Hardware | None = None

    @property
    def is_this_machine(self) -> bool:
        """Whether nodes compute as workers do that were measured here, whatever the link between them."""
        return not (self.own_machines or self.speeds or self.hardware)

    def slowest(self, nodes: int) -> float:
        """How many times longer than here the slowest node computes.

        >>> Cluster(speeds=(1, 0.5)).slowest(1), Cluster(speeds=(1, 0.5)).slowest(3)
        (1.0, 2.0)
        """
        return max(1 / speed for speed in self.speeds_of(nodes))

    def speeds_of(self, nodes: int) -> list[float]:
        """Who trains alone takes the fastest node.

        >>> Cluster(speeds=(0.5, 1)).speeds_of(1), Cluster(speeds=(0.5, 1)).speeds_of(3)
        ([1.0], [0.5, 1.0, 1.0])
        """
        if not self.speeds:
            return [1.0] * nodes
        if nodes == 1:
            return [float(max(self.speeds))]
        return [float(self.speeds[min(k, len(self.speeds) - 1)]) for k in range(nodes)]

    def wire(self, count: float, messages: int = 1) -> float:
        """Seconds on the link of so many bytes in so many messages, one after the other."""
        if self.link is None or count <= 0:
            return 0.0
        if self.link.bandwidth <= 0:
            return math.inf
        return messages * self.link.latency + count / (PAYLOAD * self.link.bandwidth)
