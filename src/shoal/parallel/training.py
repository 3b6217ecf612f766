"""`fit`: one network, trained over many workers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset, TensorDataset

from shoal.parallel import checkpoint, environment
from shoal.parallel.groups import Alone, Lost, Meeting, Threads
from shoal.parallel.job import MODEL, Job
from shoal.parallel.launch import launch
from shoal.parallel.learner import IGNORED
from shoal.parallel.randomness import torch_as_it_was
from shoal.parallel.strategies import fewest_rows
from shoal.parallel.watch import own_group
from shoal.parallel.worker import Result, Tell, Worker


def fit(
    model: nn.Module,
    train_set: Dataset[Any],
    valid_set: Dataset[Any] | None = None,
    *,
    loss: str | Callable[[Any, Any], torch.Tensor] = "cross_entropy",
    optimizer: str | Callable[[Any], torch.optim.Optimizer] = "adam",
    strategy: str = "auto",
    backend: str = "processes",
    workers: int | None = None,
    tell: Tell | None = None,
    **settings: Any,
) -> Result:
    """Train `model` on `train_set`, in place, and say how it went.

    loss          "cross_entropy", "mse", "bce", or a function of (output, target) that is a mean over rows;
                  cross entropy leaves out rows with the target -100, in each part of a batch by itself
    optimizer     "sgd", "adam", "adamw", or a function of the parameters; learning_rate, momentum, weight_decay
    strategy      see `shoal.parallel`; "auto" measures a few steps and takes the fastest
    backend       "threads", "processes" or "mpi"; ignored under torchrun and mpiexec, which are detected
    workers       how many; None: as many as there are cores, or as the launcher has started
    tell          called with a dict now and then: share done, loss, a record of each epoch, notes
    settings      epochs, batch_size, shuffle, schedule, exact, shards, average_every, asynchronous, folds, mesh,
                  device, blas_threads, seed, checkpoint, checkpoint_every, restarts, allow_fewer, timeout
    """
    job = make_job(loss=loss, optimizer=optimizer, strategy=strategy, backend=backend, workers=workers, **settings)
    check_fit(job, model, train_set, valid_set)
    return run(job, model, train_set, valid_set, tell or (lambda content: None))


def make_job(workers: int | None = None, **settings: Any) -> Job:
    """A checked job; the number of workers follows from the environment if it is not given."""
    from shoal.members import nearest

    known = Job.__dataclass_fields__
    for name in settings:
        if name not in known:
            raise TypeError(f"fit has no setting {name!r}{nearest(name, known)}")
    inside = environment.launcher()
    strategy = settings.get("strategy", "auto")
    if inside is not None:
        size = environment.world()[1]
        servers = strategy == "parameter_server"
        if workers is not None and workers != size - servers:
            raise ValueError(f"{inside} has started {size} processes, but workers={workers}; leave it out")
        if inside == "mpi":
            settings["backend"] = "mpi"
        elif settings.get("backend") == "mpi":
            raise ValueError("under torchrun the backend is 'processes'; for 'mpi' start with mpiexec")
        if strategy == "auto":
            settings["strategy"] = "allreduce"  # whoever starts many processes wants them used
        return Job(workers=size - servers, **settings)
    if workers is None:
        from shoal.machine import thread_count

        workers = 1 if strategy in ("serial", "blas", "auto") else thread_count()
    return Job(workers=workers, **settings)


def run(job: Job, model: nn.Module, train: Dataset[Any], valid: Dataset[Any] | None, tell: Tell) -> Result:
    """Find out what the job leaves open, then train."""
    if job.checkpoint is not None:
        checkpoint.make_place(job.checkpoint)
        job = _as_before(job, checkpoint.peek(job.checkpoint))
    if job.strategy == "auto":
        from shoal.parallel.auto import choose

        job = choose(job, model, train, tell)
    if job.strategy == "kfold":
        from shoal.parallel.kfold import run_folds

        _say_what_is_normalised(job, model, tell if environment.world()[0] == 0 else _silent)
        return run_folds(job, model, train, tell)
    if environment.launcher() is not None:
        return _inside(job, model, train, valid, tell)
    if job.exact is None:
        job = replace(job, exact=_exact_by_default(job, tell))
    _say_what_is_normalised(job, model, tell)
    if not job.in_one_process:
        return launch(job, model, train, valid, tell)
    with torch_as_it_was():
        if job.ranks > 1 and job.strategy != "allreduce":
            return _over_threads(job, model, train, valid, tell)
        return Worker(job, Alone(), model, train, valid, tell).run()


def _as_before(job: Job, earlier: dict[str, Any]) -> Job:
    """A run that goes on does so as it began, where nothing else was asked for: measuring might tell otherwise now."""
    if job.strategy == "auto" and earlier.get("strategy") == "plain":
        job = replace(job, strategy="blas", workers=1)
    elif job.strategy == "auto" and earlier.get("strategy") == "allreduce":
        job = replace(job, strategy="allreduce", backend="threads", workers=max(job.workers, 2))
    if job.exact is None and job.strategy == "allreduce" and earlier.get("strategy") == "allreduce":
        job = replace(job, exact=earlier.get("exact"))
    return job


def _exact_by_default(job: Job, tell: Tell) -> bool:
    """By the arguments alone, never by the clock: pipelines, and all-reduce on CPUs with enough shards."""
    from shoal.parallel.devices import find_device

    if job.strategy != "allreduce":
        return job.strategy == "pipeline"
    if find_device(job.device).type != "cpu":
        return False
    if job.workers > job.shards:
        tell({"note": f"not exact: for {job.workers} workers that needs shards={job.workers}; got {job.shards}"})
        return False
    tell({"note": "exact: the same weights for any number of workers (faster without: --close, exact=False)"})
    return True


def _say_what_is_normalised(job: Job, model: nn.Module, tell: Tell) -> None:
    """Batch normalisation of a part of a batch is another algorithm than that of the whole."""
    parts = _parts_of_a_batch(job)
    if parts > 1 and fewest_rows(model) > 1:
        tell({"note": f"batch normalisation: each batch is cut into up to {parts} parts, and each has its own mean "
                      "and variance; the result differs from that of --strategy serial"})  # fmt: skip


def _parts_of_a_batch(job: Job) -> int:
    """At most; 1 where each batch is one worker's own."""
    if job.strategy == "kfold":
        alone = environment.launcher() is not None
        return job.shards if job.exact else 1 if alone else max(1, job.workers // job.folds)
    shared = job.strategy in ("allreduce", "sharded") or "pipeline" in job.strategy or job.strategy.startswith("data+")
    if shared or (job.strategy == "parameter_server" and not job.asynchronous):
        return job.shards if job.exact else job.workers
    return 1


def _over_threads(job: Job, model: nn.Module, train: Dataset[Any], valid: Dataset[Any] | None, tell: Tell) -> Result:
    """Each worker is a thread with a copy of the model; the first one's is the result."""
    import copy

    meeting = Meeting(job.ranks, job.timeout)
    models = [model, *(copy.deepcopy(model) for _ in range(job.ranks - 1))]
    results: dict[int, Result] = {}
    errors: dict[int, BaseException] = {}

    def work(rank: int) -> None:
        group = Threads(meeting, rank)
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
        meeting.barrier.abort()
        raise
    own = [error for error in errors.values() if not isinstance(error, Lost)] or list(errors.values())
    if own:
        raise own[0]
    return results[0]


def _inside(job: Job, model: nn.Module, train: Dataset[Any], valid: Dataset[Any] | None, tell: Tell) -> Result:
    """One of the processes that torchrun or mpiexec has started."""
    with own_group(job) as group:
        if job.exact is None:
            job = replace(job, exact=_exact_by_default(job, tell if group.rank == 0 else _silent))
        if group.rank == 0:
            _say_what_is_normalised(job, model, tell)
        return Worker(job, group, model, train, valid, tell).run()


def _silent(content: dict[str, Any]) -> None: ...


def check_fit(
    job: Job,
    model: nn.Module,
    train: Dataset[Any],
    valid: Dataset[Any] | None,
    fewest: int = 0,
    most: int | None = None,
) -> None:
    """Refuse what cannot work before anything is started: no rows, shapes that do not fit.

    fewest, most: outputs that the data need, where that is known.
    """
    from shoal.parallel.devices import find_device

    find_device(job.device)
    _check_parameters(model)
    for name, data in (("train_set", train), ("valid_set", valid)):
        if data is None:
            continue
        if not hasattr(data, "__len__") or not hasattr(data, "__getitem__"):
            raise TypeError(f"{name} must be a map-style data set, with len() and []; got {type(data).__name__}")
        if len(data) == 0:
            raise ValueError(f"{name} has no rows")
    if job.strategy in ("local_sgd", "kfold") and len(train) < (job.workers if job.strategy != "kfold" else job.folds):  # type: ignore[arg-type]
        raise ValueError(f"train_set has {len(train)} rows, fewer than there are workers or folds")  # type: ignore[arg-type]
    if job.strategy in MODEL:
        from shoal.parallel.model_parallel import check_model

        check_model(job, model)
    _try(job, model, train, fewest, most)


def _check_parameters(model: nn.Module) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module; got {type(model).__name__}")
    for name, parameter in model.named_parameters():
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            raise ValueError(
                f"the size of {name!r} is not known before the model has seen rows: use a layer with a given number of "
                "inputs, such as nn.Linear for nn.LazyLinear, or call the model once on some rows"
            )
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ValueError("the model has no parameter that could be trained")


def _try(job: Job, model: nn.Module, train: Dataset[Any], fewest: int, most: int | None) -> None:
    """Two rows through a copy of the model and the loss."""
    import copy

    from shoal.parallel.feed import Feed
    from shoal.parallel.learner import make_loss

    rows = min(2, len(train))  # type: ignore[arg-type]
    inputs, target = Feed(train, torch.device("cpu")).take(torch.arange(rows))
    state = torch.get_rng_state()
    try:
        with torch.no_grad():
            trial = copy.deepcopy(model).cpu().eval()
            output = trial(inputs)
            _check_output(job, output, rows, fewest, most)
            _check_classes(job, output, train)
            make_loss(job.loss)(output, target)
    except Misfit:
        raise
    except (Exception, SystemExit) as error:
        shapes = f"inputs {_shape(inputs)}, targets {_shape(target)}"
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"the model does not fit the data ({shapes}): {reason}") from None
    finally:
        torch.set_rng_state(state)


class Misfit(ValueError):
    """Outputs of a wrong kind or number."""


def _check_output(job: Job, output: Any, rows: int, fewest: int, most: int | None) -> None:
    """One tensor, with as many numbers a row as the data need."""
    if not isinstance(output, torch.Tensor):
        if not callable(job.loss):
            raise Misfit(
                f"the model must return one tensor for the loss {job.loss!r}; it returns {_kind(output)} (a loss of "
                "your own, in shoal.parallel.fit, may take anything)"
            )
        return
    found = output.numel() // rows
    if fewest and (output.dim() == 0 or len(output) != rows):
        raise Misfit(f"the network must return one row of outputs a row; for {rows} rows it returns {_shape(output)}")
    if fewest and (found < fewest or (most is not None and found > most)):
        raise Misfit(
            f"the network returns {found} output{'s' * (found != 1)} a row, the data need {fewest}: change its last "
            "layer"
        )


def _kind(value: Any) -> str:
    return f"a {type(value).__name__}" if value is not None else "None"


def _check_classes(job: Job, output: Any, train: Dataset[Any]) -> None:
    """Classes that the network has no output for: found before an epoch is half done."""
    if callable(job.loss) or type(train) is not TensorDataset:
        return
    target = train.tensors[1]
    single = job.loss != "cross_entropy" and output.shape[-1:] == (1,)  # then classes are taken as numbers
    if not target.is_floating_point() and target.dim() == 1 and output.dim() == 2 and not single:
        highest = int(target.max())
        if highest >= output.shape[1] or _below_zero(job, target):
            raise Misfit(
                f"the model does not fit the data: targets go from {int(target.min())} to {highest}, "
                f"and the network has {output.shape[1]} outputs, for classes from 0"
            )


def _below_zero(job: Job, target: torch.Tensor) -> bool:
    """Apart from rows that cross entropy leaves out."""
    left_out = (target == IGNORED) & (job.loss == "cross_entropy")
    return bool(((target < 0) & ~left_out).any())


def _shape(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{tuple(value.shape)} of {str(value.dtype).removeprefix('torch.')}"
    return type(value).__name__
