"""The paper's Table 1: 10,000 networks, one epoch, over samples, features and batch sizes."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass
from typing import Any

from benchmarks import peers
from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.machine import MatrixProduct
from benchmarks.harness.measure import Contender, Tick, Timing, progress_bar, race, rounds
from benchmarks.harness.memory import peak_memory
from benchmarks.harness.problems import PAPER_MEMBERS, Problem, paper_members, random_data, sample_groups
from benchmarks.harness.report import Result
from benchmarks.papers.parallel_mlps import printed as paper
from benchmarks.papers.parallel_mlps.table1_report import build_result
from shoal.machine import thread_count
from shoal.population.population import Population
from shoal.validate import one_of

ENGINES = ("native", "grouped", "reference", "vmap", "sequential")


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


@benchmark(needs=("torch",), quick={"samples": (1000,), "features": (5, 100), "batches": (32, 256), "repeats": 1})
def table1(
    *,
    samples: tuple[int, ...] = paper.SAMPLES,
    features: tuple[int, ...] = paper.FEATURES,
    batches: tuple[int, ...] = paper.BATCHES,
    engines: tuple[str, ...] = ENGINES,
    epochs: int | None = None,
    repeats: int = 3,
    members: int = PAPER_MEMBERS,
) -> Result:
    """The paper's Table 1: 10,000 networks on samples x features x batch sizes, seconds per epoch.

    samples: Rows.
    features: Features.
    batches: Batch sizes.
    engines: native, grouped, reference, vmap, sequential.
    epochs: Epochs in one run; by default enough for a run of some length.
    repeats: Times that everything is measured; the best counts.
    members: Networks.
    """
    for name in engines:
        one_of("--engines", name, ENGINES)
    engines = tuple(dict.fromkeys(("native", *engines)))  # every ratio is a ratio to native, so native always runs
    listed = list(itertools.product(samples, features, batches))
    product = MatrixProduct(thread_count())
    variants = sum(len(_threads(EFFORT[name])) for name in engines)
    with progress_bar("table 1", len(listed) * rounds(variants + 1, repeats) + 2) as tick:
        cells = [measure_cell(engines, epochs, repeats, members, cell, product, tick) for cell in listed]
        tick("setting up")
        setup = measure_setup(max(features), batches[0], repeats, members)
        tick("peak memory")
        memory = measure_memory(samples, features, batches, members)
    data = {"peak": product.as_dict(), "cells": cells, "setup": setup, "memory": memory}
    return build_result(members, engines, data)


def measure_cell(
    engines: tuple[str, ...],
    epochs: int | None,
    repeats: int,
    members: int,
    cell: tuple[int, int, int],
    product: MatrixProduct,
    tick: Tick,
) -> dict[str, Any]:
    """All engines of one cell, in turn."""
    samples, features, batch = cell
    X, y = random_data(samples, features)
    problem = Problem(Population(paper_members(members, batch), features, 2), X, y)
    contenders = [c for name in engines for c in enter(name, problem, epochs)]
    label = f"{samples:,} x {features}, batch {batch}: "
    contenders.append(Contender("matrix product", product, product))
    timings = race(contenders, repeats, lambda what: tick(label + what))
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


def measure_setup(features: int, batch: int, repeats: int, members: int) -> dict[str, float]:
    """Seconds from nothing to a population ready to train: writing down the members, laying out, drawing weights."""
    found: dict[str, float] = {"members_seconds": float("inf"), "population_seconds": float("inf")}
    for _ in range(max(repeats, 3)):
        begun = time.perf_counter()
        made = paper_members(members, batch)
        listed = time.perf_counter()
        Population(made, features, 2)
        ended = time.perf_counter()
        found["members_seconds"] = min(found["members_seconds"], listed - begun)
        found["population_seconds"] = min(found["population_seconds"], ended - listed)
    return {**found, "seconds": sum(found.values())}


def measure_memory(
    samples: tuple[int, ...], features: tuple[int, ...], batches: tuple[int, ...], members: int
) -> dict[str, Any]:
    """Peak memory of the largest cell."""
    largest = {
        "samples": max(samples), "features": max(features), "batch": max(batches),
        "members": members, "threads": thread_count(),
    }  # fmt: skip
    return {**largest, **peak_memory(largest)}
