"""`fit`: one network, trained over many workers."""

from __future__ import annotations

import copy
import threading
import traceback
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset

from shoal.errors import UserError, WrongType
from shoal.machine import thread_count
from shoal.parallel import checkpoint, environment
from shoal.parallel.checks import check_fit
from shoal.parallel.external import own_group
from shoal.parallel.groups import Alone, Lost, Rendezvous, Threads
from shoal.parallel.job import Job
from shoal.parallel.launch import launch
from shoal.parallel.normalisation import tell_normalisation
from shoal.parallel.randomness import torch_as_it_was
from shoal.parallel.strategies import Strategy, find_strategy
from shoal.parallel.worker import Result, Tell, Worker
from shoal.validate import nearest


def fit(
    model: nn.Module,
    train_set: Dataset[Any],
    valid_set: Dataset[Any] | None = None,
    *,
    loss: str | Callable[[Any, Any], torch.Tensor] = "cross_entropy",
    optimizer: str | Callable[[Any], torch.optim.Optimizer] = "adam",
    strategy: str | Strategy = "auto",
    backend: str = "processes",
    workers: int | None = None,
    tell: Tell | None = None,
    **settings: Any,
) -> Result:
    """Train `model` on `train_set`, in place.

    loss          "cross_entropy", "mse", "bce", or a function of (output, target) that is a mean over rows;
                  cross entropy ignores rows with the target -100, in each part of a batch by itself
    optimizer     "sgd", "adam", "adamw", or a function of the parameters; learning_rate, momentum, weight_decay
    strategy      a name, see `shoal.parallel`, or an object of your own, see `shoal.parallel.strategies.base`;
                  "auto" measures a few steps and takes the fastest
    backend       "threads", "processes" or "mpi"; ignored under torchrun and mpiexec, which are detected
    workers       how many; None: as many as there are cores, or as the launcher has started
    tell          called with a dict: the share done and the loss, a record of each epoch, notes
    settings      other fields of `shoal.parallel.job.Job`: epochs, batch_size, shuffle, schedule, exact, device, ...
    """
    job = make_job(loss=loss, optimizer=optimizer, strategy=strategy, backend=backend, workers=workers, **settings)
    check_fit(job, model, train_set, valid_set)
    return run(job, model, train_set, valid_set, tell or (lambda content: None))


def make_job(workers: int | None = None, **settings: Any) -> Job:
    """A checked job. The number of workers follows from the launcher or the machine if it is not given."""
    for name in settings:
        if name not in Job.__dataclass_fields__:
            raise WrongType(f"fit has no setting {name!r}{nearest(name, Job.__dataclass_fields__)}")
    method = find_strategy(settings.get("strategy", "auto"))
    launcher = environment.launcher()
    if launcher is None:
        return Job(workers=method.default_workers(thread_count()) if workers is None else workers, **settings)
    size = environment.world()[1]
    if workers is not None and workers != size - method.servers:
        raise UserError(f"{launcher} has started {size} processes, but workers={workers}; leave it out")
    if launcher == "mpi":
        settings["backend"] = "mpi"
    elif settings.get("backend") == "mpi":
        raise UserError("under torchrun the backend is 'processes'; for 'mpi' start with mpiexec")
    if method.when_launched:
        settings["strategy"] = method.when_launched
    return Job(workers=size - method.servers, **settings)


def run(job: Job, model: nn.Module, train: Dataset[Any], valid: Dataset[Any] | None, tell: Tell) -> Result:
    """Decide what the job leaves open, then train. A network that ends Python with `sys.exit` has failed."""
    try:
        return _run(job, model, train, valid, tell)
    except SystemExit as error:
        raise UserError(
            f"training was ended by sys.exit({'' if error.code is None else repr(error.code)}) in the model, loss, "
            f"optimizer, data set or callback ({_place(error)}), and there is no result; raise an error instead"
        ) from error


def _place(error: BaseException) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{frame.filename}, line {frame.lineno}, in {frame.name}"


def _run(job: Job, model: nn.Module, train: Dataset[Any], valid: Dataset[Any] | None, tell: Tell) -> Result:
    if job.checkpoint is not None:
        checkpoint.make_place(job.checkpoint)
        job = job.method.resume(job, checkpoint.peek(job.checkpoint))
    job = job.method.choose(job, model, train, tell)
    return job.method.run(job, model, train, valid, tell, run_workers)


def run_workers(job: Job, model: nn.Module, train: Dataset[Any], valid: Dataset[Any] | None, tell: Tell) -> Result:
    """Train one model: in this process, in processes of our own, or as one of those that a launcher has started."""
    if environment.launcher() is not None:
        with own_group(job) as group:
            job = decide_exact(job, model, tell if group.rank == 0 else _silent)
            return Worker(job, group, model, train, valid, tell).run()
    job = decide_exact(job, model, tell)
    if not job.in_one_process:
        return launch(job, model, train, valid, tell)
    with torch_as_it_was():
        if job.ranks > 1 and not job.method.pools_threads:
            return run_threads(job, model, train, valid, tell)
        return Worker(job, Alone(), model, train, valid, tell).run()


def decide_exact(job: Job, model: nn.Module, tell: Tell) -> Job:
    """Fill in `exact`, and say where batch normalisation makes another algorithm of it."""
    if job.exact is None:
        job = replace(job, exact=job.method.exact_by_default(job, tell))
    tell_normalisation(job, model, tell)
    return job


def run_threads(job: Job, model: nn.Module, train: Dataset[Any], valid: Dataset[Any] | None, tell: Tell) -> Result:
    """Each worker is a thread with a copy of the model; that of the first is the result."""
    rendezvous = Rendezvous(job.ranks, job.timeout)
    models = [model, *(copy.deepcopy(model) for _ in range(job.ranks - 1))]
    results: dict[int, Result] = {}
    errors: dict[int, BaseException] = {}

    def work(rank: int) -> None:
        group = Threads(rendezvous, rank)
        try:
            results[rank] = Worker(job, group, models[rank], train, valid, tell).run()
        except BaseException as error:
            errors[rank] = error
            group.close()

    threads = [threading.Thread(target=work, args=(rank,), daemon=True) for rank in range(job.ranks)]
    for thread in threads:
        thread.start()
    try:
        while any(thread.is_alive() for thread in threads):
            for thread in threads:
                thread.join(0.2)
    except KeyboardInterrupt:
        rendezvous.barrier.abort()
        raise
    causes = [error for error in errors.values() if not isinstance(error, Lost)] or list(errors.values())
    if causes:
        raise causes[0]
    return results[0]


def _silent(content: dict[str, Any]) -> None: ...
