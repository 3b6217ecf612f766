"""Which way of training is the fastest here: found by measuring a few steps, never by believing.

Measuring must pay for itself: it may take a hundredth of what the plain loop would take in all. Other processes take
seconds to start, so they are tried only where training takes minutes.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset, Subset

from shoal.machine import thread_count
from shoal.parallel.feed import Feed, epoch_order, take_all
from shoal.parallel.groups import Alone
from shoal.parallel.job import SINGLE, Job
from shoal.parallel.randomness import draws_random_numbers, torch_as_it_was
from shoal.parallel.strategies import Strategy, fewest_rows
from shoal.parallel.threads import blas_threads, use_threads
from shoal.parallel.worker import Tell, flops_per_row, make_strategy

SHARE = 0.01  # of the plain loop's time that measuring may take
WORTH = 1.05  # how much faster than the plain loop something else must be
LAUNCHING = 240.0  # seconds of plain training from which on starting processes to measure them is worth while


@dataclass
class Candidate:
    """A way of training, and how fast it was."""

    label: str
    job: Job
    seconds: float  # per step
    gflops: float

    def __str__(self) -> str:
        speed = f"{self.gflops:.3g} GFLOPS" if self.gflops >= 0.01 else f"{1e3 * self.seconds:.3g} ms a step"
        return f"{self.label}: {speed}"


def choose(job: Job, model: nn.Module, train: Dataset[Any], tell: Tell) -> Job:
    """The job with the strategy that was measured to be the fastest; what was measured is told."""
    plain = replace(job, strategy="blas", backend="threads", workers=1, mesh=None, exact=None)
    if job.device not in ("auto", "cpu") or _accelerated():
        tell({"note": "one process on the accelerator: it is not shared between workers without being asked to"})
        return plain
    if job.exact:
        tell({"note": "exact: threads that share each batch in fixed shards"})
        return replace(job, strategy="allreduce", backend="threads", workers=min(_workers(job), job.shards), mesh=None)
    feed = Feed(train, torch.device("cpu"))
    steps = job.epochs * -(-len(feed) // job.batch_size)
    with torch_as_it_was():
        found = _measured_here(job, plain, model, feed, steps)
    if len(found) == 1 and thread_count() > 1:
        tell({"note": f"one process with {thread_count()} BLAS threads: {steps} steps are too few to measure more"})
        return plain
    long = min(candidate.seconds for candidate in found) * steps > LAUNCHING
    if long and thread_count() > 1 and _may_be_shared(model, feed):
        try:
            found.append(_launched(job, model, train, found[0].gflops * found[0].seconds))
        except (TypeError, RuntimeError) as error:
            tell({"note": f"processes could not be tried: {str(error).splitlines()[0]}"})
    chosen = _pick(found)
    others = "; ".join(str(candidate) for candidate in found if candidate is not chosen)
    tell({"note": f"chosen: {chosen}" + (f" (measured beside it: {others})" if others else "")})
    if others:
        tell({"note": "chosen by the clock: another run may choose otherwise and end with other last digits; "
                      f"{_pinned(chosen.job)} is always this"})  # fmt: skip
    return chosen.job


def _measured_here(job: Job, plain: Job, model: nn.Module, feed: Feed, steps: int) -> list[Candidate]:
    """Ways that need no other process. Where the whole run is too short to measure in, only the first."""
    cores = thread_count()
    flops = flops_per_row(model, feed, job) * min(job.batch_size, len(feed))
    serial = ("one process with 1 thread", replace(plain, strategy="serial"))
    first = _race([serial], model, feed, flops, 0.0)[0]
    allowed = SHARE * first.seconds * steps
    if cores == 1 or allowed < 6 * first.seconds:
        return [first]
    contenders = [serial, (f"one process with {cores} BLAS threads", plain)]
    many = _workers(job)
    if job.batch_size >= 2 * many and _may_be_shared(model, feed):
        threads = replace(job, strategy="allreduce", backend="threads", workers=many, mesh=None, exact=False)
        contenders.append((f"{many} threads that share each batch", threads))
    return _race(contenders, model, feed, flops, 0.75 * allowed)


def _may_be_shared(model: nn.Module, feed: Feed) -> bool:
    """Whether workers that share a batch end where the plain loop does, but for rounding.

    Not with batch normalisation or dropout: the result would depend on the clock in more than its last digits.
    """
    inputs, _ = feed.take(torch.arange(min(2, len(feed))))
    return fewest_rows(model) == 1 and not draws_random_numbers(model, inputs)


def _pinned(job: Job) -> str:
    """The options that ask for what was chosen."""
    if job.strategy in SINGLE:
        return f"--strategy {job.strategy}"
    return f"--strategy {job.strategy} --backend {job.backend} --workers {job.workers} --close"


def _workers(job: Job) -> int:
    return job.workers if job.workers > 1 else thread_count()


def _pick(found: list[Candidate]) -> Candidate:
    """The fastest, where it is clearly faster than the plain loop, which has all threads."""
    plain = next((candidate for candidate in found if candidate.job.strategy == "blas"), found[0])
    best = min(found, key=lambda candidate: candidate.seconds)
    return best if best.seconds * WORTH < plain.seconds else plain


def _race(
    contenders: list[tuple[str, Job]], model: nn.Module, feed: Feed, flops: float, seconds: float, least: int = 3
) -> list[Candidate]:
    """The best time of a step of each, over so many seconds in all. They take turns: a busy moment hits all alike."""
    with ExitStack() as stack:
        lanes = []
        for _, job in contenders:
            strategy = make_strategy(job, Alone(), copy.deepcopy(model), len(feed), torch.device("cpu"))
            stack.callback(strategy.close)
            lanes.append(_stepper(strategy, job, feed))
        best = [float("inf")] * len(lanes)
        begun, turns = time.perf_counter(), 0
        while turns <= least or time.perf_counter() - begun < seconds:
            for place, step in enumerate(lanes):
                taken = step()
                if turns:  # the first one allocates
                    best[place] = min(best[place], taken)
            turns += 1
    return [
        Candidate(label, job, time_of_step, flops / time_of_step / 1e9)
        for (label, job), time_of_step in zip(contenders, best, strict=True)
    ]


def _stepper(strategy: Strategy, job: Job, feed: Feed) -> Callable[[], float]:
    """A function that takes a step and says how long it took."""
    rows = epoch_order(len(feed), job.seed, 0, True)[: job.batch_size]
    items = take_all(feed, strategy.parts(rows))

    def step() -> float:
        use_threads(blas_threads(job))
        start = time.perf_counter()
        strategy.round(items, len(rows), 0)
        return time.perf_counter() - start

    return step


def _launched(job: Job, model: nn.Module, train: Dataset[Any], gigaflops: float) -> Candidate:
    """Two epochs of a few batches over real processes."""
    from shoal.parallel.launch import launch

    many = _workers(job)
    rows = min(len(train), 12 * job.batch_size)  # type: ignore[arg-type]
    trial = replace(job, strategy="allreduce", backend="processes", workers=many, mesh=None, exact=False)
    short = replace(trial, epochs=2, checkpoint=None, restarts=0)
    result = launch(short, copy.deepcopy(model), Subset(train, range(rows)), None, lambda content: None)
    seconds = job.batch_size / max(record["samples_per_second"] for record in result.history)
    return Candidate(f"{many} processes", trial, seconds, gigaflops / seconds)


def _accelerated() -> bool:
    return torch.cuda.is_available() or torch.backends.mps.is_available()
