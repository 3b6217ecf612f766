"""A link between nodes: how fast, how late."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from shoal.errors import UserError
from shoal.validate import nearest

BANDWIDTHS = {
    "kbit": 1e3 / 8, "mbit": 1e6 / 8, "gbit": 1e9 / 8, "tbit": 1e12 / 8,
    "kbyte": 1e3, "mbyte": 1e6, "gbyte": 1e9, "tbyte": 1e12,
    "kbps": 1e3 / 8, "mbps": 1e6 / 8, "gbps": 1e9 / 8,
}  # fmt: skip
LATENCIES = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
LEAST_RATE, MOST_RATE = 1e3 / 8, 1e15 / 8  # bytes a second
MOST_LATENCY = 60.0  # seconds
EXAMPLE = "as in --link 1gbit,0.1ms"


@dataclass(frozen=True)
class Link:
    """Each node sends and receives so many bytes a second at the same time; a message is `latency` seconds late.

    >>> Link.parse("1gbit,0.1ms")
    Link(bandwidth=125000000.0, latency=0.0001)
    >>> print(Link(125e6, 1e-4))
    1 Gbit/s, 0.1 ms
    """

    bandwidth: float = math.inf
    latency: float = 0.0

    @classmethod
    def parse(cls, text: str, name: str = "--link") -> Link:
        """From a bandwidth and a latency, or a bandwidth alone."""
        parts = [part.strip() for part in text.split(",")]
        if len(parts) > 2 or not all(parts):
            raise UserError(f"{name} is a bandwidth and a latency, {EXAMPLE}; got {text!r}")
        bandwidth = _quantity(name, parts[0], BANDWIDTHS, "a bandwidth", text)
        latency = _quantity(name, parts[1], LATENCIES, "a latency", text) if len(parts) == 2 else 0.0
        return cls(bandwidth, latency).checked(name, text)

    def checked(self, name: str, given: object) -> Link:
        """The link, if there is one: a rate or a delay without end would make a plan of infinities."""
        if not LEAST_RATE <= self.bandwidth <= MOST_RATE:
            raise UserError(f"{name}: the bandwidth must be from 1 kbit to 1000 tbit, {EXAMPLE}; got {given!r}. Leave "
                            f"{name} out for nodes that share this machine")  # fmt: skip
        if not 0 <= self.latency <= MOST_LATENCY:
            raise UserError(f"{name}: the latency must be from 0 to {MOST_LATENCY:g} s, {EXAMPLE}; got {given!r}")
        return self

    def __str__(self) -> str:
        return f"{bandwidth_words(self.bandwidth)}, {latency_words(self.latency)}"


def _quantity(name: str, text: str, units: dict[str, float], what: str, whole: str) -> float:
    found = re.fullmatch(r"([0-9.]+(?:e[+-]?[0-9]+)?)\s*([a-z]*)(?:/s)?", text.lower())
    try:
        value = float(found[1]) if found else -1.0
    except ValueError:
        value = -1.0
    if found is None or value < 0:
        raise UserError(f"{name}: {what} is a number with a unit, {EXAMPLE}; got {whole!r}")
    if value == 0 and what == "a latency":
        return 0.0
    if found[2] not in units:
        known = ", ".join(units)
        missing = f"{text!r} has no unit" if not found[2] else f"{found[2]!r} is no unit of {what}"
        raise UserError(f"{name}: {missing}; give one of {known}, {EXAMPLE}{nearest(found[2], units)}")
    return value * units[found[2]]


def bandwidth_words(rate: float) -> str:
    """
    >>> bandwidth_words(387.5e6), bandwidth_words(1.25e6), bandwidth_words(math.inf)
    ('3.1 Gbit/s', '10 Mbit/s', 'no limit')
    """
    if math.isinf(rate):
        return "no limit"
    bits = 8 * rate
    for unit, size in (("Tbit/s", 1e12), ("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3)):
        if bits >= size or unit == "kbit/s":
            return f"{bits / size:.2g} {unit}" if bits / size < 100 else f"{bits / size:,.0f} {unit}"
    raise AssertionError("the last unit fits all")


def latency_words(seconds: float) -> str:
    """
    >>> latency_words(1e-4), latency_words(2.5e-5), latency_words(0)
    ('0.1 ms', '25 us', 'no latency')
    """
    if seconds <= 0:
        return "no latency"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-4 else f"{seconds * 1e6:.3g} us"
