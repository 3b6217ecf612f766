"""The loop of a fit: an engine runs, callbacks are notified, and members may be stopped in between."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shoal.callbacks import Callbacks
from shoal.console.interrupts import interruptible
from shoal.errors import UserError
from shoal.machine import thread_count
from shoal.population.engines import get_engine
from shoal.population.engines.program import (
    ACTIVE,
    Assignment,
    Data,
    Program,
    Resources,
    Training,
    flatten_rows,
)
from shoal.population.history import History
from shoal.population.memory import Memory
from shoal.population.rows import Rows, Split, as_rows
from shoal.validate import whole

if TYPE_CHECKING:
    from shoal.population.population import Population


class FitProgress(NamedTuple):
    """How many of the network-epochs of a fit are done."""

    done: int
    total: int


@dataclass(frozen=True, eq=False)
class FitOptions:
    """Keyword arguments of `Population.fit` and `Population.iter_fit`; `fit` explains them."""

    engine: str = "auto"
    threads: int | None = None
    shuffle: bool | str = True
    rows: Rows | Split | Sequence[Split] | float | None = None
    until: int | Sequence[int] | np.ndarray | None = None
    seed: int = 0
    device: str = "cpu"
    callbacks: Sequence[Any] | None = None


class Fitting:
    """One fit. The arguments are checked at once; training starts at the first step."""

    def __init__(self, population: Population, data: Data, epochs: int | None, every: int, options: FitOptions) -> None:
        self.population, self.data, self.every = population, data, every
        with population.turns.training():
            self.targets = _targets(population.program, population.state.epochs, epochs, options.until)
        rows = as_rows(options.rows, len(population), len(data.X))
        self.rows = assign(population.program, rows, options.shuffle, options.seed, self.targets)
        self.resources = Resources(thread_count(options.threads), options.device, population.memory_limit)
        self.callbacks = Callbacks(options.callbacks)
        self.engine = get_engine(options.engine, options.device)

    def steps(self) -> Iterator[History]:
        """Yields the history after every `every` epochs."""
        population = self.population
        if self.callbacks.listens("started"):
            workspace = self.engine.workspace(population.program, self.rows, self.resources)
            left = max(int((self.targets - population.state.epochs).max()), 0)
            self.callbacks.notify("started", Memory.of(population, self.data.X, workspace, left, self.every))
        with population.turns.training():
            total, before, stopped = self._remaining(self.targets), 0, False

            def watch(done: int) -> bool:
                """`done`: network-epochs of the present run of the engine."""
                nonlocal stopped
                stopped = stopped or self.callbacks.notify("progress", FitProgress(before + done, total))
                return stopped

            while self._remaining(self.targets) and not watch(0):
                until = np.minimum(self.targets, population.state.epochs + self.every)
                while self._remaining(until) and not watch(0):  # again if it was ended for members to be stopped
                    self._run(until, watch)
                    before = total - self._remaining(self.targets)
                stopped = self.callbacks.notify("step_ended", population.history) or stopped
                yield population.history
            self.callbacks.notify("finished", population.history)

    def _run(self, until: np.ndarray, watch: Callable[[int], bool]) -> None:
        """Run the engine once and record the result in the history."""
        begun = time.perf_counter()
        state, history = self.population.state, self.population.history
        with interruptible() as interrupt, self.population.turns.running(self.population.mark_stopped) as to_stop:
            which = np.flatnonzero((state.status == ACTIVE) & (state.epochs < until))
            training = Training(
                self.population.program, state, which, self.resources, self.data, self.rows, until[which],
                lambda done: watch(done) or bool(interrupt.requested or to_stop),
            )  # fmt: skip
            try:
                self.engine.train(training)
            finally:
                history.record(which, training.start, training.log)
                history.trim(int(state.epochs.max()))
                history.seconds += time.perf_counter() - begun
        if interrupt.requested:
            raise KeyboardInterrupt

    def _remaining(self, targets: np.ndarray) -> int:
        """Member-epochs still to be trained."""
        state = self.population.state
        return int(np.maximum(targets - state.epochs, 0)[state.status == ACTIVE].sum())


def _targets(
    program: Program, done: np.ndarray, epochs: int | None, until: int | Sequence[int] | np.ndarray | None
) -> np.ndarray:
    """Epoch count at which a fit ends, per member."""
    if epochs is not None and until is not None:
        raise UserError(f"give `epochs` or `until`, not both; got {epochs=}, {until=}")
    number = np.asarray((10 if epochs is None else epochs) if until is None else until)
    least = 1 if number.ndim == 0 else 0  # with one number per member, zero leaves a member unchanged
    if number.dtype.kind not in "iu" or np.any(number < least) or np.any(number >= 1 << 30):
        raise UserError(
            f"epochs must be a whole number of at least {least}; got {epochs if until is None else until!r}"
        )
    if number.ndim and (until is None or number.shape != done.shape):
        raise UserError(f"until must be one number or one per member ({len(done)}); got shape {number.shape}")
    targets = done + number if until is None else np.broadcast_to(number, done.shape)
    most = program.records["epochs"]
    return np.where(most >= 0, np.minimum(targets, most), targets).astype(np.int64)


def assign(program: Program, rows: Rows, shuffle: bool | str, seed: int, targets: np.ndarray) -> Assignment:
    """The rows and their order, for the kernel."""
    if shuffle not in (True, False, "each"):
        raise UserError(f"shuffle must be True, False or 'each'; got {shuffle!r}")
    records = program.records
    scored = np.array([len(split.valid) > 0 for split in rows.splits])
    unscored = np.flatnonzero((records["patience"] > 0) & ~scored[rows.member])
    if len(unscored):
        raise UserError(
            f"member {unscored[0]} has patience={records['patience'][unscored[0]]} but no validation rows; "
            "give rows=, e.g. shoal.rows.holdout(len(X)), or set patience=0"
        )
    order = np.full(len(program), whole("seed", seed, 0, (1 << 64) - 1), dtype=np.uint64)
    if shuffle == "each":  # multiplied, so that consecutive seeds give unrelated orders
        order = order + (records["seed"] + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    horizon = np.where(records["epochs"] >= 0, records["epochs"], targets)
    return flatten_rows(rows, bool(shuffle), order, horizon)
