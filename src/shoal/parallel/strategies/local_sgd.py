"""Local SGD: workers train alone on rows of their own, and their weights are averaged now and then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shoal.options import Options, option
from shoal.parallel.strategies.base import Strategy
from shoal.validate import whole

if TYPE_CHECKING:
    import torch
    from torch import nn

    from shoal.parallel.groups import Group
    from shoal.parallel.job import Job
    from shoal.parallel.updaters.base import Updater


def number_or_word(text: str) -> int | str:
    """What was typed on the command line: a number, if it is one."""
    return int(text) if text.isascii() and text.isdecimal() else text


def _average_every(name: str, value: Any) -> int | str:
    return value if value in ("epoch", "end") else whole(name, value, 1, otherwise=' or "epoch" or "end"')


@dataclass(frozen=True)
class LocalSgdOptions(Options):
    average_every: int | str = option(
        "epoch", "local_sgd: steps, epoch or end.", check=_average_every, parse=number_or_word
    )


class LocalSgd(Strategy):
    """Another algorithm than all-reduce: the result depends on the number of workers."""

    name = "local_sgd"
    options = LocalSgdOptions
    summary = "workers train on rows of their own, weights averaged now and then"

    def fewest_rows(self, job: Job) -> int:
        return job.workers

    def can_lose_workers(self, job: Job) -> bool:
        return job.average_every != "end"  # until then a checkpoint holds the weights of each worker

    def updater(self, job: Job, group: Group, model: nn.Module, rows: int, device: torch.device) -> Updater:
        from shoal.parallel.updaters.local_sgd import LocalSgdUpdater

        return LocalSgdUpdater(job, group, model, rows)
