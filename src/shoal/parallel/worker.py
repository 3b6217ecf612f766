"""One worker's whole run: rounds through epochs, checkpoints, evaluation, and what there is to tell about it."""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset

from shoal.parallel import checkpoint
from shoal.parallel.divergence import Diverged, Guard, all_finite
from shoal.parallel.feed import Feed, Pair, ahead, align, epoch_order, rows_in, take_all
from shoal.parallel.groups import Group, Mpi
from shoal.parallel.job import MODEL, SINGLE, Job
from shoal.parallel.learner import IGNORED, make_loss
from shoal.parallel.randomness import OwnGenerator
from shoal.parallel.scatter import scattered
from shoal.parallel.strategies import AllReduce, Ddp, LocalSgd, OneWorker, Strategy
from shoal.parallel.threads import blas_threads, shard_threads, use_threads

CHUNK = 1024  # rows evaluated at a time; fixed, so that sums do not depend on the number of workers
Tell = Callable[[dict[str, Any]], None]


@dataclass
class Result:
    """What a run gives back."""

    model: nn.Module
    history: list[dict[str, Any]]
    metrics: dict[str, Any]
    folds: list[Result] = field(default_factory=list)


def make_strategy(job: Job, group: Group, model: nn.Module, rows: int, device: torch.device) -> Strategy:
    """The strategy of that name, for one worker."""
    threaded = job.backend == "threads" and job.ranks > 1
    if job.strategy in SINGLE or (job.strategy in MODEL and group.size == 1 and "pipeline" not in job.strategy):
        return OneWorker(job, group, model, rows)
    if job.strategy == "allreduce":
        if job.exact or group.size == 1 or job.backend == "mpi":
            return AllReduce(job, group, model, rows, shard_threads(job, group.size))
        return Ddp(job, group, model, rows)
    if job.strategy == "local_sgd":
        return LocalSgd(job, group, model, rows, threaded)
    if job.strategy == "parameter_server":
        from shoal.parallel.server import ParameterServer

        return ParameterServer(job, group, model, rows, threaded)
    from shoal.parallel.model_parallel import Pipeline, Sharded, Tensor

    kinds = {"tensor": Tensor, "data+tensor": Tensor, "sharded": Sharded}
    return kinds.get(job.strategy, Pipeline)(job, group, model, rows, device)


class Worker:
    """Trains a model as one of a group."""

    def __init__(
        self, job: Job, group: Group, model: nn.Module, train: Dataset[Any], valid: Dataset[Any] | None, tell: Tell
    ) -> None:
        from shoal.parallel.devices import find_device

        self.job, self.group, self.tell = job, group, tell
        self.device = find_device(job.device, group.rank)
        use_threads(blas_threads(job))
        self.model = model.to(self.device)
        if job.exact:
            align(self.model)
        self.train, self.valid = (
            Feed(train, self.device, job.seed),
            None if valid is None else Feed(valid, self.device, job.seed),
        )
        self.flops = flops_per_row(self.model, self.train, job) if group.rank == 0 else 0.0
        self._same_start()
        self.plain = copy.deepcopy(self.model) if job.strategy in MODEL else self.model  # those take it apart
        self.strategy = make_strategy(job, group, self.model, len(self.train), self.device)
        self.guard = Guard(job)
        self.strategy.see = self.guard.see
        self.history: list[dict[str, Any]] = []
        self.epoch, self.position, self.step = 0, 0, 0
        self.sums = [0.0, 0]
        self.rounds = 0

    def _same_start(self) -> None:
        """All workers begin with the first one's weights."""
        if self.group.size > 1:
            for value in self.model.state_dict().values():
                self.group.broadcast(value)

    def run(self) -> Result:
        """All epochs, from the last checkpoint if there is one."""
        self._resume()
        begun, talked = time.perf_counter(), self.group.seconds
        for epoch in range(self.epoch, self.job.epochs):
            self._epoch(epoch)
        self.strategy.finish()
        seconds = time.perf_counter() - begun
        if self.job.strategy in MODEL:
            self.plain.load_state_dict(self.strategy.state()["model"])
        self.strategy.close()
        return Result(self.plain, self.history, self._metrics(seconds, self.group.seconds - talked))

    # ---- training ----

    def _epoch(self, epoch: int) -> None:
        self.epoch = self.guard.epoch = epoch
        if self.position == 0:
            self.sums = [0.0, 0]
        self.strategy.notes.clear()
        begun, talked, first = time.perf_counter(), self.group.seconds, self.position
        rounds = self._rounds(epoch)
        for items, count in rounds if self.train.at_hand else ahead(rounds):
            loss, seen = self._round(items, count)
            self.sums[0] += loss
            self.sums[1] += seen
            self.position += count
            self.step += self.strategy.steps_in(count)
            self.rounds += 1
            self._after_round()
        seconds = time.perf_counter() - begun
        self._close_epoch(seconds, self.group.seconds - talked, len(self.train) - first)

    def _round(self, items: list[Pair | None], count: int) -> tuple[float, int]:
        """Where the rows are to blame for a loss, that is said: by all workers, if all have seen the same loss."""
        try:
            return self.strategy.round(items, count, self.step)
        except Diverged:
            finite = all_finite(items)
            if isinstance(self.strategy, AllReduce):
                finite = all(self.group.gather_objects(finite))
            if finite:
                raise
            raise self.guard.bad_rows(self.step) from None

    def _rounds(self, epoch: int) -> Iterator[tuple[list[Pair | None], int]]:
        """Rows of this worker, round by round, from where the epoch stands."""
        order = epoch_order(len(self.train), self.job.seed, epoch, self.job.shuffle)[self.position :]
        rounds = list(order.split(self.strategy.round_rows())) if len(order) else []
        if isinstance(self.group, Mpi) and self.train.tensors is not None:
            items = scattered(self.group, self.train, [self.strategy.parts(rows) for rows in rounds])
            yield from zip(items, map(len, rounds), strict=True)
            return
        for rows in rounds:
            yield take_all(self.train, self.strategy.parts(rows), epoch), len(rows)

    def _after_round(self) -> None:
        every = self.job.checkpoint_every
        if self.job.checkpoint and isinstance(every, int) and self.rounds % every == 0:
            self.guard.check_weights(self.strategy.model.parameters(), self.step)
            self._save()
        if self.group.rank == 0:
            share = (self.epoch + self.position / len(self.train)) / self.job.epochs
            self.tell({"share": share, "epoch": self.epoch, "loss": self.sums[0] / max(self.sums[1], 1)})

    def _close_epoch(self, seconds: float, talked: float, rows: int) -> None:
        self.guard.check_weights(self.strategy.model.parameters(), self.step)
        totals = self.group.gather_objects((self.sums, dict(self.strategy.notes), self.guard.seen()))
        self.guard.close_epoch([part[2] for part in totals], self.step, self.epoch == self.job.epochs - 1)
        loss, seen = (sum(part[0][k] for part in totals) for k in (0, 1))
        record: dict[str, Any] = {"epoch": self.epoch, "train_loss": loss / max(seen, 1), "seconds": seconds}
        record["samples_per_second"] = rows / seconds
        if self.flops:
            record["gflops"] = self.flops * rows / seconds / 1e9
        record["communicating"] = min(1.0, talked / seconds) if self.group.size > 1 else 0.0
        for _, notes, _ in totals:
            for name, values in notes.items():
                record[f"{name}_mean"], record[f"{name}_max"] = statistics.fmean(values), max(values)
        if self.valid is not None:
            record |= self.evaluate(self.valid)
            self.guard.check_valid(record["valid_loss"], map(self.valid.take, chunks_of(self.valid)), self.step)
        self.history.append(record)
        self.epoch, self.position, self.sums = self.epoch + 1, 0, [0.0, 0]
        if self.job.checkpoint:
            self._save()
        if self.group.rank == 0:
            self.tell({"share": self.epoch / self.job.epochs, "record": record})

    # ---- evaluation ----

    def evaluate(self, feed: Feed) -> dict[str, float]:
        """Loss, and accuracy for classes, over all rows. Workers share the chunks, or all look at all of them."""
        model = self.strategy.evaluated()
        model.eval()
        chunks = chunks_of(feed)
        found: dict[int, list[float]] = {}
        with torch.no_grad():
            for k, rows in enumerate(chunks):
                if self.strategy.together or k % self.group.size == self.group.rank:
                    found[k] = measures(model, make_loss(self.job.loss), *feed.take(rows))
        model.train()
        for part in self.group.gather_objects(found):
            found |= part
        sums = [sum(column) for column in zip(*(found[k] for k in range(len(chunks))), strict=True)]
        told = {"valid_loss": sums[0] / len(feed)}
        if sums[2]:
            told["valid_accuracy"] = sums[1] / sums[2]
        return told

    # ---- checkpoints ----

    def _fingerprint(self) -> dict[str, Any]:
        shapes = sorted((name, list(value.shape)) for name, value in self.model.state_dict().items())
        return {**self.job.fingerprint(), "rows": len(self.train), "shapes": str(shapes)}

    def _save(self) -> None:
        """Nothing is saved while any worker's last loss was absurd: the checkpoint from before stays."""
        if any(self.group.gather_objects(self.guard.absurd > 0)):
            return
        state = self.strategy.state()
        if self.group.rank == 0:
            assert self.job.checkpoint is not None
            checkpoint.save(self.job.checkpoint, {
                "fingerprint": self._fingerprint(), "state": state, "epoch": self.epoch, "position": self.position,
                "step": self.step, "sums": self.sums, "history": self.history, "rounds": self.rounds,
                "first_loss": self.guard.first, "torch_generator": torch.get_rng_state(),
            })  # fmt: skip

    def _resume(self) -> None:
        if not self.job.checkpoint:
            return
        content = None
        if self.group.rank == 0:
            content = checkpoint.load(self.job.checkpoint, self._fingerprint())
        content = self.group.first_object(content)
        if content is None:
            return
        self.strategy.load(content["state"])
        self.epoch, self.position, self.step = content["epoch"], content["position"], content["step"]
        self.history, self.rounds = list(content["history"]), content["rounds"]
        self.sums = list(content["sums"]) if self.group.rank == 0 else [0.0, 0]
        self.guard.go_on(content.get("first_loss"), self.history)
        if self.group.rank == 0:
            self.tell({"note": f"going on from the checkpoint after {self.step} steps (epoch {self.epoch + 1})"})

    def _metrics(self, seconds: float, talked: float) -> dict[str, Any]:
        job = self.job
        told: dict[str, Any] = {
            "strategy": job.strategy, "backend": job.backend, "workers": job.workers, "exact": bool(job.exact),
            "blas_threads": blas_threads(job), "device": str(self.device), "seconds": seconds,
            "communicating": min(1.0, talked / seconds) if self.group.size > 1 and seconds else 0.0,
        }  # fmt: skip
        if self.history:
            told["seconds_per_epoch"] = statistics.median(record["seconds"] for record in self.history)
            told["samples_per_second"] = statistics.median(record["samples_per_second"] for record in self.history)
            if self.flops:
                told["gflops"] = statistics.median(record["gflops"] for record in self.history)
            last = self.history[-1]
            told |= {name: last[name] for name in ("train_loss", "valid_loss", "valid_accuracy") if name in last}
        return told


def chunks_of(feed: Feed) -> tuple[torch.Tensor, ...]:
    """Rows to evaluate at a time."""
    return torch.arange(len(feed)).split(CHUNK)


def measures(model: nn.Module, loss: Callable[[Any, Any], torch.Tensor], inputs: Any, target: Any) -> list[float]:
    """Sum of the loss, right answers, and answers that can be right."""
    output = model(inputs)
    if not isinstance(output, torch.Tensor):
        return [float(loss(output, target)) * rows_in(target), 0.0, 0.0]
    total = float(loss(output, target)) * rows_in(target)
    classes = isinstance(target, torch.Tensor) and not target.is_floating_point() and output.dim() == target.dim() + 1
    if classes and output.shape[1] > 1:
        return [total, float((output.argmax(1) == target).sum()), float((target != IGNORED).sum())]
    return [total, 0.0, 0.0]


def flops_per_row(model: nn.Module, feed: Feed, job: Job) -> float:
    """Floating-point operations of a step for one row, forward and backward, as torch counts them."""
    from torch.utils.flop_counter import FlopCounterMode

    rows = torch.arange(min(4, len(feed)))
    inputs, target = feed.take(rows)
    trial = copy.deepcopy(model).train()
    with FlopCounterMode(display=False) as counter, OwnGenerator(torch.Generator()):
        make_loss(job.loss)(trial(inputs), target).backward()
    return counter.get_total_flops() / len(rows)
