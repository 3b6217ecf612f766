"""The training loop of one worker: rounds, epochs, evaluation, checkpoints, metrics. The same for all strategies."""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from shoal.allocator import memory_kept
from shoal.parallel import checkpoint
from shoal.parallel.data.loader import Loader, Pair, RandomKey, align, epoch_order, find_device, key, prefetch, take_all
from shoal.parallel.data.scatter import scattered
from shoal.parallel.divergence import Diverged, Guard, all_finite
from shoal.parallel.evaluation import chunks_of, flops_per_row, measures
from shoal.parallel.events import EpochEnded, EpochProgress, Notify, silent
from shoal.parallel.exact.randomness import draw_weights
from shoal.parallel.exact.threads import blas_threads, use_threads
from shoal.parallel.groups import Group
from shoal.parallel.identity import data_hash, fixed_values, network_lines
from shoal.parallel.lazy import nn, torch
from shoal.parallel.learner import make_loss
from shoal.runs.changes import DATA, FIXED, NETWORK

if TYPE_CHECKING:
    from torch.utils.data import Dataset

    from shoal.parallel.job import Job


@dataclass
class Result:
    """The result of `fit`.

    Attributes
    ----------
    model : nn.Module
        The trained network: the one that was given.
    history : list of dict
        A record for each epoch: its loss, seconds and, with a `valid_set`, scores.
    metrics : dict
        Of the whole run: seconds, rows per second, bytes that were sent, and more.
    folds : list of Result
        Of each fold; strategy "kfold" only.

    Examples
    --------
    >>> Result(model=None, history=[{"epoch": 1, "loss": 0.5}], metrics={}).history[-1]["loss"]
    0.5
    """

    model: nn.Module
    history: list[dict[str, Any]]
    metrics: dict[str, Any]
    folds: list[Result] = field(default_factory=list)


class Worker:
    """One worker of a group."""

    def __init__(
        self, job: Job, group: Group, model: nn.Module, train: Dataset[Any], valid: Dataset[Any] | None, notify: Notify
    ) -> None:
        self.job, self.group, self.notify = job, group, notify
        self.device = find_device(job.device, group.rank)
        use_threads(blas_threads(job))
        self.model = model.to(self.device)
        if job.exact:
            align(self.model)
        self.train = Loader(train, self.device, job.seed)
        self.valid = None if valid is None else Loader(valid, self.device, job.seed)
        self.flops = flops_per_row(self.model, self.train, job) if group.rank == 0 else 0.0
        self.fingerprint = self._fingerprint() if job.checkpoint and group.rank == 0 else {}
        self._start()
        self.whole = copy.deepcopy(self.model) if job.method.splits_model else self.model
        self.updater = job.method.updater(job, group, self.model, self.train)
        if self.updater.note and group.rank == 0:
            notify("note", self.updater.note)
        self.guard = Guard(job)
        self.updater.report_loss = self.guard.see
        self.history: list[dict[str, Any]] = []
        self.epoch, self.position, self.step = 0, 0, 0
        self.sums = [0.0, 0]
        self.rounds = 0
        self.finished = False  # before the last epoch: no worker needs another
        self.stopped = False  # by a callback

    def _start(self) -> None:
        """All workers begin with the weights of the first, or all but the first draw their own."""
        if self.group.size > 1:
            for value in self.model.state_dict().values():
                self.group.broadcast(value)
        if self.job.start == "own" and self.group.rank > 0:
            draw_weights(self.model, key(self.job.seed, RandomKey.FIRST_WEIGHTS, self.group.rank))

    def run(self) -> Result:
        """Train all epochs, from the last checkpoint if there is one."""
        self._resume()
        begun, communicated = time.perf_counter(), self.group.seconds
        with closing(self.updater):
            with memory_kept():
                for epoch in range(self.epoch, self.job.epochs):
                    if self.finished or self.stopped:
                        break
                    self._epoch(epoch)
                self.updater.finish()
            seconds = time.perf_counter() - begun
            if self.job.method.splits_model:
                self.whole.load_state_dict(self.updater.state()["model"])
        return Result(self.whole, self.history, self._metrics(seconds, self.group.seconds - communicated))

    # ---- training ----

    def _epoch(self, epoch: int) -> None:
        self.epoch = self.guard.epoch = epoch
        if self.position == 0:
            self.sums = [0.0, 0]
        self.updater.extra.clear()
        begun, communicated, first = time.perf_counter(), self.group.seconds, self.position
        rounds = self._rounds(epoch)
        for items, count in rounds if self.train.in_memory else prefetch(rounds):
            loss, seen = self._round(items, count)
            self.sums[0] += loss
            self.sums[1] += seen
            self.position += count
            self.step += self.updater.steps_in(count)
            self.rounds += 1
            self._after_round()
        seconds = time.perf_counter() - begun
        self._close_epoch(seconds, self.group.seconds - communicated, len(self.train) - first)

    def _round(self, items: list[Pair | None], count: int) -> tuple[float, int]:
        """A loss that is not finite: say so if the rows are the cause. Workers that share the loss say the same."""
        try:
            return self.updater.round(items, count, self.step)
        except Diverged:
            finite = all_finite(items)
            if self.updater.shares_loss:
                finite = all(self.group.gather_objects(finite))
            if finite:
                raise
            raise self.guard.bad_rows(self.step) from None

    def _rounds(self, epoch: int) -> Iterator[tuple[list[Pair | None], int]]:
        """This worker's data, round by round, from the present position in the epoch."""
        order = epoch_order(len(self.train), self.job.seed, epoch, self.job.shuffle)
        rounds = self.updater.rounds(order, self.position)
        if self.group.scatters_rows and self.train.tensors is not None:
            items = scattered(self.group, self.train, [self.updater.parts(rows) for rows in rounds])
            yield from zip(items, map(len, rounds), strict=True)
            return
        for rows in rounds:
            yield take_all(self.train, self.updater.parts(rows), epoch), len(rows)

    def _after_round(self) -> None:
        every = self.job.checkpoint_every
        if self.job.checkpoint and isinstance(every, int) and self.rounds % every == 0:
            self.guard.check_weights(self.updater.model.parameters(), self.step)
            self._save()
        if self.group.rank == 0:
            share = (self.epoch + self.position / len(self.train)) / self.job.epochs
            progress = EpochProgress(share, self.epoch, self.sums[0] / max(self.sums[1], 1))
            self.stopped |= self.notify("progress", progress)

    def _close_epoch(self, seconds: float, communicated: float, rows: int) -> None:
        self.guard.check_weights(self.updater.model.parameters(), self.step)
        watched = self.notify is not silent
        mine = (self.sums, dict(self.updater.extra), self.guard.seen(), self.updater.enough(), watched)
        totals = self.group.gather_objects(mine)
        self.finished = all(part[3] for part in totals)
        last = self.finished or self.epoch == self.job.epochs - 1
        self.guard.close_epoch([part[2] for part in totals], self.step, last)
        loss, seen = (sum(part[0][k] for part in totals) for k in (0, 1))
        record: dict[str, Any] = {"epoch": self.epoch, "train_loss": loss / max(seen, 1), "seconds": seconds}
        record["samples_per_second"] = rows / seconds
        if self.flops:
            record["gflops"] = self.flops * rows / seconds / 1e9
        record["communicating"] = min(1.0, communicated / seconds) if self.group.size > 1 else 0.0
        for _, extra, *_ in totals:
            for name, values in extra.items():
                record[f"{name}_mean"], record[f"{name}_max"] = statistics.fmean(values), max(values)
        if self.valid is not None:
            record |= self.evaluate(self.valid)
            self.guard.check_valid(record["valid_loss"], map(self.valid.take, chunks_of(self.valid)), self.step)
        self.history.append(record)
        self.epoch, self.position, self.sums = self.epoch + 1, 0, [0.0, 0]
        if self.job.checkpoint:
            self._save()
        if any(part[4] for part in totals):
            self._report_epoch(record, [part[0][0] / part[0][1] if part[0][1] else None for part in totals])

    def _report_epoch(self, record: dict[str, Any], losses: list[float | None]) -> None:
        """All workers stop after the same epoch, whoever asked for it and whenever the answer came."""
        if self.group.rank == 0:
            self.stopped |= self.notify("step_ended", EpochEnded(record["epoch"], self.job.epochs, record, losses))
            if self.finished and self.epoch < self.job.epochs:
                self.notify("note", f"ended after epoch {self.epoch}: no worker needs another one")
        self.stopped = self.group.first_object(self.stopped)

    # ---- evaluation ----

    def evaluate(self, loader: Loader) -> dict[str, float]:
        """Loss, and accuracy for classes, over all rows, which are shared out between workers if the updater can."""
        model = self.updater.evaluated()
        model.eval()
        chunks = chunks_of(loader)
        found: dict[int, list[float]] = {}
        with torch.no_grad():
            for k, rows in enumerate(chunks):
                if self.updater.evaluates_together or k % self.group.size == self.group.rank:
                    found[k] = measures(model, make_loss(self.job.loss), *loader.take(rows))
        model.train()
        for part in self.group.gather_objects(found):
            found |= part
        sums = [sum(column) for column in zip(*(found[k] for k in range(len(chunks))), strict=True)]
        metrics = {"valid_loss": sums[0] / len(loader)}
        if sums[2]:
            metrics["valid_accuracy"] = sums[1] / sums[2]
        return metrics

    # ---- checkpoints ----

    def _fingerprint(self) -> dict[str, Any]:
        """What a checkpoint is bound to. One that only this run can see need not be bound to the data."""
        assert self.job.checkpoint is not None
        own = checkpoint.is_temporary(self.job.checkpoint)
        return {
            **self.job.fingerprint(), "rows": len(self.train), NETWORK: network_lines(self.model),
            FIXED: {} if own else fixed_values(self.model),
            DATA: "" if own else data_hash(self.train.data, None if self.valid is None else self.valid.data),
        }  # fmt: skip

    def _file(self) -> tuple[str, str]:
        """The name of the data and the checksum of their file, where they are known."""
        about = self.job.about or {}
        return str(about.get("file", "")), str(about.get("checksum", ""))

    def _save(self) -> None:
        """Not while the last loss of any worker was absurd: then the checkpoint from before stays."""
        if any(self.group.gather_objects(self.guard.absurd > 0)):
            return
        state = self.updater.state()
        if self.group.rank == 0:
            assert self.job.checkpoint is not None
            begun = self.fingerprint[FIXED]
            values = fixed_values(self.updater.model) if begun else {}
            checkpoint.save(self.job.checkpoint, {
                "fingerprint": self.fingerprint, "file": self._file(), "state": state, "epoch": self.epoch,
                "position": self.position, "step": self.step, "sums": self.sums, "history": self.history,
                "rounds": self.rounds, "finished": self.finished, "first_loss": self.guard.first,
                "unchanged": [name for name in begun if values.get(name) == begun[name]],
            })  # fmt: skip

    def _resume(self) -> None:
        if not self.job.checkpoint:
            return
        content = None
        if self.group.rank == 0:
            content = checkpoint.load(self.job.checkpoint, self.fingerprint, *self._file(), epochs=self.job.epochs)
        content = self.group.first_object(content)
        if content is None:
            return
        self.updater.load(content["state"])
        self.epoch, self.position, self.step = content["epoch"], content["position"], content["step"]
        self.history, self.rounds = list(content["history"]), content["rounds"]
        self.sums = list(content["sums"]) if self.group.rank == 0 else [0.0, 0]
        self.finished, self.guard.first = content["finished"], content["first_loss"]
        if self.group.rank == 0:
            self.notify("note", f"resuming from the checkpoint after {self.step} steps (epoch {self.epoch + 1})")

    def _metrics(self, seconds: float, communicated: float) -> dict[str, Any]:
        job = self.job
        metrics: dict[str, Any] = {
            "strategy": job.method.name, "backend": job.backend, "workers": job.workers, "exact": bool(job.exact),
            "blas_threads": blas_threads(job), "device": str(self.device), "seconds": seconds,
            "communicating": min(1.0, communicated / seconds) if self.group.size > 1 and seconds else 0.0,
        }  # fmt: skip
        if self.history:
            metrics["seconds_per_epoch"] = statistics.median(record["seconds"] for record in self.history)
            metrics["samples_per_second"] = statistics.median(record["samples_per_second"] for record in self.history)
            if self.flops:
                metrics["gflops"] = statistics.median(record["gflops"] for record in self.history)
            last = self.history[-1]
            metrics |= {name: last[name] for name in ("train_loss", "valid_loss", "valid_accuracy") if name in last}
        return metrics
