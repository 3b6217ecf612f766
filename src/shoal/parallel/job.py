"""What a run is: its settings, checked, with names that cannot be mistyped unnoticed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from shoal.machine import thread_count
from shoal.members import nearest
from shoal.parallel.strategies import TABLE, Strategy, find_strategy

STRATEGIES = tuple(TABLE)
BACKENDS = ("threads", "processes", "mpi")
DEVICES = ("auto", "cpu", "cuda", "mps")
LOSSES = ("cross_entropy", "mse", "bce")
OPTIMIZERS = ("sgd", "adam", "adamw")
SCHEDULES = ("constant", "cosine")
LARGEST = 1e7  # of rates and seconds
SHARDS = 8  # micro-shards of a batch in exact mode, and micro-batches of a pipeline: more workers than this need more


@dataclass(frozen=True)
class Job:
    """Settings of a run. `loss` and `optimizer` are names or functions."""

    loss: str | Callable[[Any, Any], Any] = "cross_entropy"
    optimizer: str | Callable[[Any], Any] = "adam"
    learning_rate: float = 1e-3
    momentum: float = 0.0
    weight_decay: float = 0.0
    schedule: str = "constant"
    epochs: int = 10
    batch_size: int = 64
    shuffle: bool = True
    strategy: str | Strategy = "auto"
    backend: str = "processes"
    workers: int = 1
    blas_threads: int | None = None
    exact: bool | None = None
    shards: int = SHARDS
    average_every: int | str = "epoch"
    asynchronous: bool = False
    folds: int = 5
    mesh: tuple[int, int] | None = None
    device: str = "auto"
    seed: int = 0
    checkpoint: str | None = None
    checkpoint_every: int | str = "epoch"
    restarts: int = 3
    allow_fewer: bool = False
    timeout: float = 600.0

    def __post_init__(self) -> None:
        find_strategy(self.strategy)
        one_of("backend", self.backend, BACKENDS)
        kind, _, number = str(self.device).partition(":")
        one_of("device", kind, DEVICES)
        if number and not number.isdecimal():
            raise ValueError(f"the number of a device is whole, as in cuda:0; got {self.device!r}")
        if number and kind in ("cpu", "auto"):
            raise ValueError(f"only GPUs have numbers, as in cuda:0; got device {self.device!r}: use {kind!r}")
        one_of("schedule", self.schedule, SCHEDULES)
        if not callable(self.loss):
            one_of("loss", self.loss, LOSSES)
        if not callable(self.optimizer):
            one_of("optimizer", self.optimizer, OPTIMIZERS)
        for name in ("epochs", "batch_size", "workers", "shards"):
            whole(name, getattr(self, name), 1)
        whole("folds", self.folds, 2)
        whole("restarts", self.restarts, 0)
        whole("seed", self.seed, 0)
        if self.blas_threads is not None:
            thread_count(self.blas_threads)
        for name in ("learning_rate", "timeout"):
            positive(name, getattr(self, name))
        for name in ("momentum", "weight_decay"):
            not_negative(name, getattr(self, name))
        if self.mesh is not None and not (isinstance(self.mesh, tuple) and len(self.mesh) == 2):
            raise ValueError(f"mesh must be two whole numbers, (data, model); got {self.mesh!r}")
        self._check_together()

    def _check_together(self) -> None:
        if self.average_every not in ("epoch", "end"):
            whole("average_every", self.average_every, 1, ' or "epoch" or "end"')
        if self.checkpoint_every != "epoch":
            whole("checkpoint_every", self.checkpoint_every, 1, ' or "epoch"')
        method = self.method
        if method.one_worker and self.workers > 1:
            raise ValueError(
                f"strategy {method.name!r} has one worker; got workers={self.workers}. "
                "Use strategy 'allreduce' for more, or blas_threads for more threads"
            )
        if self.exact and not method.can_be_exact:
            able = ", ".join(name for name, strategy in TABLE.items() if strategy.can_be_exact)
            raise ValueError(f"exact=True needs one of the strategies {able}; {method.name!r} has no exact mode")
        if self.exact and self.workers > self.shards:
            raise ValueError(
                f"exact mode cuts each batch into {self.shards} shards, too few for {self.workers} workers; "
                f"give shards={self.workers} or exact=False"
            )
        if self.mesh is not None and self.mesh[0] * self.mesh[1] != self.workers:
            raise ValueError(f"mesh must multiply to the {self.workers} workers; got {self.mesh[0]} x {self.mesh[1]}")
        method.check(self)

    @property
    def method(self) -> Strategy:
        """The strategy as an object: what it needs is asked of it."""
        return find_strategy(self.strategy)

    @property
    def ranks(self) -> int:
        """Processes or threads that take part: the workers, and a parameter server."""
        return self.workers + self.method.servers

    @property
    def in_one_process(self) -> bool:
        """Workers that are threads need no launching; neither does one worker alone."""
        return self.backend == "threads" or self.ranks == 1

    @property
    def mesh_shape(self) -> tuple[int, int]:
        """Workers along (data, model): as asked for, else two along the model.

        >>> Job(strategy="data+tensor", workers=4).mesh_shape, Job(strategy="pipeline", workers=4).mesh_shape
        ((2, 2), (1, 4))
        """
        return self.method.mesh_shape(self)

    def with_workers(self, workers: int) -> Job:
        """The same with another number of workers; with one less where a mesh needs that."""
        return replace(self, workers=self.method.possible_workers(workers), mesh=None)

    def fingerprint(self) -> dict[str, Any]:
        """What a checkpoint must agree on to be continued: all that decides weights, not who computes them."""
        skipped = {
            "workers", "backend", "blas_threads", "device", "mesh", "checkpoint", "checkpoint_every", "restarts",
            "allow_fewer", "timeout", "epochs",
        }  # fmt: skip
        if self.schedule != "constant":
            skipped.discard("epochs")
        named = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in skipped}
        named |= self.method.fingerprint(self)
        return {name: getattr(value, "__name__", "function") if callable(value) else value
                for name, value in named.items()}  # fmt: skip


def one_of(what: str, value: Any, names: Sequence[str]) -> None:
    if value not in names:
        raise ValueError(f"{what} must be one of {', '.join(names)}; got {value!r}{nearest(str(value), names)}")


def whole(what: str, value: Any, least: int, otherwise: str = "") -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{what} must be a whole number of at least {least}{otherwise}; got {value!r}")


def positive(what: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < LARGEST:
        raise ValueError(f"{what} must be a positive number below {LARGEST:g}; got {value!r}")


def not_negative(what: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < LARGEST:
        raise ValueError(f"{what} must be a number of at least 0; got {value!r}")
