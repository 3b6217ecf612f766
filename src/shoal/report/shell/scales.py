"""Axes: the mapping from values to positions, and tick labels."""

from __future__ import annotations

import math
from dataclasses import dataclass

from shoal.report.shell.words import fixed, significant


def ticks(low: float, high: float, about: int = 4) -> list[float]:
    """Round numbers between two values: steps of 1, 2 or 5 times a power of ten.

    >>> ticks(0.68, 0.79)
    [0.7, 0.75]
    """
    if not high > low:
        return [low]
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [float(f"{index * step:.12g}") for index in range(first, last + 1)]


def tick_texts(values: list[float]) -> list[str]:
    """Tick labels, all with the same decimals: as few as are needed.

    >>> tick_texts([0.7, 0.75]), tick_texts([0.0, 20000.0])
    (['0.70', '0.75'], ['0', '20,000'])
    """
    if any(abs(value) >= 1e7 or 0 < abs(value) < 1e-4 for value in values):
        return [significant(value) for value in values]
    decimals = 0
    while decimals < 6 and any(abs(round(value, decimals) - value) > 1e-9 * max(1, abs(value)) for value in values):
        decimals += 1
    return [fixed(value, decimals) for value in values]


@dataclass(frozen=True)
class Axis:
    """A linear mapping from values (low to high) to positions in the figure (start to end)."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 1)

    def on_slider(self, value: float) -> float:
        """A value as the slider of a figure counts it: positions are linear in these."""
        return value

    def marks(self, about: int = 4, factor: float = 1) -> list[tuple[float, str]]:
        """Positions and labels of ticks; labels show the value times `factor`, e.g. 100 for percentages."""
        values = ticks(self.low, self.high, about)
        texts = tick_texts([float(f"{value * factor:.12g}") for value in values])
        return [(self(value), text) for value, text in zip(values, texts, strict=True)]


@dataclass(frozen=True)
class LogAxis(Axis):
    """A logarithmic axis: equal factors are equal distances. All values are positive."""

    def __call__(self, value: float) -> float:
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return round(self.start + share * (self.end - self.start), 1)

    def on_slider(self, value: float) -> float:
        return math.log2(value)

    def marks(self, about: int = 4, factor: float = 1) -> list[tuple[float, str]]:
        """Powers of ten; where there is room also 3, or 2 and 5, times these."""
        lowest, highest = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        found: list[float] = []
        for heads in ((1,), (1, 3), (1, 2, 5)):
            every = (head * 10.0**power for power in range(lowest, highest + 1) for head in heads)
            finer = [float(f"{value:.12g}") for value in every if self.low <= value <= self.high]
            if not found or len(finer) <= about:
                found = finer
        if len(found) < 2:
            found = [value for value in ticks(self.low, self.high, about) if value > 0]
        found = found[:: math.ceil(len(found) / (about + 1)) or 1]
        return [(self(value), tick_texts([float(f"{value * factor:.12g}")])[0]) for value in found]


def log_padded(values: list[float], share: float = 0.06) -> tuple[float, float]:
    """As `padded`, for a logarithmic axis.

    >>> log_padded([1.0, 100.0], 0.5), log_padded([3.0])
    ((0.1, 1000.0), (1.5, 6.0))
    """
    low, high = min(values), max(values)
    room = (high / low) ** share if high > low * 1.000001 else 2.0
    return float(f"{low / room:.12g}"), float(f"{high * room:.12g}")


def padded(values: list[float], share: float = 0.06) -> tuple[float, float]:
    """The range of some values with a margin at both ends; never empty.

    >>> padded([1.0, 1.0])
    (0.5, 1.5)
    """
    low, high = min(values), max(values)
    flat = high - low <= 1e-12 * max(abs(low), abs(high), 1e-300)
    room = (abs(low) * 0.5 or 1.0) if flat else (high - low) * share
    return low - room, high + room
