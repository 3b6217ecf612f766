"""Accuracy of a strategy: it runs for real, on virtual nodes, with several seeds."""

from __future__ import annotations

import copy
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy.special import stdtrit
from torch import nn
from torch.utils.data import Dataset

from shoal.machine import available_memory, thread_count
from shoal.parallel.data.loader import Loader
from shoal.parallel.divergence import Diverged
from shoal.parallel.evaluation import measures
from shoal.parallel.events import EpochEnded, Notify
from shoal.parallel.exact.randomness import torch_as_it_was
from shoal.parallel.groups import Alone
from shoal.parallel.learner import make_loss
from shoal.parallel.strategies.kfold import fold_sets
from shoal.parallel.worker import Worker
from shoal.planner.simulate.averaged import Averaged, train_averaged
from shoal.planner.simulate.chains import can_be_fast, data_of
from shoal.planner.simulate.virtual import Timing, run_nodes
from shoal.population.engines.program import Data

if TYPE_CHECKING:
    from shoal.parallel.job import Job

COPIES = 6  # of the weights of a node in the memory of a population: weights, gradients, moments, working memory
SMALL = 2e7  # floating-point operations of a step that more threads cannot make faster


@dataclass(frozen=True)
class Scores:
    """The score on the test rows after each epoch, of each seed; NaN from where a training has diverged."""

    values: tuple[tuple[float, ...], ...]
    trained: tuple[int, ...] = ()  # epochs of each seed, where nodes stop at an error; empty: all of them

    @property
    def epochs(self) -> float:
        """That were trained, the mean over seeds."""
        return statistics.fmean(self.trained) if self.trained else float(len(self.values[0]))

    @property
    def by_epoch(self) -> list[float]:
        """The mean over seeds."""
        return [statistics.fmean(column) for column in zip(*self.values, strict=True)]

    @property
    def last(self) -> float:
        return self.by_epoch[-1]

    @property
    def diverged(self) -> bool:
        return math.isnan(self.last)

    @property
    def spread(self) -> float:
        """The standard deviation over seeds, after the last epoch; none for one seed."""
        last = [row[-1] for row in self.values]
        return statistics.stdev(last) if len(last) > 1 else 0.0

    def interval(self) -> tuple[float, float] | None:
        """95% for the mean over seeds, by Student's t; None for one seed."""
        last = [row[-1] for row in self.values]
        if len(last) < 2 or self.diverged:
            return None
        half = float(stdtrit(len(last) - 1, 0.975)) * self.spread / math.sqrt(len(last))
        low = self.last - half
        return (max(low, 0.0) if min(last) >= 0 else low), min(self.last + half, 1.0)

    def epochs_to(self, goal: float) -> float | None:
        """After how many epochs the mean reaches the goal, between two epochs by a straight line; None: never."""
        before = 0.0
        for epoch, value in enumerate(self.by_epoch):
            if value >= goal:
                share = (goal - before) / (value - before) if epoch and value > before else 1.0
                return epoch + share
            before = value
        return None


@dataclass(frozen=True)
class Case:
    """A training whose accuracy is asked for: a job for each seed, and the network that it begins with."""

    name: str
    jobs: tuple[Job, ...]
    folds: int | None = None  # each node cross-validates its rows

    @property
    def epochs(self) -> int:
        return self.jobs[0].epochs


class Simulator:
    """Trains cases on virtual nodes. What all have in common: data, and a network for each seed."""

    def __init__(
        self,
        models: Sequence[nn.Module],
        train: Dataset[Any],
        test: Dataset[Any],
        flops: float = 0.0,
    ) -> None:
        """`flops`: floating-point operations of a row."""
        self.models, self.train, self.test, self.flops = models, train, test, flops
        self._variance: float | None = None

    def fast(self, case: Case) -> bool:
        """Whether the population engine can train all nodes at once, and its score is the one that is asked for."""
        model, job = self.models[0], case.jobs[0]
        if not all(can_be_fast(model, rows, job) for rows in (self.train, self.test)):
            return False
        return job.loss == "cross_entropy" or (job.loss == "mse" and metric_of(job, model, self.test) == "r2")

    # ---- all nodes as one population ----

    def averaged(self, cases: Sequence[Case], progress: Callable[[float], None]) -> Iterator[tuple[Case, Scores]]:
        """Cases that the engine can train, as many at a time as fit into memory."""
        for part in self._parts(cases):
            jobs = [job for case in part for job in case.jobs]
            models = [model for _ in part for model in self.models]
            scores: list[list[float]] = [[] for _ in jobs]
            seen = data_of(self.models[0], self.test, str(jobs[0].loss))

            def after_epoch(
                epoch: int, found: Averaged, scores: list[list[float]] = scores, part: Sequence[Case] = part,
                seen: Data = seen,
            ) -> None:  # fmt: skip
                values = found.networks.evaluate(seen.X, seen.labels if len(seen.labels) else seen.targets).score
                for k, row in enumerate(scores):
                    row.append(math.nan if found.diverged[k] is not None else float(values[k]))
                progress(len(part))

            found = train_averaged(models, self.train, jobs, folds=part[0].folds, after_epoch=after_epoch)  # type: ignore[arg-type]
            trained = np.isfinite(found.losses).sum(axis=1).tolist()
            for k, case in enumerate(part):
                mine = slice(k * len(case.jobs), (k + 1) * len(case.jobs))
                yield case, Scores(tuple(_filled(row, case.epochs) for row in scores[mine]), tuple(trained[mine]))

    def _parts(self, cases: Sequence[Case]) -> Iterator[list[Case]]:
        """Cases that are trained together: with the same folds, epochs and batches, within the memory there is."""
        weights = sum(parameter.numel() * 4 for parameter in self.models[0].parameters())
        room = available_memory() / 2 / (COPIES * weights)
        waiting: dict[tuple[Any, ...], list[Case]] = {}
        for case in cases:
            job = case.jobs[0]
            waiting.setdefault((case.folds, job.batch_size, job.learning_rate, job.epochs), []).append(case)
        for group in waiting.values():
            part: list[Case] = []
            members = 0.0
            for case in group:
                more = len(case.jobs) * case.jobs[0].workers * (case.folds or 1)
                if part and members + more > room:
                    yield part
                    part, members = [], 0.0
                part.append(case)
                members += more
            yield part

    # ---- one node after the other ----

    def on_nodes(self, case: Case, progress: Callable[[float], None], timing: Timing | None = None) -> Scores:
        """One training for each seed, by the strategy's own code."""
        found, trained = [], []
        for job, model in zip(case.jobs, self.models, strict=True):
            own = copy.deepcopy(model)
            row: list[float] = []

            def hear(event: str, content: Any, row: list[float] = row) -> bool:
                if isinstance(content, EpochEnded):
                    row.append(self._score(content.record))
                    progress(1 / len(case.jobs))
                return False

            try:
                self._run(self._threads(job), own, hear, timing)
            except Diverged:
                row += [math.nan]
            found.append(_filled(row, case.epochs))
            trained.append(len(row))
        return Scores(tuple(found), tuple(trained))

    def _run(self, job: Job, model: nn.Module, hear: Notify, timing: Timing | None) -> None:
        if job.ranks > 1:
            run_nodes(job, model, self.train, self.test, hear, timing)
            return
        with torch_as_it_was():
            Worker(job, Alone(), model, self.train, self.test, hear).run()

    def _threads(self, job: Job) -> Job:
        """With all cores where steps are large; one node computes at a time."""
        large = self.flops * job.batch_size >= SMALL and job.ranks <= 64
        return replace(job, blas_threads=thread_count() if large else 1)

    def on_folds(self, case: Case, progress: Callable[[float], None]) -> Scores:
        """Cross-validation: the mean score of the networks of all folds on the test rows."""
        found = []
        for job, model in zip(case.jobs, self.models, strict=True):
            rows, share = [], 1 / (job.folds * len(case.jobs))
            single = Case(case.name, (replace(job, strategy="blas", workers=1),))
            for fold, _ in fold_sets(job, self.train):
                part = Simulator([model], fold, self.test, self.flops)
                rows.append(part.on_nodes(single, lambda done, share=share: progress(done * share)).values[0])  # type: ignore[misc]
            found.append(tuple(statistics.fmean(column) for column in zip(*rows, strict=True)))
        return Scores(tuple(found))

    def _score(self, record: Mapping[str, Any]) -> float:
        """Accuracy; for numbers R2, from the squared error."""
        if "valid_accuracy" in record:
            return float(record["valid_accuracy"])
        if self._variance is None:
            self._variance = variance_of(self.test)
        return 1 - record["valid_loss"] / self._variance if self._variance else math.nan


def metric_of(job: Job, model: nn.Module, test: Dataset[Any]) -> str:
    """What the score of a test row is a part of: accuracy, or r2. Empty: neither can be said of this loss."""
    inputs, target = Loader(test, torch.device("cpu")).take(torch.arange(min(2, len(test))))  # type: ignore[arg-type]
    with torch.no_grad(), torch_as_it_was():
        known = measures(copy.deepcopy(model).cpu().eval(), make_loss(job.loss), inputs, target)[2]
    return "accuracy" if known else "r2" if job.loss == "mse" else ""


def variance_of(data: Dataset[Any]) -> float:
    """Of the targets, where they are numbers."""
    target = Loader(data, torch.device("cpu")).targets()
    return 0.0 if target is None else float((target.float() - target.float().mean(0)).square().mean())


def _filled(row: Sequence[float], epochs: int) -> tuple[float, ...]:
    """With the last value for epochs that were not needed."""
    values = [*row, *[row[-1]] * (epochs - len(row))] if row else [math.nan] * epochs
    return tuple(values[:epochs])
