"""`fit`: one network, trained over many workers."""

from __future__ import annotations

import copy
import traceback
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from shoal.callbacks import Callbacks
from shoal.console.background import BackgroundThread, wait_for
from shoal.errors import UserError, WrongType
from shoal.machine import thread_count
from shoal.parallel import checkpoint
from shoal.parallel.checks import check_fit
from shoal.parallel.events import Notify, TrainingStarted, silent
from shoal.parallel.exact.randomness import torch_as_it_was
from shoal.parallel.groups import Alone, Lost, Rendezvous, Threads
from shoal.parallel.job import Job
from shoal.parallel.launch import environment
from shoal.parallel.launch.external import own_group
from shoal.parallel.launch.launcher import launch
from shoal.parallel.lazy import nn
from shoal.parallel.strategies import find_strategy
from shoal.parallel.strategies.updater import note_normalisation
from shoal.parallel.worker import Result, Worker
from shoal.validate import nearest

if TYPE_CHECKING:
    from torch.utils.data import Dataset


def fit(
    model: nn.Module,
    train_set: Dataset[Any],
    valid_set: Dataset[Any] | None = None,
    *,
    callbacks: Any = None,
    **options: Any,
) -> Result:
    """Train `model` on `train_set`, in place.

    Parameters
    ----------
    model : nn.Module
        The network.
    train_set : Dataset
        Pairs of (inputs, target), as `torch.utils.data.DataLoader` takes them.
    valid_set : Dataset, optional
        Scored after each epoch.
    callbacks : list of Callback, optional
        Watch the training and may stop it early; see `shoal.callbacks`. `started` receives a `TrainingStarted`,
        `progress` a `EpochProgress`, `step_ended` an `EpochEnded` (strategy "kfold": a `FoldEnded`) of
        `shoal.parallel.events`, `finished` the result.
    **options : any
        The options of `shoal train`: fields of `shoal.parallel.job.Job`. The most used are listed below, together with
        epochs, batch_size, learning_rate, schedule, exact, checkpoint, device and seed.

    Other Parameters
    ----------------
    loss : {"cross_entropy", "mse", "bce"} or callable
        A function of (output, target) must be a mean over rows. Cross entropy ignores rows with the target -100, in
        each part of a batch by itself.
    optimizer : {"sgd", "adam", "adamw"} or callable
        A function takes the parameters. The names use learning_rate, momentum and weight_decay.
    strategy : str or Strategy, default "auto"
        A name, see `shoal.parallel`, or a custom object, see `shoal.parallel.strategies.base`; "auto" measures a few
        steps and takes the fastest.
    backend : {"threads", "processes", "mpi"}
        Ignored under torchrun and mpiexec, which are detected.
    workers : int, optional
        As many as there are cores by default, or as the launcher has started.

    Returns
    -------
    Result
        The network, its history and its metrics.

    Examples
    --------
    >>> import torch
    >>> from torch.utils.data import TensorDataset
    >>> x = torch.randn(64, 3)
    >>> data = TensorDataset(x, x.sum(1, keepdim=True))
    >>> options = {"loss": "mse", "epochs": 2, "workers": 2, "backend": "threads", "strategy": "allreduce"}
    >>> result = fit(nn.Linear(3, 1), data, **options)
    >>> [record["epoch"] for record in result.history]
    [0, 1]
    """
    callbacks = Callbacks(callbacks)
    job = make_job(**options)
    check_fit(job, model, train_set, valid_set)
    return run(job, model, train_set, valid_set, callbacks)


def make_job(workers: int | None = None, **options: Any) -> Job:
    """A checked job. The number of workers follows from the launcher or the machine if it is not given."""
    for name in options:
        if name not in Job.__dataclass_fields__:
            raise WrongType(f"fit has no option {name!r}{nearest(name, Job.__dataclass_fields__)}")
    method = find_strategy(options.get("strategy", "auto"))
    launcher = environment.launcher()
    if launcher is None:
        return Job(workers=method.default_workers(thread_count()) if workers is None else workers, **options)
    size = environment.world()[1]
    if workers is not None and workers != size - method.servers:
        raise UserError(f"{launcher} has started {size} processes, but workers={workers}. Omit workers")
    if launcher == "mpi":
        options["backend"] = "mpi"
    elif options.get("backend") == "mpi":
        raise UserError("under torchrun the backend is 'processes'; for 'mpi' start with mpiexec")
    if method.when_launched:
        options["strategy"] = method.when_launched
    return Job(workers=size - method.servers, **options)


def run(
    job: Job, model: nn.Module, train: Dataset[Any], valid: Dataset[Any] | None = None, callbacks: Any = None
) -> Result:
    """`fit` with a checked job. Only the first of several processes of a launcher has callbacks."""
    callbacks = Callbacks(callbacks if environment.world()[0] == 0 else None)
    try:
        result = _run(job, model, train, valid, callbacks.notify if callbacks.callbacks else silent)
        callbacks.notify("finished", result)
        return result
    except SystemExit as error:
        raise UserError(
            f"training was ended by sys.exit({'' if error.code is None else repr(error.code)}) in the model, loss, "
            f"optimizer, data set or callback ({_place(error)}), and there is no result; raise an error instead"
        ) from error


def _place(error: BaseException) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{frame.filename}, line {frame.lineno}, in {frame.name}"


def _run(job: Job, model: nn.Module, train: Dataset[Any], valid: Dataset[Any] | None, notify: Notify) -> Result:
    """Decide what the job leaves open, then train. A network that ends Python with `sys.exit` has failed."""
    if job.checkpoint is not None:
        checkpoint.make_place(job.checkpoint)
        job = job.method.resume(job, checkpoint.peek(job.checkpoint))
    job = job.method.choose(job, model, train, notify)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    rows: int = len(train)  # type: ignore[arg-type]
    notify("started", TrainingStarted(job.method.name, job.backend, job.workers, job.epochs, rows, parameters))
    return job.method.run(run_workers, job, model, train, valid, notify)


def run_workers(job: Job, model: nn.Module, train: Dataset[Any], valid: Dataset[Any] | None, notify: Notify) -> Result:
    """Train one model: in this process, in processes of our own, or as one of those that a launcher has started."""
    if environment.launcher() is not None:
        with own_group(job) as group:
            job = decide_exact(job, model, notify)
            return Worker(job, group, model, train, valid, notify).run()
    job = decide_exact(job, model, notify)
    if job.backend != "threads" and job.ranks > 1:
        return launch(job, model, train, valid, notify)
    with torch_as_it_was():
        if job.ranks > 1 and not job.method.pools_threads:
            return run_threads(job, model, train, valid, notify)
        return Worker(job, Alone(), model, train, valid, notify).run()


def decide_exact(job: Job, model: nn.Module, notify: Notify) -> Job:
    """Fill in `exact`, and say where batch normalisation makes another algorithm of it."""
    if job.exact is None:
        job = replace(job, exact=job.method.exact_by_default(job, notify))
    note_normalisation(job, model, notify)
    return job


def run_threads(job: Job, model: nn.Module, train: Dataset[Any], valid: Dataset[Any] | None, notify: Notify) -> Result:
    """Each worker is a thread with a copy of the model; that of the first is the result."""
    rendezvous = Rendezvous(job.ranks, job.timeout)
    models = [model, *(copy.deepcopy(model) for _ in range(job.ranks - 1))]
    results: dict[int, Result] = {}
    errors: dict[int, BaseException] = {}

    def work(rank: int) -> None:
        group = Threads(rendezvous, rank)
        try:
            results[rank] = Worker(job, group, models[rank], train, valid, notify).run()
        except BaseException as error:
            errors[rank] = error
            group.close()

    threads = [BackgroundThread(partial(work, rank), f"shoal-worker-{rank}") for rank in range(job.ranks)]
    wait_for(threads, interrupted=rendezvous.barrier.abort)
    causes = [error for error in errors.values() if not isinstance(error, Lost)] or list(errors.values())
    if causes:
        raise causes[0]
    return results[0]
