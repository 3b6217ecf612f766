"""Cross-validation: each fold is trained by one worker, or by several where there are more workers than folds."""

from __future__ import annotations

import copy
import math
import statistics
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from shoal.options import Options, option
from shoal.parallel.cost import Estimate, TrainingRound, Variant, compute, memory_of
from shoal.parallel.data.loader import RandomKey, epoch_order
from shoal.parallel.events import FoldEnded, Notify, silent
from shoal.parallel.exact.randomness import torch_as_it_was
from shoal.parallel.exact.tree_sum import shares
from shoal.parallel.groups import Alone, Lost
from shoal.parallel.launch import environment
from shoal.parallel.launch.external import own_group
from shoal.parallel.launch.launcher import launch
from shoal.parallel.lazy import nn, torch
from shoal.parallel.strategies.base import Runner, Strategy
from shoal.parallel.strategies.updater import note_normalisation
from shoal.parallel.worker import Result, Worker

if TYPE_CHECKING:
    from torch.utils.data import Dataset

    from shoal.parallel.job import Job
    from shoal.planner.cost.times import CostModel

LONGEST = 7 * 86_400.0  # seconds that ranks wait for the last fold; lost ranks are found by the monitor


@dataclass(frozen=True)
class KFoldOptions(Options):
    folds: int = option(5, "kfold: how many.", least=2, most=10**5)


class KFold(Strategy):
    """Each fold is trained by `serial`, or by `allreduce` where there are several workers for a fold."""

    name = "kfold"
    can_be_exact = True
    holds_out_rows = True

    def fewest_rows(self, job: Job) -> int:
        return job.folds

    def smallest_part(self, job: Job, rows: int, least: int, targets: torch.Tensor | None = None) -> int:
        left = {rows - (end - start) for start, end in shares(rows, job.folds)}
        return min(super(KFold, self).smallest_part(job, count, least) for count in left)

    def parts_of_batch(self, job: Job) -> int:
        if job.exact:
            return job.shard_count
        return 1 if environment.launcher() is not None else max(1, job.workers // job.folds)

    def run(self, workers: Runner, job: Job, *training: Any) -> Result:
        """Train a copy of the model for each fold. The result has the model of the fold with the lowest loss."""
        model, train, _, notify = training
        note_normalisation(job, model, notify)
        places = [None if job.checkpoint is None else str(Path(job.checkpoint) / f"fold-{k}") for k in range(job.folds)]
        folds = [
            FoldRows(replace(job, checkpoint=place), copy.deepcopy(model), *sets)
            for place, sets in zip(places, fold_sets(job, train), strict=True)
        ]
        results = (_over_ranks if environment.launcher() is not None else _over_workers)(job, folds, notify)
        return _summary(job, model, results)

    # ---- what it costs ----

    def variants(self) -> list[Variant]:
        return [Variant("kfold", "folds over nodes", self, own_algorithm=True)]

    def estimate(self, costs: CostModel, variant: Variant, nodes: int) -> Estimate:
        """Each node trains whole folds, one on each core."""
        folds, cores = costs.job.folds, costs.calibration.cores
        at_once = nodes * cores if costs.cluster.own_machines else nodes
        running = min(folds, at_once)
        busy = min(running, cores) if costs.cluster.own_machines else running
        rows = costs.rows - costs.rows // folds
        batch, inside = min(costs.job.batch_size, rows), costs.on_one_machine()
        step = costs.one_thread(batch) * inside.contention(batch, busy) * inside.turns(max(busy, 1))
        seconds = -(-folds // at_once) * rows / batch * step * costs.cluster.slowest(nodes)
        return Estimate(seconds, 0.0, 0.0, memory_of(costs, nodes), TrainingRound((compute("a step of a fold", step),)))


class FoldRows(NamedTuple):
    job: Job
    model: nn.Module
    train: Dataset[Any]
    valid: Dataset[Any]


def fold_sets(job: Job, data: Dataset[Any]) -> list[tuple[Dataset[Any], Dataset[Any]]]:
    """For each fold the rows to train on, and those that are held out."""
    count = len(data)  # type: ignore[arg-type]
    order = epoch_order(count, job.seed, RandomKey.FOLDS, job.shuffle)
    return [
        (_part(data, torch.cat([order[:start], order[end:]])), _part(data, order[start:end]))
        for start, end in shares(count, job.folds)
    ]


def _over_workers(job: Job, folds: list[FoldRows], notify: Notify) -> list[Result]:
    """As many folds at a time as there are workers; a fold has several workers where there are more."""
    each = max(1, job.workers // job.folds)
    at_once = min(job.folds, job.workers)
    stop = threading.Event()  # set when a fold has failed or the user interrupts: then the others end
    enough = threading.Event()  # set when a callback asks to stop: then no other fold starts
    kind = "allreduce" if each > 1 or job.exact else "serial"

    def end_with_others(event: str, content: Any) -> bool:
        if stop.is_set():
            raise Lost("another fold has failed")
        return False

    def work(number: int, fold: FoldRows) -> Result | None:
        if enough.is_set():
            return None
        threads = job.blas_threads or 1
        mine = replace(fold.job, strategy=kind, workers=each, blas_threads=threads, exact=bool(job.exact))
        if job.backend == "threads" or (at_once == 1 and each == 1):
            result = Worker(mine, Alone(), *fold[1:], end_with_others).run()
        else:
            result = launch(mine, *fold[1:], end_with_others, stop)
        if notify("step_ended", FoldEnded(number, job.folds, result.metrics)):
            enough.set()
        return result

    with torch_as_it_was(), ThreadPoolExecutor(at_once) as pool:
        futures = [pool.submit(work, number, fold) for number, fold in enumerate(folds)]
        try:
            for done in as_completed(futures):
                done.result()
            return [found for future in futures if (found := future.result()) is not None]
        except BaseException:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _over_ranks(job: Job, folds: list[FoldRows], notify: Notify) -> list[Result]:
    """Under torchrun or mpiexec: rank r of n trains the folds r, r + n, r + 2n, ...; then results are gathered."""
    kind = "allreduce" if job.exact else "serial"  # exact: the same shards as on several workers
    patient = replace(folds[0].job, timeout=LONGEST)  # a rank may have one fold more than another
    with own_group(patient) as group:
        trained: dict[int, Any] = {}
        for k in range(group.rank, job.folds, group.size):
            alone = replace(folds[k].job, strategy=kind, workers=1, exact=bool(job.exact))
            result = Worker(alone, Alone(), *folds[k][1:], silent).run()
            trained[k] = (result.model.state_dict(), result.history, result.metrics)
        for part in group.gather_objects(trained):
            trained |= part
        results = []
        for k, fold in enumerate(folds):
            state, history, metrics = trained[k]
            fold.model.load_state_dict(state)
            results.append(Result(fold.model, history, metrics))
            notify("step_ended", FoldEnded(k, job.folds, metrics))
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
    if type(data) is torch.utils.data.TensorDataset:
        return torch.utils.data.TensorDataset(*[tensor[rows] for tensor in data.tensors])
    return torch.utils.data.Subset(data, rows.tolist())
