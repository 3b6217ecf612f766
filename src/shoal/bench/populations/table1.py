"""The paper's Table 1: 10,000 networks, one epoch, over samples, features and batch sizes."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from shoal.bench import peers
from shoal.bench.harness import paper
from shoal.bench.harness.machine import MatrixProduct, describe, peak_memory, require
from shoal.bench.harness.measure import Contender, Tick, Timing, progress_bar, race, rounds
from shoal.bench.harness.problems import PAPER_MEMBERS, Problem, paper_members, random_data, sample_groups
from shoal.bench.harness.report import Result
from shoal.bench.populations.table1_report import build_result
from shoal.machine import thread_count
from shoal.population import Population
from shoal.validate import one_of

ENGINES = ("native", "grouped", "reference", "vmap", "sequential")


@dataclass(frozen=True)
class Settings:
    samples: Sequence[int] = paper.SAMPLES
    features: Sequence[int] = paper.FEATURES
    batches: Sequence[int] = paper.BATCHES
    engines: Sequence[str] = ENGINES
    epochs: int | None = None  # None: chosen for each engine, see Effort
    repeats: int = 3
    members: int = PAPER_MEMBERS

    def cells(self) -> list[tuple[int, int, int]]:
        return list(itertools.product(self.samples, self.features, self.batches))


QUICK = Settings(samples=(1000,), features=(5, 100), batches=(32, 256), repeats=1)


@dataclass(frozen=True)
class Effort:
    """How much of a cell is measured; the rest is scaled, and said so.

    A run trains about `rows` rows: several epochs of a small cell, whole batches of a part of a large one.
    """

    rows: int
    groups: int | None = None  # of networks that differ in their seed alone; None: all of them
    networks: int | None = None  # of each group; None: all of them
    threads: tuple[int, ...] = ()  # variants to try; (): the number of threads of the run
    every_row: bool = False  # never measure a part of an epoch
    packs: bool = False  # every call of fit packs the networks anew: that is timed apart and taken off


EFFORT = {
    "native": Effort(rows=500, every_row=True),
    "grouped": Effort(rows=256, packs=True),
    "reference": Effort(rows=64),
    "vmap": Effort(rows=512, groups=10, threads=(1, 2)),
    "sequential": Effort(rows=1024, groups=40, networks=1, threads=(1, 2)),
}


def run(settings: Settings) -> Result:
    """Measure every cell, then the set-up and the memory of the largest one."""
    require("torch", "matplotlib")
    for name in settings.engines:
        one_of("--engine", name, ENGINES)
    settings = _with_native(settings)
    begun, machine = time.perf_counter(), describe()
    product = MatrixProduct(thread_count())
    variants = sum(len(_threads(EFFORT[name])) for name in settings.engines)
    with progress_bar("table 1", len(settings.cells()) * rounds(variants + 1, settings.repeats) + 2) as tick:
        cells = [measure_cell(settings, cell, product, tick) for cell in settings.cells()]
        tick("setting up")
        setup = measure_setup(settings)
        tick("peak memory")
        memory = measure_memory(settings)
    data = {"peak": product.as_dict(), "cells": cells, "setup": setup, "memory": memory}
    result = build_result(machine, {**asdict(settings), "threads": thread_count()}, data)
    result.seconds = time.perf_counter() - begun
    return result


def measure_cell(settings: Settings, cell: tuple[int, int, int], product: MatrixProduct, tick: Tick) -> dict[str, Any]:
    """All engines of one cell, in turn."""
    samples, features, batch = cell
    X, y = random_data(samples, features)
    problem = Problem(Population(paper_members(settings.members, batch), features, 2), X, y)
    contenders = [c for name in settings.engines for c in enter(name, problem, settings.epochs)]
    label = f"{samples:,} x {features}, batch {batch}: "
    contenders.append(Contender("matrix product", product, product))
    timings = race(contenders, settings.repeats, lambda what: tick(label + what))
    timings.pop("matrix product")
    problem.check()
    return {
        "samples": samples, "features": features, "batch": batch, "flops": problem.flops,
        "engines": {name: _numbers(timing, problem.flops) for name, timing in timings.items()},
        "paper": _paper(*cell),
    }  # fmt: skip


def enter(name: str, problem: Problem, epochs: int | None) -> list[Contender]:
    """An engine's contenders for this problem: one for each number of threads to try."""
    effort = EFFORT[name]
    part, words = _part(problem, effort)
    rows, batch = len(part.X), problem.batch_size
    scale = len(problem.X) / rows * len(problem.population) / len(part.population)
    count = epochs or max(1, min(10, effort.rows // rows))
    if effort.packs and count * rows <= batch:
        count += 1  # there must be something left when one update is taken off
    trained = count - (min(batch, rows) / rows if effort.packs else 0.0)  # epochs
    found = []
    for threads in _threads(effort):
        peer = peers.make(name, part, threads)
        variant = f"{threads} thread{'s' if threads > 1 else ''}"
        idle = peer.warm_up if effort.packs else None
        found.append(Contender(name, _Run(peer, count), peer.warm_up, trained, scale, words, variant, idle))
    return found


@dataclass(frozen=True)
class _Run:
    peer: peers.Peer
    epochs: int

    def __call__(self) -> None:
        self.peer.run(self.epochs)


def _part(problem: Problem, effort: Effort) -> tuple[Problem, str]:
    """What is measured of a problem, and that in words; no words if it is everything."""
    population, rows, batch = problem.population, len(problem.X), problem.batch_size
    words = []
    members = None
    if effort.groups is not None:
        chosen = [group[: effort.networks] for group in sample_groups(population.members, effort.groups)]
        members = [int(i) for group in chosen for i in group]
        if len(members) < len(population):
            words.append(f"{len(members):,} of {len(population):,} models")
    measured = rows if effort.every_row else min(rows, max(batch, effort.rows // batch * batch))
    if measured < rows:
        words.append(f"{measured:,} of {rows:,} rows")
    return problem.part(members, measured), " and ".join(words)


def _threads(effort: Effort) -> list[int]:
    """Numbers of threads to try, none beyond those of the run."""
    return sorted({min(threads, thread_count()) for threads in effort.threads}) or [thread_count()]


def _numbers(timing: Timing, flops: float) -> dict[str, Any]:
    return {**timing.as_dict(), "gflops": flops / timing.seconds / 1e9}


def _paper(samples: int, features: int, batch: int) -> dict[str, float] | None:
    cell = paper.table1(samples, features, batch)
    return cell and {"parallel": cell.parallel, "sequential": cell.sequential, "ratio": cell.ratio}


def _with_native(settings: Settings) -> Settings:
    """Every ratio is a ratio to native, so native always runs."""
    if "native" in settings.engines:
        return settings
    return Settings(**{**asdict(settings), "engines": ("native", *settings.engines)})


def measure_setup(settings: Settings) -> dict[str, float]:
    """Seconds from nothing to a population ready to train: writing down the members, laying out, drawing weights."""
    found: dict[str, float] = {"members_seconds": float("inf"), "population_seconds": float("inf")}
    features = max(settings.features)
    for _ in range(max(settings.repeats, 3)):
        begun = time.perf_counter()
        members = paper_members(settings.members, settings.batches[0])
        listed = time.perf_counter()
        Population(members, features, 2)
        ended = time.perf_counter()
        found["members_seconds"] = min(found["members_seconds"], listed - begun)
        found["population_seconds"] = min(found["population_seconds"], ended - listed)
    return {**found, "seconds": sum(found.values())}


def measure_memory(settings: Settings) -> dict[str, Any]:
    """Peak memory of the largest cell."""
    largest = {
        "samples": max(settings.samples), "features": max(settings.features), "batch": max(settings.batches),
        "members": settings.members, "threads": thread_count(),
    }  # fmt: skip
    return {**largest, **peak_memory(largest)}
