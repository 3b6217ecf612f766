"""A parameter server: one rank holds weights and optimiser, the others send gradients and get weights back.

Synchronous, it waits for all workers and equals all-reduce. Asynchronous (Downpour), it applies each gradient when it
arrives and records its staleness: how many others were applied since its worker last got weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from shoal.parallel.loader import key, rows_in
from shoal.parallel.updaters.base import Items, batch_sizes, batches, given, split_rows
from shoal.parallel.updaters.whole_model import WholeModelUpdater

if TYPE_CHECKING:
    from shoal.parallel.groups import Group
    from shoal.parallel.job import Job

SERVER = 0
HEADER = 2  # numbers before a gradient: the version of the weights it was computed with, and how many rows


class ParameterServerUpdater(WholeModelUpdater):
    """Rank 0 is the server and has no rows."""

    def __init__(self, job: Job, group: Group, model: nn.Module, rows: int) -> None:
        super().__init__(job, group, model, rows)
        self.message = self.learner.new_vector(HEADER + self.learner.width)
        self.reply = self.learner.new_vector(self.learner.width)  # the version, then weights and buffers
        self.version = 0
        self.serving = group.rank == SERVER

    @property
    def workers(self) -> int:
        """Without the server."""
        return self.group.size - 1

    def round_rows(self) -> int:
        return self.rows if self.job.asynchronous else self.job.batch_size

    def steps_in(self, rows: int) -> int:
        if not self.job.asynchronous:
            return super().steps_in(rows)
        parts = [end - start for start, end in split_rows(rows, self.workers, self.least)]
        return sum(len(batch_sizes(part, self.job.batch_size, self.least)) for part in parts)

    def parts(self, rows: torch.Tensor) -> list[torch.Tensor]:
        if self.serving:
            return []
        start, end = split_rows(len(rows), self.workers, self.least)[self.group.rank - 1]
        if self.job.asynchronous:
            return batches(rows[start:end], self.job.batch_size, self.least)
        return [rows[start:end]] if end > start else []

    def round(self, items: Items, rows: int, step: int) -> tuple[float, int]:
        if self.job.asynchronous:
            done = self._serve(rows, step) if self.serving else self._work(items, step)
            self._synchronise()
            return done
        if self.serving:
            return self._serve_together(rows, step)
        for item in items:
            inputs, target = given(item)
            self._send_gradient(inputs, target, rows_in(target) / rows, step)
        self._take_weights()
        return 0.0, 0

    # ---- the server ----

    def _serve_together(self, rows: int, step: int) -> tuple[float, int]:
        """Sum in the order of the workers, take one step, send the weights to all."""
        busy = [k + 1 for k, (start, end) in enumerate(split_rows(rows, self.workers, self.least)) if end > start]
        total = torch.zeros_like(self.message[HEADER:])
        for worker in busy:
            self.group.receive(self.message, worker)
            total += self.message[HEADER:]
        loss = self.learner.apply(total, step)
        self.report_loss(loss, step)
        self._write_reply()
        for worker in range(1, self.group.size):
            self.group.send(self.reply, worker)
        return loss * rows, rows

    def _serve(self, rows: int, step: int) -> tuple[float, int]:
        """Asynchronous: apply each gradient as it arrives, answer its worker."""
        loss, seen = 0.0, 0
        staleness = self.extra.setdefault("staleness", [])
        for k in range(self.steps_in(rows)):
            worker = self.group.receive(self.message)
            version, count = int(self.message[0]), int(self.message[1])
            staleness.append(float(self.version - version))
            found = self.learner.apply(self.message[HEADER:].clone(), step + k)
            self.report_loss(found, step + k)
            loss += found * count
            seen += count
            self.version += 1
            self._write_reply()
            self.group.send(self.reply, worker)
        return loss, seen

    def _write_reply(self) -> None:
        self.reply[0] = float(self.version)
        self.reply[1:] = self.learner.weights()

    # ---- a worker ----

    def _work(self, items: Items, step: int) -> tuple[float, int]:
        for k, item in enumerate(items):
            inputs, target = given(item)
            self._send_gradient(inputs, target, 1.0, step + k)
            self._take_weights()
        return 0.0, 0

    def _send_gradient(self, inputs: Any, target: Any, share: float, step: int) -> None:
        self.learner.gradient(inputs, target, share, key(self.job.seed, step, self.group.rank), self.message[HEADER:])
        self.message[0], self.message[1] = float(self.version), float(rows_in(target))
        self.group.send(self.message, SERVER)

    def _take_weights(self) -> None:
        self.group.receive(self.reply, SERVER)
        self.version = int(self.reply[0])
        self.learner.set_weights(self.reply[1:])

    def _synchronise(self) -> None:
        """After an asynchronous epoch, all have the server's weights."""
        if self.serving:
            self._write_reply()
        self.group.broadcast(self.reply)
        self.version = int(self.reply[0])
        self.learner.set_weights(self.reply[1:])
