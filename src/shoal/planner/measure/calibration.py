"""Calibration: what steps and messages take on this machine, measured for one network."""

from __future__ import annotations

import bisect
import copy
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils.data import Dataset

from shoal.allocator import memory_kept
from shoal.machine import peak_memory, thread_count
from shoal.parallel.cost import Facts, Variant
from shoal.parallel.data.loader import Loader
from shoal.parallel.events import silent
from shoal.parallel.exact.randomness import torch_as_it_was
from shoal.parallel.exact.threads import use_threads
from shoal.parallel.launch.launcher import launch
from shoal.parallel.learner import Learner
from shoal.parallel.training import run_threads
from shoal.planner.cost.curves import Curve
from shoal.planner.measure.facts import facts_of
from shoal.planner.measure.probe import FEW, MANY, STEPS, Probe, SmallStep
from shoal.planner.measure.steps import alone, part_of, step_jitter, step_seconds

if TYPE_CHECKING:
    from shoal.parallel.job import Job

KINDS = ("plain", "vector")
TINY = 8  # rows of each worker in a small step, nearly all of which is working together
SHORT = 0.002  # seconds of a small step of which many are measured
SLOW = 0.1  # seconds of a step that is measured once only
LONG = 0.6  # seconds of a step beyond which larger ones are not measured
MESSAGES = (256, 4096, 65_536, 1 << 20, 8 << 20, 32 << 20)
EPOCH = 0.02  # seconds of an epoch of steps to measure, about
BRIEF, BRIEFEST = 0.05, 0.015  # seconds that a size is measured for, at least; where a plan has to be quick
SAMPLES, FEWER = 3, 2  # times that the sizes are measured in turns, each several epochs; where a plan is to be quick


@dataclass(frozen=True, kw_only=True)
class MachineCalibration:
    """Seconds on this machine, for one network, its optimiser and its loss."""

    facts: Facts
    cores: int
    apply: float  # a step of the optimiser along a flat vector
    copy: float  # weights into a vector, or back
    add: float  # one vector to another
    load: float  # a row of the data into a batch
    base: int  # bytes of memory of a process before it has data or a network
    jitter: tuple[float, ...] = ()  # single steps, relative to their mean
    plain: dict[int, Curve]  # a step of the plain loop against rows; by number of BLAS threads
    vector: dict[int, Curve]  # a step over flat vectors, as strategies with whole models take them
    peak_flops: float  # floating-point operations a second of a matrix product on all cores
    peak_bytes: float  # bytes a second of a copy in memory
    workers: int = 0  # from here on: what was measured between so many workers on this machine; 0: nothing
    contention: tuple[tuple[float, float], ...] = ()  # rows, times that a step takes longer if all cores take one
    messages: dict[str, Curve] = field(default_factory=dict)  # by operation, against bytes
    small: dict[str, tuple[int, float]] = field(default_factory=dict)  # by variant: rows, seconds of a small step
    overhead: dict[str, float] = field(default_factory=dict)  # by variant: what an earlier plan found instead
    start: float = 0.0  # seconds to start the workers


def row_sizes(needed: Iterable[float], rows: int) -> list[int]:
    """Sizes of steps to measure: those next to each size that is needed, above and below.

    They are three times powers of two, so that usual batch sizes are not among them.

    >>> row_sizes([8, 128], 10_000)
    [6, 12, 96, 192]
    """
    powers = [3 << k for k in range(24)]
    found = set()
    for size in needed:
        place = min(bisect.bisect_left(powers, size), len(powers) - 1)
        found |= {powers[max(0, place - 1)], powers[place]}
    if len([size for size in found if size <= rows]) < 2:  # a line needs two points
        found = {3, 6} if rows >= 6 else {max(1, rows // 2), rows}
    return [size for size in sorted(found) if size <= rows]


def calibrate(
    job: Job,
    model: nn.Module,
    data: Dataset[Any],
    sizes: Sequence[int],
    progress: Callable[[float, str], None] = lambda share, words: None,
    brief: float = BRIEF,
) -> MachineCalibration:
    """Measure steps of one worker by itself; each size for so many seconds, at least, and several times."""
    cores = thread_count()
    with torch_as_it_was(), memory_kept():
        use_threads(cores)
        facts = facts_of(model, Loader(data, torch.device("cpu")), job)
        taken: dict[tuple[str, int], dict[float, list[float]]] = {}
        kinds = [(kind, threads) for kind in KINDS for threads in sorted({1, cores})]
        turns = kinds * (FEWER if brief < BRIEF else SAMPLES)
        if brief < BRIEF:  # a line through fewer points
            sizes = sorted({*sizes[::2], sizes[-1]})
        for turn, (kind, threads) in enumerate(turns):
            progress(turn / len(turns), f"steps of one worker, {threads} thread{'s' * (threads > 1)}")
            found = taken.setdefault((kind, threads), {})
            for size in sizes:
                known = min(found.get(float(size), [0.0]))
                if known > LONG:
                    break
                if known > SLOW:  # measured well enough in the first turn
                    continue
                values = step_seconds(alone(job, kind, threads), model, data, size, _steps(size, found), enough=brief)
                found.setdefault(float(size), []).extend(values)
                if min(values) > LONG:
                    break
        curves = {key: Curve.of(found) for key, found in taken.items()}
        jitter = step_jitter(alone(job, "plain", 1), model, data, job.batch_size)
        use_threads(cores)
        apply, copies, add = _vector_work(model, job)
        many = torch.arange(min(sizes[-1], len(data)))  # type: ignore[arg-type]
        loader = Loader(data, torch.device("cpu"))
        load = _best(lambda: loader.take(many), 5) / len(many)
        flops, rate = _peaks()
    plain, vector = ({threads: curves[kind, threads] for threads in sorted({1, cores})} for kind in KINDS)
    base = max(0, peak_memory() - facts.row * len(data))  # type: ignore[arg-type]
    return MachineCalibration(
        facts=facts, cores=cores, plain=plain, vector=vector, apply=apply, copy=copies, add=add, load=load,
        peak_flops=flops, peak_bytes=rate, base=base, jitter=jitter,
    )  # fmt: skip


def _steps(size: int, found: dict[float, list[float]]) -> int:
    """Of an epoch, so that it takes about EPOCH seconds; by the size before."""
    before = max((rows for rows in found if rows < size), default=None)
    if before is None:
        return STEPS
    return steps_for(min(found[before]) * size / before)


def steps_for(seconds: float) -> int:
    """Steps of so many seconds each in an epoch of EPOCH seconds; not too few, not too many."""
    return max(2, min(MANY, round(EPOCH / max(seconds, 1e-6))))


def _vector_work(model: nn.Module, job: Job) -> tuple[float, float, float]:
    """Seconds of an optimiser step, of a copy of all weights, and of the sum of two vectors."""
    learner = Learner(copy.deepcopy(model).cpu(), job, 1)
    vector, other = learner.new_vector(learner.width), learner.new_vector(learner.width)
    return (
        _best(lambda: learner.apply(vector, 0)),
        _best(lambda: learner.set_weights(learner.weights())) / 2,
        _best(lambda: vector.add_(other)),
    )


def _peaks() -> tuple[float, float]:
    """Of this machine: operations a second of a matrix product, bytes a second of a copy."""
    left, right = torch.randn(1024, 1024), torch.randn(1024, 1024)
    large = torch.zeros(8 << 20)
    product = _best(lambda: torch.mm(left, right), 4)
    return 2 * 1024**3 / product, 2 * large.numel() * 4 / _best(large.clone, 4)


def _best(work: Callable[[], object], repeats: int = 12) -> float:
    """The best of several times."""
    times = []
    for _ in range(repeats + 1):
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
    return min(times[1:])


# ---- between workers ----


def probed(
    calibration: MachineCalibration,
    job: Job,
    model: nn.Module,
    data: Dataset[Any],
    sizes: Sequence[int],
    variants: Sequence[Variant] = (),
) -> MachineCalibration:
    """The same with what was measured between workers of the job's backend on this machine."""
    workers = max(2, calibration.cores)
    largest = max(calibration.facts.averaged, MESSAGES[1])
    messages = [size for size in MESSAGES if size <= 2 * largest]
    expected = {size: calibration.vector[1](size) for size in sizes}
    rows = {size: steps_for(seconds) for size, seconds in expected.items() if seconds < LONG / 3}
    with torch_as_it_was(), memory_kept():
        steps = MANY if calibration.vector[1](TINY) < SHORT else FEW
        jobs = _small_steps(job, [one for one in variants if not one.strategy.servers], workers, steps)
        measured, start = run_probe(Probe(job, messages, rows, jobs), job, model, data, workers)
        served = _small_steps(job, [one for one in variants if one.strategy.servers], workers, steps)
        if served:  # a server is one rank more
            measured |= run_probe(Probe(job, (), {}, served), job, model, data, workers + 1)[0]
        pooled = _in_pool(job, model, data, variants, workers)
    small = {name.split()[1]: (int(name.split()[2]), value) for name, value in (measured | pooled).items()
             if name.startswith("step ")}  # fmt: skip
    names = ("all_reduce", "exchange", "all_gather", "message", "scatter")
    return replace(
        calibration, workers=workers, contention=_contention(measured),
        messages={name: _message_curve(measured, name, workers) for name in names
                  if any(key.startswith(f"{name} ") for key in measured)},
        small=small, start=start,
    )  # fmt: skip


def run_probe(
    probe: Probe, job: Job, model: nn.Module, data: Dataset[Any], workers: int, rows: int = 0
) -> tuple[dict[str, float], float]:
    """What the probe found, and how long its workers took to start. They get at least so many rows."""
    largest = max([rows, TINY * workers * MANY, *[size * steps for size, steps in probe.rows.items()]])
    trial = replace(job, strategy=probe, workers=workers, blas_threads=None, exact=None, mesh=None, epochs=1,
                    checkpoint=None, restarts=0, shuffle=False)  # fmt: skip
    few = part_of(data, min(len(data), largest))  # type: ignore[arg-type]
    run = run_threads if job.backend == "threads" else launch
    begun = time.perf_counter()
    record = run(trial, copy.deepcopy(model), few, None, silent).history[0]
    start = max(0.0, time.perf_counter() - begun - record["seconds"])
    return {name.removesuffix("_mean"): value for name, value in record.items() if name.endswith("_mean")}, start


def _in_pool(
    job: Job, model: nn.Module, data: Dataset[Any], variants: Sequence[Variant], workers: int
) -> dict[str, float]:
    """Small steps of strategies whose threads need no group."""
    found = {}
    for variant in variants:
        if job.backend == "threads" and variant.strategy.pools_threads:
            trial = replace(job, workers=workers, blas_threads=None, mesh=None, **variant.settings)
            values = step_seconds(trial, model, data, TINY * workers, MANY)
            found[f"step {variant.name} {TINY * workers}"] = min(values)
    return found


def between_two(curve: Curve, workers: int) -> Curve:
    """What n workers took for an operation in which each sends n - 1 times an n-th, as two would take it.

    >>> between_two(Curve(((4000.0, 3.0), (8000.0, 6.0))), 4).points
    ((2000.0, 1.0), (4000.0, 2.0))
    """
    return Curve(tuple((2 * x / workers, y / (workers - 1)) for x, y in curve.points), curve.spread)


def _message_curve(measured: dict[str, float], name: str, workers: int) -> Curve:
    """Messages were measured there and back; a scatter is one; all others are those of all workers."""
    if name in ("message", "scatter"):
        return _curve(measured, name, 0.5 if name == "message" else 1.0)
    return between_two(_curve(measured, name), workers)


def _curve(measured: dict[str, float], name: str, factor: float = 1.0) -> Curve:
    found = {float(key.split()[1]): [factor * value] for key, value in measured.items() if key.split()[0] == name}
    return Curve.of(found)


def _contention(measured: dict[str, float]) -> tuple[tuple[float, float], ...]:
    """Ratios by rows; each is the median of its own and its neighbours', since they are the noisiest of all."""
    both = zip(_curve(measured, "alone").points, _curve(measured, "together").points, strict=True)
    ratios = [(rows, max(1.0, busy / single)) for (rows, single), (_, busy) in both]
    return tuple((rows, statistics.median(ratio for _, ratio in ratios[max(0, k - 1) : k + 2]))
                 for k, (rows, _) in enumerate(ratios))  # fmt: skip


def _small_steps(job: Job, variants: Sequence[Variant], workers: int, steps: int) -> list[SmallStep]:
    """For each strategy a job of small steps. Strategies that average do so after each step."""
    found: dict[str, SmallStep] = {}
    for variant in variants:
        settings, method = variant.settings, variant.strategy
        in_pool = method.pools_threads and job.backend == "threads"  # threads that need no group
        if method.holds_out_rows or in_pool or (method.splits_model and job.backend != "processes"):
            continue
        if method.possible_workers(workers) != workers:
            continue
        if method.owns_rows:
            settings["average_every"] = 1
        trial = replace(job, workers=workers, blas_threads=None, mesh=None, **{"exact": None, **settings})
        own = method.owns_rows or trial.asynchronous  # a batch is that of each worker
        found[variant.small_name] = SmallStep(variant.small_name, trial, TINY if own else TINY * workers, steps, BRIEF)
    return list(found.values())
