"""The options of a training run, each in one place (see `shoal.options`). Those of one strategy stand with it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from shoal.errors import UserError
from shoal.machine import MOST_THREADS
from shoal.options import option, options_of
from shoal.parallel.strategies import TABLE, Strategy, StrategyOptions, check_strategy, find_strategy
from shoal.parallel.strategies.own_rows import ROW_OPTIONS, number_or_word
from shoal.validate import Check, instance, one_of, whole

STRATEGIES = tuple(TABLE)
BACKENDS = ("threads", "processes", "mpi")
DEVICES = ("auto", "cpu", "cuda", "mps")
LOSSES = ("cross_entropy", "mse", "bce")
OPTIMIZERS = ("sgd", "adam", "adamw")
SCHEDULES = ("constant", "cosine")
LARGEST = 1e7  # of rates and seconds
MOST_EPOCHS, MOST_ROWS, MOST_PARTS = 10**6, 10**9, 10**5  # of a training, of a batch, of a batch or of the rows


def name_or_function(names: tuple[str, ...]) -> Check:
    """A check for options that are a name or a custom function."""
    return lambda name, value: value if callable(value) else one_of(name, value, names)


def _device(name: str, value: Any) -> str:
    kind, _, number = str(value).partition(":")
    one_of(name, kind, DEVICES)
    if number and not number.isdecimal():
        raise UserError(f"the number in {name} must be whole, as in cuda:0; got {value!r}")
    if number and kind in ("cpu", "auto"):
        raise UserError(f"only GPUs have numbers, as in cuda:0; got {name} {value!r}: use {kind!r}")
    return str(value)


def _folder(name: str, value: Any) -> str:
    return os.fspath(instance(name, value, (str, os.PathLike)))


def _checkpoint_every(name: str, value: Any) -> int | str:
    return "epoch" if value == "epoch" else whole(name, value, 1, otherwise=' or "epoch"')


@dataclass(frozen=True)
class TrainingOptions(StrategyOptions):
    """What `shoal train`, `parallel.fit`, `shoal plan` and `planner.plan` have in common, defaults included."""

    loss: str | Callable[[Any, Any], Any] = option(
        "cross_entropy",
        "cross_entropy, mse or bce. (default: by the target)",
        check=name_or_function(LOSSES),
        parse=str,
    )
    optimizer: str | Callable[[Any], Any] = option(
        "adam", "sgd, adam or adamw.", check=name_or_function(OPTIMIZERS), parse=str
    )
    learning_rate: float = option(1e-3, "Size of the steps.", above=0, below=LARGEST, flags="--learning-rate --lr")
    momentum: float = option(0.0, "For sgd.", least=0, below=LARGEST)
    weight_decay: float = option(0.0, "Pulls weights towards zero.", least=0, below=LARGEST)
    schedule: str = option("constant", "constant or cosine.", one_of=SCHEDULES)
    epochs: int = option(10, "Passes over the rows.", least=1, most=MOST_EPOCHS)
    batch_size: int = option(
        128, "Rows in a step (local_sgd, gossip, asynchronous: of each worker).", least=1, most=MOST_ROWS
    )
    shuffle: bool = option(True, "Whether each epoch has another order of rows.", on_command_line=False)
    backend: str = option("processes", "threads, processes or mpi.", one_of=BACKENDS, changes_result=False)
    blas_threads: int | None = option(
        None, "Threads of each worker. (default: cores / workers)", least=1, most=MOST_THREADS, changes_result=False
    )
    exact: bool | None = option(
        None, "The same bits for any number of workers. (default: --exact for allreduce and pipeline on CPUs)",
        flags="--exact/--close",
    )  # fmt: skip
    shards: int | None = option(
        None, "--exact: parts of a batch, at least as many as workers (default: 4, or 8 from batches of 2,048 on). "
        "pipeline: micro-batches (default: 8).", least=1, most=MOST_PARTS,
    )  # fmt: skip
    device: str = option("auto", "auto, cpu, cuda or mps.", check=_device, changes_result=False)
    checkpoint: str | None = option(
        None, "Folder to save the state in, and to resume from if it has one.", check=_folder, metavar="<path>",
        changes_result=False,
    )  # fmt: skip
    checkpoint_every: int | str = option(
        "epoch", "epoch, or a number of rounds.", check=_checkpoint_every, parse=number_or_word, changes_result=False
    )
    restarts: int = option(3, "How often to restart when a worker is lost.", least=0, changes_result=False)
    allow_fewer: bool = option(False, "Restart without the lost worker.", changes_result=False)
    timeout: float = option(
        600.0, "Seconds that a worker may wait for a slower one.", above=0, below=LARGEST, changes_result=False
    )
    seed: int = option(0, "Seed of all random numbers.", least=0)


@dataclass(frozen=True)
class Job(TrainingOptions):
    """Options of a training. `loss` and `optimizer` may be functions, `strategy` a custom object."""

    strategy: str | Strategy = option(
        "auto",
        f"{', '.join(name for name in STRATEGIES if name != 'auto')}, or auto: measure and take the fastest, which may "
        "differ from run to run in the last digits. (default: allreduce if --workers is given, or auto)",
        check=check_strategy, parse=str,
    )  # fmt: skip
    workers: int = option(1, "How many. (default: one a core)", least=1, changes_result=False)
    about: dict[str, Any] | None = option(
        None, "What a checkpoint is bound to as well, as the command line knows it; file and checksum are for errors.",
        check=lambda name, value: instance(name, value, dict), on_command_line=False, in_files=False,
    )  # fmt: skip

    def check_together(self, called: Callable[[str], str]) -> None:
        method = self.method
        if method.one_worker and self.workers > 1:
            raise UserError(
                f"strategy {method.name!r} has one worker; got {called('workers')}={self.workers}. Use strategy "
                f"'allreduce' for more, or {called('blas_threads')} for more threads"
            )
        if self.exact and not method.can_be_exact:
            able = ", ".join(name for name, strategy in TABLE.items() if strategy.can_be_exact)
            raise UserError(f"{called('exact')} needs one of the strategies {able}; {method.name!r} has no exact mode")
        if self.exact and self.workers > self.shard_count:
            raise UserError(
                f"exact mode cuts each batch into {self.shard_count} shards, too few for {self.workers} workers; "
                f"give {called('shards')}={self.workers}, or omit {called('exact')}"
            )
        if self.mesh is not None and self.mesh[0] * self.mesh[1] != self.workers:
            raise UserError(f"mesh must multiply to the {self.workers} workers; got {self.mesh[0]} x {self.mesh[1]}")
        given = [called(name) for name in ROW_OPTIONS if getattr(self, name) != options_of(Job)[name].default]
        if given and not method.owns_rows:
            able = ", ".join(name for name, strategy in TABLE.items() if strategy.owns_rows)
            raise UserError(f"{given[0]} needs one of the strategies {able}; got {method.name!r}")
        method.check(self)

    @property
    def method(self) -> Strategy:
        """The strategy as an object: what it needs is asked of it."""
        return find_strategy(self.strategy)

    @property
    def ranks(self) -> int:
        """Processes or threads that take part: the workers, and servers if the strategy has any."""
        return self.workers + self.method.servers

    @property
    def shard_count(self) -> int:
        """Parts of a batch in exact mode; micro-batches of a pipeline.

        >>> Job(batch_size=128).shard_count, Job(batch_size=4096).shard_count, Job(shards=3).shard_count
        (4, 8, 3)
        """
        return self.shards or self.method.default_shards(self.batch_size)

    @property
    def mesh_shape(self) -> tuple[int, int]:
        """Workers along (data, model): as asked for, else what the strategy takes.

        >>> Job(strategy="data+tensor", workers=4).mesh_shape, Job(strategy="pipeline", workers=4).mesh_shape
        ((2, 2), (1, 4))
        """
        return self.method.mesh_shape(self)

    def with_workers(self, workers: int) -> Job:
        """The same with at most so many workers; some strategies need an even number."""
        return replace(self, workers=self.method.possible_workers(workers), mesh=None)

    def fingerprint(self) -> dict[str, Any]:
        """What a checkpoint must agree on to be resumed. Epochs only count where the schedule depends on them."""
        from shoal.parallel.identity import described

        values = super().fingerprint() | self.method.fingerprint(self)
        about = values.pop("about") or {}
        values |= {name: value for name, value in about.items() if name not in ("file", "checksum")}
        if self.schedule == "constant":
            del values["epochs"]
        plain = (bool, int, float, str, list, type(None))
        return {name: value if isinstance(value, plain) else described(value) for name, value in values.items()}
