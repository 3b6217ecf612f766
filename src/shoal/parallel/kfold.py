"""Cross-validation: each fold is trained by one worker, or by several where there are more workers than folds."""

from __future__ import annotations

import copy
import math
import statistics
import threading
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils.data import Dataset, Subset, TensorDataset

from shoal.parallel import environment
from shoal.parallel.external import own_group
from shoal.parallel.groups import Alone, Lost
from shoal.parallel.launch import launch
from shoal.parallel.loader import epoch_order
from shoal.parallel.normalisation import tell_normalisation
from shoal.parallel.randomness import torch_as_it_was
from shoal.parallel.tree_sum import shares
from shoal.parallel.worker import Result, Tell, Worker

if TYPE_CHECKING:
    from shoal.parallel.job import Job

LONGEST = 7 * 86_400.0  # seconds that ranks wait for the last fold; lost ranks are found by the monitor


def run_folds(job: Job, model: nn.Module, data: Dataset[Any], tell: Tell) -> Result:
    """Train a copy of the model for each fold. The result has the model of the fold with the lowest loss."""
    tell_normalisation(job, model, tell if environment.world()[0] == 0 else _quiet)
    sets = fold_sets(job, data)
    jobs = []
    for k in range(job.folds):
        place = None if job.checkpoint is None else str(Path(job.checkpoint) / f"fold-{k}")
        jobs.append(replace(job, checkpoint=place))
    models = [copy.deepcopy(model) for _ in range(job.folds)]
    if environment.launcher() is not None:
        results = _over_ranks(jobs, models, sets, tell)
    else:
        results = _over_workers(job, jobs, models, sets, tell)
    return _summary(job, model, results)


def fold_sets(job: Job, data: Dataset[Any]) -> list[tuple[Dataset[Any], Dataset[Any]]]:
    """For each fold the rows to train on, and those that are left out."""
    count = len(data)  # type: ignore[arg-type]
    order = epoch_order(count, job.seed, -2, job.shuffle)
    return [
        (_part(data, torch.cat([order[:start], order[end:]])), _part(data, order[start:end]))
        for start, end in shares(count, job.folds)
    ]


def _over_workers(job: Job, jobs: list[Job], models: list[nn.Module], sets: list[Any], tell: Tell) -> list[Result]:
    """As many folds at a time as there are workers; a fold has several workers where there are more."""
    each = max(1, job.workers // job.folds)
    at_once = min(job.folds, job.workers)
    stop = threading.Event()  # set when a fold has failed or the user interrupts: then the others end
    done = 0

    def quiet(content: dict[str, Any]) -> None:
        if stop.is_set():
            raise Lost("another fold has failed")

    def work(k: int) -> Result:
        nonlocal done
        kind = "allreduce" if each > 1 or job.exact else "serial"
        threads = job.blas_threads or 1
        mine = replace(jobs[k], strategy=kind, workers=each, blas_threads=threads, exact=bool(job.exact))
        if job.backend == "threads" or (at_once == 1 and each == 1):
            result = Worker(mine, Alone(), models[k], sets[k][0], sets[k][1], quiet).run()
        else:
            result = launch(mine, models[k], sets[k][0], sets[k][1], quiet, stop)
        done += 1
        tell({"share": done / job.folds, "note": _sentence(k, job.folds, result)})
        return result

    with torch_as_it_was(), ThreadPoolExecutor(at_once) as pool:
        folds = [pool.submit(work, k) for k in range(job.folds)]
        try:
            wait(folds, return_when=FIRST_EXCEPTION)
            for fold in sorted(folds, key=_failed_first):
                fold.result()
            return [fold.result() for fold in folds]
        except BaseException:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _failed_first(fold: Future[Result]) -> bool:
    """A sort key: a fold that has failed before those that are not done."""
    return not (fold.done() and fold.exception() is not None)


def _over_ranks(jobs: list[Job], models: list[nn.Module], sets: list[Any], tell: Tell) -> list[Result]:
    """Under torchrun or mpiexec: rank r of n trains the folds r, r + n, r + 2n, ...; then results are gathered."""
    job = jobs[0]
    patient = replace(job, timeout=LONGEST)  # a rank may have one fold more than another
    with own_group(patient) as group:
        mine: dict[int, Any] = {}
        for k in range(group.rank, job.folds, group.size):
            kind = "allreduce" if job.exact else "serial"  # exact: the same shards as on several workers
            alone = replace(jobs[k], strategy=kind, workers=1, exact=bool(job.exact))
            result = Worker(alone, Alone(), models[k], sets[k][0], sets[k][1], _quiet).run()
            mine[k] = (result.model.state_dict(), result.history, result.metrics)
        results = []
        everyone: dict[int, Any] = {}
        for part in group.gather_objects(mine):
            everyone |= part
        for k in range(job.folds):
            state, history, metrics = everyone[k]
            models[k].load_state_dict(state)
            results.append(Result(models[k], history, metrics))
            tell({"share": (k + 1) / job.folds, "note": _sentence(k, job.folds, results[k])})
        return results


def _summary(job: Job, model: nn.Module, results: list[Result]) -> Result:
    losses = [result.metrics["valid_loss"] for result in results]
    best = min(range(len(results)), key=lambda k: losses[k] if losses[k] == losses[k] else math.inf)
    model.load_state_dict(results[best].model.state_dict())
    metrics: dict[str, Any] = {**results[best].metrics, "strategy": "kfold", "workers": job.workers, "best_fold": best}
    for name in ("valid_loss", "valid_accuracy", "train_loss"):
        values = [result.metrics[name] for result in results if name in result.metrics]
        if values:
            metrics[name] = statistics.fmean(values)
            metrics[f"{name}_spread"] = statistics.pstdev(values)
    history = [{"fold": k, **record} for k, result in enumerate(results) for record in result.history]
    return Result(model, history, metrics, results)


def _part(data: Dataset[Any], rows: torch.Tensor) -> Dataset[Any]:
    if type(data) is TensorDataset:
        return TensorDataset(*[tensor[rows] for tensor in data.tensors])
    return Subset(data, rows.tolist())


def _sentence(k: int, folds: int, result: Result) -> str:
    right = result.metrics.get("valid_accuracy")
    return f"fold {k + 1} of {folds}: loss {result.metrics['valid_loss']:.4f}" + (
        f", {right:.2%} right" if right is not None else ""
    )


def _quiet(content: dict[str, Any]) -> None: ...
