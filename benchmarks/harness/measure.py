"""Timing, interleaved: every contender runs once before any of them runs again, so that noise hits all alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from shoal.console import terminal
from shoal.console.progress import Bar

Tick = Callable[[str], None]  # told what comes next, once for each measurement
FAR_BEHIND = 1.6  # times slower
LONG = 8.0  # seconds


@dataclass(frozen=True)
class Contender:
    """Something to be timed. Contenders of one name are variants (threads, formulations): the fastest one counts."""

    name: str
    run: Callable[[], object]
    warm_up: Callable[[], object]
    divisor: float = 1.0  # epochs in one run
    scale: float = 1.0  # work of a whole epoch over the work of a measured one
    scaled: str = ""  # what was measured instead of the whole, in words
    variant: str = ""  # e.g. "2 threads"
    idle: Callable[[], object] | None = None  # timed in the same turn, and taken off


@dataclass(frozen=True)
class Timing:
    """Seconds of one epoch of the whole: the best of the repeats."""

    name: str
    seconds: float
    scaled: str
    variant: str
    raw: dict[str, list[float]] = field(default_factory=dict)  # variant -> seconds of each run, as measured
    idle: list[float] = field(default_factory=list)  # seconds that were taken off, of each run

    def as_dict(self) -> dict[str, Any]:
        return {
            "seconds": self.seconds, "scaled": bool(self.scaled), "measured_on": self.scaled or "everything",
            "variant": self.variant, "raw_seconds": self.raw, "raw_seconds_taken_off": self.idle,
        }  # fmt: skip


def race(contenders: Sequence[Contender], repeats: int, tick: Tick) -> dict[str, Timing]:
    """Warm up all, then time them in turn, `repeats` rounds; the best run of each counts.

    A variant that is far behind another one of its name in the first round is not run again; nor is anything whose
    two runs took LONG together.
    """
    for contender in contenders:
        tick(f"{contender.name} (warm-up)")
        contender.warm_up()
    raw: list[list[float]] = [[] for _ in contenders]
    idle: list[list[float]] = [[] for _ in contenders]
    for turn in range(repeats):
        hopeless = _hopeless(contenders, raw) if turn else set()
        for k, contender in enumerate(contenders):
            tick(contender.name)
            if k not in hopeless and not (len(raw[k]) > 1 and sum(raw[k]) > LONG):
                raw[k].append(_seconds(contender.run))
                if contender.idle is not None:
                    idle[k].append(_seconds(contender.idle))
    return _best(contenders, raw, idle)


def rounds(contenders: int, repeats: int) -> int:
    """How many ticks a race gives."""
    return contenders * (repeats + 1)


def _seconds(action: Callable[[], object]) -> float:
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun


def _hopeless(contenders: Sequence[Contender], raw: list[list[float]]) -> set[int]:
    epochs = [min(seconds) / c.divisor * c.scale for c, seconds in zip(contenders, raw, strict=True)]
    best: dict[str, float] = {}
    for contender, epoch in zip(contenders, epochs, strict=True):
        best[contender.name] = min(epoch, best.get(contender.name, epoch))
    return {k for k, c in enumerate(contenders) if epochs[k] > FAR_BEHIND * best[c.name]}


def _best(contenders: Sequence[Contender], raw: list[list[float]], idle: list[list[float]]) -> dict[str, Timing]:
    found: dict[str, Timing] = {}
    for contender, runs, off in zip(contenders, raw, idle, strict=True):
        # Noise may make the short run the longer one: then nothing is taken off.
        net = min(runs) - min(off, default=0.0)
        epoch = (net if net > 0 else min(runs)) / contender.divisor * contender.scale
        before = found.get(contender.name)
        every = {**(before.raw if before else {}), contender.variant or "only": runs}
        if before is None or epoch < before.seconds:
            found[contender.name] = Timing(contender.name, epoch, contender.scaled, contender.variant, every, off)
        else:
            found[contender.name] = replace(before, raw=every)
    return found


@contextmanager
def progress_bar(title: str, total: int) -> Iterator[Tick]:
    """A bar on the error stream that names what is being measured."""
    bar = Bar(
        total, title=title, amount="count", clock="elapsed", console=terminal.console(stderr=True), transient=True
    )
    done = -1

    def tick(label: str) -> None:
        nonlocal done
        done += 1  # what was announced before is finished now
        bar.update(done, words=label)

    bar.start()
    try:
        yield tick
    finally:
        bar.stop()


@dataclass(frozen=True)
class Fit:
    """How time grows with size: seconds = fixed + each * size, and seconds ~ size ** exponent."""

    fixed: float
    each: float
    r_squared: float
    exponent: float


def fit_line(sizes: Sequence[float], seconds: Sequence[float]) -> Fit:
    """Least squares for the line, and in logarithms for the exponent.

    >>> fit = fit_line([1, 2, 4], [3, 6, 12])
    >>> round(fit.each, 6), round(fit.r_squared, 6), round(fit.exponent, 6)
    (3.0, 1.0, 1.0)
    """
    x, t = np.asarray(sizes, float), np.asarray(seconds, float)
    each, fixed = np.polyfit(x, t, 1)
    unexplained = float(((t - fixed - each * x) ** 2).sum())
    exponent = float(np.polyfit(np.log(x), np.log(t), 1)[0])
    return Fit(float(fixed), float(each), 1.0 - unexplained / float(((t - t.mean()) ** 2).sum()), exponent)
