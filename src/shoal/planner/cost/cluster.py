"""The nodes of a plan: their hardware, whether they share this machine, and the link between them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from shoal.errors import UserError
from shoal.report.shell.words import moment, rate
from shoal.validate import nearest

BANDWIDTHS = {
    "kbit": 1e3 / 8, "mbit": 1e6 / 8, "gbit": 1e9 / 8, "tbit": 1e12 / 8,
    "kbyte": 1e3, "mbyte": 1e6, "gbyte": 1e9, "tbyte": 1e12,
    "kbps": 1e3 / 8, "mbps": 1e6 / 8, "gbps": 1e9 / 8,
}  # fmt: skip
LATENCIES = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
FLOPS = {"gflops": 1e9, "tflops": 1e12, "pflops": 1e15}
MEMORY_RATES = {"gb/s": 1e9, "tb/s": 1e12, "gbyte/s": 1e9, "tbyte/s": 1e12}
BANDWIDTH_RANGE = (1e3 / 8, 1e15 / 8)  # bytes a second
LATENCY_RANGE = (0.0, 60.0)  # seconds
HARDWARE_RANGE = (1e3, 1e21)  # operations or bytes a second
PAYLOAD_SHARE = 0.95  # of a link's nominal bandwidth, as plain sockets reach it; the rest are headers


@dataclass(frozen=True)
class NodeLink:
    """Each node sends and receives so many bytes a second at the same time; a message is `latency` seconds late.

    >>> NodeLink.parse("1gbit,0.1ms")
    NodeLink(bandwidth=125000000.0, latency=0.0001)
    >>> print(NodeLink(125e6, 1e-4))
    1 Gbit/s, 0.1 ms
    """

    bandwidth: float = math.inf
    latency: float = 0.0

    @classmethod
    def parse(cls, text: str, name: str = "--link") -> NodeLink:
        """From a bandwidth and a latency, or a bandwidth alone."""
        parts = [part.strip() for part in text.split(",")]
        example = _example(name, "1gbit,0.1ms", text)
        if len(parts) > 2 or not all(parts):
            raise UserError(f"{name} must be a bandwidth and a latency, {example}")
        bandwidth = _quantity(name, parts[0], BANDWIDTHS, example)
        late = _quantity(name, parts[1], LATENCIES, example) if parts[1:] else 0.0
        return cls(bandwidth, late).checked(name, text)

    def checked(self, name: str, given: object) -> NodeLink:
        """The link, if its numbers are those of one; an endless rate or delay would make a plan of infinities."""
        example = _example(name, "1gbit,0.1ms", given)
        if not BANDWIDTH_RANGE[0] <= self.bandwidth <= BANDWIDTH_RANGE[1]:
            raise UserError(f"{name}: the bandwidth must be from 1 kbit to 1000 tbit, {example}. Omit {name} for nodes "
                            "that share this machine")  # fmt: skip
        if not LATENCY_RANGE[0] <= self.latency <= LATENCY_RANGE[1]:
            raise UserError(f"{name}: the latency must be from 0 to {LATENCY_RANGE[1]:g} s, {example}")
        return self

    def __str__(self) -> str:
        return f"{rate(self.bandwidth)}, {moment(self.latency)}"


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
        parts = [part.strip() for part in text.split(",")]
        example = _example(name, "4tflops,200gb/s", text)
        if len(parts) != 2:
            raise UserError(f"{name} must be floating-point operations and bytes a second, {example}")
        made = cls(_quantity(name, parts[0], FLOPS, example), _quantity(name, parts[1], MEMORY_RATES, example))
        if not all(HARDWARE_RANGE[0] <= value <= HARDWARE_RANGE[1] for value in (made.flops, made.bandwidth)):
            raise UserError(f"{name}: both rates must be from 1e-6 gflops or gb/s to 1e12 gflops or gb/s, {example}")
        return made


def _example(name: str, example: str, given: object) -> str:
    return f"as in --{name.lstrip('-')} {example}; got {given!r}"


def _quantity(name: str, text: str, units: Mapping[str, float], example: str) -> float:
    """A number with one of the units, or zero; `example` ends the error."""
    found = re.fullmatch(r"((?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)\s*([a-z/]*)", text.lower())
    if found is None:
        raise UserError(f"{name}: {text!r} is not a number with a unit, {example}")
    unit = found[2] if found[2] in units else found[2].removesuffix("/s")
    if not unit and float(found[1]) == 0:
        return 0.0
    if unit not in units:
        wrong = f"{unit!r} is not a unit" if unit else f"{text!r} has no unit"
        raise UserError(f"{name}: {wrong}; use one of {', '.join(units)}, {example}{nearest(unit, units)}")
    return float(found[1]) * units[unit]


@dataclass(frozen=True)
class Cluster:
    """`link` None: messages take what was measured between workers on this machine."""

    link: NodeLink | None = None
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
        """One node alone is the fastest of them.

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
        return messages * self.link.latency + count / (PAYLOAD_SHARE * self.link.bandwidth)
