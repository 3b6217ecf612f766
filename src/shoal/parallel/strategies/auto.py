"""Measures a few steps of several strategies, and takes the fastest.

Measuring may take a hundredth of the plain loop's whole time, set-up included; a step is taken only if it should end
within that. A run with too few steps for measuring takes the plain loop, with one thread where steps are small: there
two BLAS threads can be many times slower on a busy machine. Processes take seconds to start, so they are tried only
where training takes a quarter of an hour.
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from shoal.machine import thread_count
from shoal.parallel.data.loader import Loader, epoch_order, take_all
from shoal.parallel.evaluation import flops_per_row
from shoal.parallel.events import Notify, silent
from shoal.parallel.exact.randomness import draws_random_numbers, torch_as_it_was
from shoal.parallel.exact.threads import blas_threads, use_threads
from shoal.parallel.groups import Alone
from shoal.parallel.launch.launcher import launch
from shoal.parallel.lazy import nn, torch
from shoal.parallel.strategies.base import Strategy
from shoal.parallel.strategies.native import can_train
from shoal.parallel.strategies.updater import Updater, fewest_rows

if TYPE_CHECKING:
    from torch.utils.data import Dataset

    from shoal.parallel.job import Job

MEASURING_SHARE = 0.01  # of the plain loop's time
LEAST_SPEEDUP = 1.05  # over the plain loop
LEAST_STEPS = 3  # of each candidate; the first one allocates memory and does not count
MOST_SECONDS = 5.0  # of measuring; more steps would not change the choice
SMALL_STEP_FLOPS = 2e7  # more BLAS threads cannot make such a step faster
SECONDS_WORTH_LAUNCHING = 1000.0  # of plain training: then processes are started and measured, too


class Auto(Strategy):
    """Chosen by the clock, so two runs may differ in their last digits."""

    name = "auto"
    can_be_exact = True
    when_launched = "allreduce"  # processes that were started are to be used

    def default_workers(self, cores: int) -> int:
        return 1

    def resume(self, job: Job, earlier: dict[str, Any]) -> Job:
        """As the run began: measuring now might choose otherwise."""
        if earlier.get("strategy") == "plain":
            return replace(job, strategy="blas", workers=1)
        if earlier.get("strategy") == "native":
            return replace(job, strategy="native", workers=1)
        if earlier.get("strategy") == "allreduce":
            exact = earlier.get("exact") if job.exact is None else job.exact
            return replace(job, strategy="allreduce", backend="threads", workers=max(job.workers, 2), exact=exact)
        return job

    def choose(self, job: Job, model: nn.Module, train: Dataset[Any], notify: Notify) -> Job:
        return choose(job, model, train, notify)


@dataclass
class TimedJob:
    """A job, and how fast it was."""

    label: str
    job: Job
    seconds: float  # per step

    def __str__(self) -> str:
        return f"{self.label}: {1e3 * self.seconds:.3g} ms a step"


def choose(
    job: Job, model: nn.Module, train: Dataset[Any], notify: Notify, clock: Callable[[], float] = time.perf_counter
) -> Job:
    """The job with the fastest strategy; notes say what was measured."""
    plain = replace(job, strategy="blas", backend="threads", workers=1, mesh=None, exact=None)
    accelerated = torch.cuda.is_available() or torch.backends.mps.is_available()
    if job.device not in ("auto", "cpu") or accelerated:
        notify("note", "one process on the accelerator; more workers only if asked for")
        return plain
    if job.exact:
        notify("note", "exact: threads that share each batch in fixed shards")
        return replace(
            job, strategy="allreduce", backend="threads", workers=min(_workers(job), job.shard_count), mesh=None
        )
    loader = Loader(train, torch.device("cpu"))
    steps = job.epochs * -(-len(loader) // job.batch_size)
    jobs = _candidates(job, plain, model, loader)
    torch.optim.SGD([torch.zeros(1)], 0.1)  # imports for a second, once in a process; the plain loop has to as well
    begun = clock()
    found: list[TimedJob] = []
    if 1 < len(jobs) <= MEASURING_SHARE * steps / LEAST_STEPS:
        with torch_as_it_was():
            found = _race(jobs, model, loader, steps, begun, clock)
    if len(found) < 2:
        return _unmeasured(plain, model, loader, steps, notify)
    left = MEASURING_SHARE * found[0].seconds * steps - (clock() - begun)
    if min(candidate.seconds for candidate in found) * steps > SECONDS_WORTH_LAUNCHING and _can_share_batches(
        model, loader
    ):
        try:
            found.append(_launched(job, model, train, left))
        except (TypeError, RuntimeError) as error:
            notify("note", f"processes could not be tried: {str(error).splitlines()[0]}")
    chosen = _pick(found)
    others = "; ".join(str(candidate) for candidate in found if candidate is not chosen)
    notify("note", f"chosen: {chosen}" + (f" (measured beside it: {others})" if others else ""))
    if others:
        notify("note", "chosen by the clock: another run may choose otherwise and differ in the last digits; "
                       f"{_flags(chosen.job)} always gives this choice")  # fmt: skip
    return chosen.job


def _unmeasured(plain: Job, model: nn.Module, loader: Loader, steps: int, notify: Notify) -> Job:
    """The plain loop; its number of threads follows from the size of a step, not from the clock."""
    cores = thread_count()
    if cores == 1:
        notify("note", "one process with 1 BLAS thread: there is one core")
        return plain
    few = f"{steps:,} steps are too few to measure other ways"
    step = flops_per_row(model, loader, plain) * min(plain.batch_size, len(loader))
    if step < SMALL_STEP_FLOPS and plain.blas_threads is None:
        notify("note", f"one process with 1 thread: {few}, and a step is too small to gain by more threads")
        return replace(plain, strategy="serial")
    notify("note", f"one process with {plain.blas_threads or cores} BLAS threads: {few}")
    return plain


def _candidates(job: Job, plain: Job, model: nn.Module, loader: Loader) -> list[tuple[str, Job]]:
    """Jobs that need no other process, the plain loop first."""
    cores, many = thread_count(), _workers(job)
    found = [(f"one process with {cores} BLAS threads", plain)]
    if cores > 1 and job.batch_size >= 2 * many and _can_share_batches(model, loader):
        threads = replace(job, strategy="allreduce", backend="threads", workers=many, mesh=None, exact=False)
        found.append((f"{many} threads that share each batch", threads))
    if cores > 1:
        found.append(("one process with 1 thread", replace(plain, strategy="serial")))
    if can_train(plain, model):
        native = replace(plain, strategy="native")
        found.append((f"the compiled kernel with {job.blas_threads or cores} threads", native))
    return found


def _can_share_batches(model: nn.Module, loader: Loader) -> bool:
    """Whether workers that share a batch compute the same as the plain loop, except for rounding.

    With batch normalisation or dropout they do not, and the clock must not change more than the last digits.
    """
    inputs, _ = loader.take(torch.arange(min(2, len(loader))))
    return fewest_rows(model) == 1 and not draws_random_numbers(model, inputs)


def _flags(job: Job) -> str:
    """The options that ask for this job."""
    if job.method.one_worker:
        return f"--strategy {job.strategy}"
    return f"--strategy {job.strategy} --backend {job.backend} --workers {job.workers} --close"


def _workers(job: Job) -> int:
    return job.workers if job.workers > 1 else thread_count()


def _pick(found: list[TimedJob]) -> TimedJob:
    """The fastest, if it is clearly faster than the plain loop with all threads."""
    plain = next((candidate for candidate in found if candidate.job.strategy == "blas"), found[0])
    best = min(found, key=lambda candidate: candidate.seconds)
    return best if best.seconds * LEAST_SPEEDUP < plain.seconds else plain


def _race(
    jobs: list[tuple[str, Job]],
    model: nn.Module,
    loader: Loader,
    steps: int,
    begun: float,
    clock: Callable[[], float],
) -> list[TimedJob]:
    """The best time of a step of each job for which there was time. Jobs take turns, so a busy moment slows all alike.

    A step is taken only if it should end in time. It is expected to take as long as the last one of that job, or, if
    there was none, as the first one of the plain loop; with one thread, as many times longer as there are cores.
    """
    with ExitStack() as stack:
        steppers = []
        for _, job in jobs:
            job = replace(job, schedule="constant")  # a run of a few steps has no end
            updater = job.method.updater(job, Alone(), copy.deepcopy(model), loader)
            stack.callback(updater.close)
            steppers.append(_stepper(updater, job, loader, clock))
        taken: list[list[float]] = [[] for _ in steppers]
        taken[0] = [steppers[0]() for _ in range(LEAST_STEPS)]

        def affordable(place: int) -> bool:
            plain = min(taken[0][1:])
            method = jobs[place][1].method
            unknown = (
                max(taken[0][0], plain * (thread_count() if method.one_thread else 2)) * method.steps_timed_together
            )
            left = min(MEASURING_SHARE * steps * plain, MOST_SECONDS) - (clock() - begun)
            tried = taken[place]
            return (tried[-1] if tried else unknown) * max(1, LEAST_STEPS - len(tried)) <= left

        going = True
        while going:
            going = False
            for place, step in enumerate(steppers):
                if affordable(place):
                    taken[place].append(step())
                    going = True
    return [TimedJob(label, job, min(times[1:]) / _timed_steps(job, loader))
            for (label, job), times in zip(jobs, taken, strict=True) if len(times) >= LEAST_STEPS]  # fmt: skip


def _timed_steps(job: Job, loader: Loader) -> int:
    return min(job.method.steps_timed_together, -(-len(loader) // job.batch_size))


def _stepper(updater: Updater, job: Job, loader: Loader, clock: Callable[[], float]) -> Callable[[], float]:
    """A function that takes a step, or the steps that are timed together, and returns the seconds."""
    rows = epoch_order(len(loader), job.seed, 0, True)[: _timed_steps(job, loader) * job.batch_size]
    items = take_all(loader, updater.parts(rows))

    def step() -> float:
        use_threads(blas_threads(job))
        start = clock()
        updater.round(items, len(rows), 0)
        return clock() - start

    return step


def _launched(job: Job, model: nn.Module, train: Dataset[Any], seconds: float) -> TimedJob:
    """Two epochs of a few batches over processes, which are ended after `seconds`."""
    many = _workers(job)
    rows = min(len(train), 12 * job.batch_size)  # type: ignore[arg-type]
    trial = replace(job, strategy="allreduce", backend="processes", workers=many, mesh=None, exact=False)
    short = replace(trial, epochs=2, checkpoint=None, restarts=0)
    stop = threading.Event()
    timer = threading.Timer(max(0.0, seconds), stop.set)
    timer.daemon = True
    timer.start()
    try:
        result = launch(short, copy.deepcopy(model), torch.utils.data.Subset(train, range(rows)), None, silent, stop)
    finally:
        timer.cancel()
    step = job.batch_size / max(record["samples_per_second"] for record in result.history)
    return TimedJob(f"{many} processes", trial, step)
