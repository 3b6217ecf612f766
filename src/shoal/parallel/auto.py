"""Which way of training is the fastest here: found by measuring a few steps, never by believing.

Measuring may take a hundredth of what the plain loop would take in all, set-up included: a step is measured only where
it is expected to end within that. A run with too few steps for it takes the plain loop at once, with one thread where
steps are small: two BLAS threads can be many times slower there on a busy machine. Other processes take seconds to
start, so they are tried only where training takes a quarter of an hour.
"""

from __future__ import annotations

import copy
import threading
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
LEAST = 3  # steps of each way: the first one allocates
MOST = 5.0  # seconds after which more steps tell nothing new
SMALL = 2e7  # floating-point operations of a step that more BLAS threads cannot make faster
LAUNCHING = 1000.0  # seconds of plain training from which on starting processes to measure them is worth while


@dataclass
class Candidate:
    """A way of training, and how fast it was."""

    label: str
    job: Job
    seconds: float  # per step

    def __str__(self) -> str:
        return f"{self.label}: {1e3 * self.seconds:.3g} ms a step"


def choose(
    job: Job, model: nn.Module, train: Dataset[Any], tell: Tell, clock: Callable[[], float] = time.perf_counter
) -> Job:
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
    contenders = _contenders(job, plain, model, feed)
    torch.optim.SGD([torch.zeros(1)], 0.1)  # imports for a second, once in a process; the plain loop has to as well
    begun = clock()
    found: list[Candidate] = []
    if 1 < len(contenders) <= SHARE * steps / LEAST:
        with torch_as_it_was():
            found = _race(contenders, model, feed, steps, begun, clock)
    if len(found) < 2:
        return _unmeasured(plain, model, feed, steps, tell)
    left = SHARE * found[0].seconds * steps - (clock() - begun)
    if min(candidate.seconds for candidate in found) * steps > LAUNCHING and _may_be_shared(model, feed):
        try:
            found.append(_launched(job, model, train, left))
        except (TypeError, RuntimeError) as error:
            tell({"note": f"processes could not be tried: {str(error).splitlines()[0]}"})
    chosen = _pick(found)
    others = "; ".join(str(candidate) for candidate in found if candidate is not chosen)
    tell({"note": f"chosen: {chosen}" + (f" (measured beside it: {others})" if others else "")})
    if others:
        tell({"note": "chosen by the clock: another run may choose otherwise and end with other last digits; "
                      f"{_pinned(chosen.job)} is always this"})  # fmt: skip
    return chosen.job


def _unmeasured(plain: Job, model: nn.Module, feed: Feed, steps: int, tell: Tell) -> Job:
    """The plain loop; how many threads it has follows from the size of a step, not from the clock."""
    cores = thread_count()
    if cores == 1:
        tell({"note": "one process with 1 BLAS thread: there is one core"})
        return plain
    few = f"{steps:,} steps are too few to measure other ways"
    step = flops_per_row(model, feed, plain) * min(plain.batch_size, len(feed))
    if step < SMALL and plain.blas_threads is None:
        tell({"note": f"one process with 1 thread: {few}, and a step is too small to gain by more threads"})
        return replace(plain, strategy="serial")
    tell({"note": f"one process with {plain.blas_threads or cores} BLAS threads: {few}"})
    return plain


def _contenders(job: Job, plain: Job, model: nn.Module, feed: Feed) -> list[tuple[str, Job]]:
    """Ways that need no other process, the plain loop first."""
    cores, many = thread_count(), _workers(job)
    ways = [(f"one process with {cores} BLAS threads", plain)]
    if cores > 1 and job.batch_size >= 2 * many and _may_be_shared(model, feed):
        threads = replace(job, strategy="allreduce", backend="threads", workers=many, mesh=None, exact=False)
        ways.append((f"{many} threads that share each batch", threads))
    if cores > 1:
        ways.append(("one process with 1 thread", replace(plain, strategy="serial")))
    return ways


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
    contenders: list[tuple[str, Job]],
    model: nn.Module,
    feed: Feed,
    steps: int,
    begun: float,
    clock: Callable[[], float],
) -> list[Candidate]:
    """The best time of a step of each that there was time for. They take turns: a busy moment hits all alike.

    A step is taken only if it is expected to end in time: as the last one did, or, of a way not tried yet, as the
    first one of the plain loop; one thread may need as many times longer as there are cores.
    """
    with ExitStack() as stack:
        lanes = []
        for _, job in contenders:
            strategy = make_strategy(job, Alone(), copy.deepcopy(model), len(feed), torch.device("cpu"))
            stack.callback(strategy.close)
            lanes.append(_stepper(strategy, job, feed, clock))
        taken: list[list[float]] = [[] for _ in lanes]
        taken[0] = [lanes[0]() for _ in range(LEAST)]

        def affordable(place: int) -> bool:
            plain = min(taken[0][1:])
            unknown = max(taken[0][0], plain * (thread_count() if contenders[place][1].strategy == "serial" else 2))
            left = min(SHARE * steps * plain, MOST) - (clock() - begun)
            tried = taken[place]
            return (tried[-1] if tried else unknown) * max(1, LEAST - len(tried)) <= left

        going = True
        while going:
            going = False
            for place, step in enumerate(lanes):
                if affordable(place):
                    taken[place].append(step())
                    going = True
    return [Candidate(label, job, min(times[1:])) for (label, job), times in zip(contenders, taken, strict=True)
            if len(times) >= LEAST]  # fmt: skip


def _stepper(strategy: Strategy, job: Job, feed: Feed, clock: Callable[[], float]) -> Callable[[], float]:
    """A function that takes a step and says how long it took."""
    rows = epoch_order(len(feed), job.seed, 0, True)[: job.batch_size]
    items = take_all(feed, strategy.parts(rows))

    def step() -> float:
        use_threads(blas_threads(job))
        start = clock()
        strategy.round(items, len(rows), 0)
        return clock() - start

    return step


def _launched(job: Job, model: nn.Module, train: Dataset[Any], seconds: float) -> Candidate:
    """Two epochs of a few batches over real processes, which are ended after so many seconds."""
    from shoal.parallel.launch import launch

    many = _workers(job)
    rows = min(len(train), 12 * job.batch_size)  # type: ignore[arg-type]
    trial = replace(job, strategy="allreduce", backend="processes", workers=many, mesh=None, exact=False)
    short = replace(trial, epochs=2, checkpoint=None, restarts=0)
    stop = threading.Event()
    timer = threading.Timer(max(0.0, seconds), stop.set)
    timer.daemon = True
    timer.start()
    try:
        result = launch(short, copy.deepcopy(model), Subset(train, range(rows)), None, lambda content: None, stop)
    finally:
        timer.cancel()
    step = job.batch_size / max(record["samples_per_second"] for record in result.history)
    return Candidate(f"{many} processes", trial, step)


def _accelerated() -> bool:
    return torch.cuda.is_available() or torch.backends.mps.is_available()
