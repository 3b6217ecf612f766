"""`Population`: many members with their parameters, which are trained together, predict, and can be extracted."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shoal.callbacks import Callbacks
from shoal.console.interrupts import interruptible
from shoal.errors import UserError, WrongType
from shoal.machine import thread_count
from shoal.population import storage
from shoal.population.engines import Engine, Resources, get_engine
from shoal.population.engines.checks import check_class_weight, check_data, check_features, check_loss
from shoal.population.engines.native import draw
from shoal.population.engines.program import (
    ACTIVE,
    STATUS_NAMES,
    STOPPED,
    Assignment,
    Data,
    Log,
    Program,
    State,
    compile_program,
    flatten_rows,
)
from shoal.population.engines.weights import Layers, read_layers, write_layers
from shoal.population.history import History
from shoal.population.layout import Layout
from shoal.population.members import Member
from shoal.population.memory import Memory, check_limit, check_out, new_state
from shoal.population.rows import Rows, Split, as_rows
from shoal.population.turns import Turns, needs_rest
from shoal.validate import whole

if TYPE_CHECKING:
    import torch


LARGEST_LOG = 64 << 20  # bytes of the log of one run of an engine


class FitProgress(NamedTuple):
    """How many of the network-epochs of a fit are done."""

    done: int
    total: int


class Evaluation(NamedTuple):
    """Mean loss and score (accuracy, or R2 for squared error) of each member."""

    loss: np.ndarray
    score: np.ndarray


class Population:
    """Many independent networks on one data set.

    >>> population = Population([Member(hidden=4), Member(hidden=())], n_features=2, n_outputs=3)
    >>> [W.shape for W, b in population.weights(0)]
    [(2, 4), (4, 3)]

    Weights are drawn when the population is made: `init="torch"` gives each member exactly the numbers that
    `torch.manual_seed(seed)` and `nn.Linear` give. `memory_limit` (bytes) limits the memory of training; parameters
    beyond it are kept in a temporary file, with the same results.
    """

    def __init__(
        self,
        members: Sequence[Member],
        n_features: int,
        n_outputs: int,
        loss: str = "cross_entropy",
        *,
        class_weight: Any = None,
        memory_limit: int | None = None,
    ) -> None:
        self._prepare(members, n_features, n_outputs, loss, class_weight, memory_limit)
        draw(self.program, self.state, thread_count(None))

    @classmethod
    def blank(
        cls,
        members: Sequence[Member],
        n_features: int,
        n_outputs: int,
        loss: str,
        *,
        class_weight: np.ndarray | None = None,
        memory_limit: int | None = None,
    ) -> Population:
        """A population with zero weights; the caller fills in its state."""
        population = cls.__new__(cls)
        weight = class_weight if class_weight is not None and len(class_weight) else None
        population._prepare(members, n_features, n_outputs, loss, weight, memory_limit)
        return population

    def _prepare(
        self,
        members: Sequence[Member],
        n_features: int,
        n_outputs: int,
        loss: str,
        class_weight: Any,
        memory_limit: int | None,
    ) -> None:
        members = _check_members(members, n_features, n_outputs)
        self.loss = check_loss(loss)
        weight = check_class_weight(class_weight, n_outputs, self.loss)
        for k, member in enumerate(members):
            if member.label_smoothing > 0 and self.loss != "cross_entropy":
                raise UserError(f"member {k} has label_smoothing, which works with cross_entropy only, not {self.loss}")
        self.memory_limit = check_limit(memory_limit)
        self.program: Program = compile_program(Layout(members, int(n_features), int(n_outputs)), self.loss, weight)
        self.state: State = new_state(self.program, self.memory_limit)
        self.history = History.empty(len(members))
        self.turns = Turns()

    # ---- properties ----

    @property
    def members(self) -> tuple[Member, ...]:
        return self.program.layout.members

    @property
    def layout(self) -> Layout:
        return self.program.layout

    @property
    def n_features(self) -> int:
        return self.program.n_features

    @property
    def n_outputs(self) -> int:
        return self.program.n_outputs

    @property
    def epochs(self) -> np.ndarray:
        """Epochs that each member has been trained for."""
        return self.state.epochs.copy()

    @property
    def status(self) -> list[str]:
        """The status of each member: active, finished (its own `epochs` reached), stopped early, or diverged."""
        return [STATUS_NAMES[code] for code in self.state.status]

    def __len__(self) -> int:
        return len(self.program)

    def __repr__(self) -> str:
        trained = self.state.epochs
        counts = np.bincount(self.state.status, minlength=len(STATUS_NAMES))
        states = ", ".join(f"{n} {name}" for n, name in zip(counts, STATUS_NAMES, strict=True) if n)
        span = f"{trained.min()}" if trained.min() == trained.max() else f"{trained.min()} to {trained.max()}"
        return (
            f"Population({len(self):,} members, {self.n_features} features, {self.n_outputs} outputs, {self.loss}, "
            f"{int(self.layout.counts.sum()):,} parameters, {span} epochs done: {states})"
        )

    def memory(
        self, X: Any = None, engine: str = "auto", threads: int | None = None, device: str = "cpu", epochs: int = 10
    ) -> Memory:
        """Estimated peak memory of a `fit` of `epochs` more epochs, without Python itself; without X, of no fit."""
        if X is None:
            return Memory.of(self.program, self.state, self.memory_limit, np.empty(0, np.float32))
        features = check_features(X, self.n_features)
        data = Data(features, np.empty(0, np.int32), np.empty((0, self.n_outputs), np.float32))
        rows = flatten_rows(
            as_rows(None, len(self), len(features)), True, np.zeros(len(self), np.uint64), self.state.epochs
        )
        resources = Resources(thread_count(threads), device, self.memory_limit)
        workspace = get_engine(engine, device).workspace(self.program, data, rows, resources)
        each = whole("epochs", epochs, 1), self._most_epochs()
        return Memory.of(self.program, self.state, self.memory_limit, features, workspace, *each).with_given(
            X, features
        )

    # ---- training ----

    def fit(
        self,
        X: Any,
        y: Any,
        epochs: int | None = None,
        *,
        engine: str = "auto",
        threads: int | None = None,
        shuffle: bool | str = True,
        rows: Rows | Split | Sequence[Split] | float | None = None,
        until: int | Sequence[int] | np.ndarray | None = None,
        seed: int = 0,
        device: str = "cpu",
        callbacks: Sequence[Any] | None = None,
    ) -> History:
        """Train every active member for `epochs` more epochs (10 by default), from its present weights and moments.

        shuffle   True: a new order of rows each epoch, the same for all members that share their rows, like one data
                  loader for all; "each": each member has its own order, from its seed; False: rows as `rows` has them
        rows      which rows each member trains on and is scored on; None: all on all rows; 0.2: a fifth is held out;
                  with shuffle=False each epoch takes the rows of `Split.train` one after another, as they stand there
        until     instead of `epochs`: total epochs to which to train each member; one number, or one per member
        seed      of the order of rows
        device    "cpu", "cuda" or "mps"
        callbacks such as `shoal.ProgressBar()`: `started` gets the estimated memory, `progress` a `FitProgress`,
                  `step_ended` and `finished` the history. Returning True stops at the end of an epoch

        After Ctrl-C every member is at the end of an epoch; `fit(..., until=n)` resumes there.
        """
        with self.turns.training():
            for _ in self.iter_fit(
                X, y, epochs, every=self._most_epochs(), engine=engine, threads=threads, shuffle=shuffle, rows=rows,
                until=until, seed=seed, device=device, callbacks=callbacks,
            ):  # fmt: skip
                pass
        return self.history

    def iter_fit(
        self,
        X: Any,
        y: Any,
        epochs: int | None = None,
        *,
        every: int = 1,
        engine: str = "auto",
        threads: int | None = None,
        shuffle: bool | str = True,
        rows: Rows | Split | Sequence[Split] | float | None = None,
        until: int | Sequence[int] | np.ndarray | None = None,
        seed: int = 0,
        device: str = "cpu",
        callbacks: Sequence[Any] | None = None,
    ) -> Iterator[History]:
        """`fit` as a generator: yields the history after every `every` epochs, to watch or stop training.

        Members may be stopped with `stop` between two steps; stopped members take no more time. One thread at a time
        works with a population: from the first step to the last, other threads are refused, except to call `stop`.
        """
        # Arguments are checked at once; training starts at the first `next`.
        data = check_data(X, y, self.n_features, self.n_outputs, self.loss)
        with self.turns.training():
            targets = self._targets(epochs, until)
        plan = self._assign(as_rows(rows, len(self), len(data.X)), shuffle, seed, targets)
        whole("every", every, 1, what="a whole number of epochs")
        resources = Resources(thread_count(threads), device, self.memory_limit)
        watched = Callbacks(callbacks)
        return self._steps(data, targets, plan, int(every), get_engine(engine, device), resources, watched)

    def _steps(
        self,
        data: Data,
        targets: np.ndarray,
        plan: Assignment,
        every: int,
        chosen: Engine,
        resources: Resources,
        callbacks: Callbacks,
    ) -> Iterator[History]:
        if callbacks.listens("started"):
            workspace = chosen.workspace(self.program, data, plan, resources)
            left = max(int((targets - self.state.epochs).max()), 0)
            memory = Memory.of(self.program, self.state, self.memory_limit, data.X, workspace, left, every)
            callbacks.notify("started", memory)
        with self.turns.training():
            total, before, stopped = self._remaining(targets), 0, False

            def watch(done: int) -> bool:
                """`done`: network-epochs of the present run of the engine."""
                nonlocal stopped
                stopped = stopped or callbacks.notify("progress", FitProgress(before + done, total))
                return stopped

            while self._remaining(targets) and not watch(0):
                until = np.minimum(targets, self.state.epochs + every)
                while self._remaining(until) and not watch(0):  # again if it was ended for members to be stopped
                    self._run(chosen, data, plan, until, resources, watch)
                    before = total - self._remaining(targets)
                stopped = callbacks.notify("step_ended", self.history) or stopped
                yield self.history
            callbacks.notify("finished", self.history)

    def _run(
        self,
        engine: Engine,
        data: Data,
        plan: Assignment,
        until: np.ndarray,
        resources: Resources,
        watch: Callable[[int], bool],
    ) -> None:
        """Run an engine once and record the result in the history."""
        begun = time.perf_counter()
        with interruptible() as interrupt, self.turns.running(self._stop) as to_stop:
            which = np.flatnonzero((self.state.status == ACTIVE) & (self.state.epochs < until))
            start = self.state.epochs[which].copy()
            log = Log.empty(len(which), int((until[which] - start).max(initial=0)))
            try:
                engine.train(
                    self.program, data, plan, self.state, which, until[which], log, resources,
                    lambda done: watch(done) or bool(interrupt.requested or to_stop),
                )  # fmt: skip
            finally:
                self.history.record(which, start, loss=log.loss, valid_loss=log.valid_loss, valid_score=log.valid_score)
                self.history.trim(int(self.state.epochs.max()))
                self.history.seconds += time.perf_counter() - begun
        if interrupt.requested:
            raise KeyboardInterrupt

    def stop(self, members: Sequence[int] | np.ndarray) -> None:
        """Stop training these members. They keep their weights and take no more time.

        While `fit` runs, from another thread or in a callback, they stop at the end of an epoch, a moment later.
        """
        self.turns.stop(self._indices(members), self._stop)

    def _stop(self, chosen: np.ndarray) -> None:
        self.state.status[chosen[self.state.status[chosen] == ACTIVE]] = STOPPED

    @needs_rest("select members")
    def select(self, members: Sequence[int] | np.ndarray) -> Population:
        """A new population of some of the members, with their weights, moments and counters."""
        chosen = self._indices(members)
        if not len(chosen):
            raise UserError("select at least one member; got none")
        other = Population.blank(
            [self.members[i] for i in chosen], self.n_features, self.n_outputs, self.loss,
            class_weight=self.program.class_weight, memory_limit=self.memory_limit,
        )  # fmt: skip
        storage.copy_state(self.program, self.state, chosen, other.program, other.state)
        other.history = self.history.select(chosen)
        return other

    @staticmethod
    def gather(sources: Sequence[tuple[Population, int]]) -> Population:
        """A new population of members of others, with their weights, moments and counters, in the order given."""
        if not sources:
            raise UserError("gather at least one member; got none")
        first = sources[0][0]
        other = Population.blank(
            [population.members[i] for population, i in sources], first.n_features, first.n_outputs, first.loss,
            class_weight=first.program.class_weight, memory_limit=first.memory_limit,
        )  # fmt: skip
        places: dict[int, list[int]] = {}
        for place, (population, _) in enumerate(sources):
            places.setdefault(id(population), []).append(place)
        other.history = History.empty(len(sources))
        for mine in map(np.array, places.values()):
            source, chosen = sources[mine[0]][0], np.array([sources[place][1] for place in mine])
            with source.turns.reading("gather members"):
                storage.copy_state(source.program, source.state, chosen, other.program, other.state, mine)
            curves = source.history.select(chosen)
            other.history.record(
                mine, np.zeros(len(mine), np.int64), loss=curves.loss, valid_loss=curves.valid_loss,
                valid_score=curves.valid_score,
            )  # fmt: skip
        return other

    # ---- results ----

    @needs_rest("predict")
    def predict(
        self,
        X: Any,
        members: Sequence[int] | np.ndarray | None = None,
        *,
        engine: str = "auto",
        threads: int | None = None,
        device: str = "cpu",
        out: np.ndarray | None = None,
    ) -> np.ndarray:
        """Raw outputs, shape (n_members, n_rows, n_outputs); written to `out` if given, e.g. a memmap."""
        features = check_features(X, self.n_features)
        chosen = self._indices(members)
        shape = (len(chosen), len(features), self.n_outputs)
        out = check_out(out, shape, self.memory_limit)
        resources = Resources(thread_count(threads), device, self.memory_limit)
        get_engine(engine, device).predict(self.program, self.state, features, chosen, out, resources)
        return out

    @needs_rest("evaluate")
    def evaluate(
        self,
        X: Any,
        y: Any,
        members: Sequence[int] | np.ndarray | None = None,
        *,
        engine: str = "auto",
        threads: int | None = None,
        device: str = "cpu",
    ) -> Evaluation:
        """Loss and score of each member on these rows, without holding all predictions in memory."""
        data = check_data(X, y, self.n_features, self.n_outputs, self.loss)
        chosen = self._indices(members)
        resources = Resources(thread_count(threads), device, self.memory_limit)
        return Evaluation(*get_engine(engine, device).evaluate(self.program, self.state, data, chosen, resources))

    @needs_rest("read weights")
    def weights(self, i: int) -> Layers:
        """[(W, b), ...] of member `i`, W of shape (fan_in, fan_out). Copies; zeros for columns the member does not see.

        A member with patience gives its best weights, any other its present ones.
        """
        (index,) = self._indices([i])
        return read_layers(self.program, self.state, index)

    @needs_rest("set weights")
    def set_weights(self, i: int, weights: Sequence[Any], *, reset: bool = False) -> None:
        """Give member `i` these weights, [(W, b), ...] as `weights` returns them. They also replace its best ones.

        Training goes on with the optimiser's moments, or without: `reset` forgets moments, updates and a divergence.
        """
        (index,) = self._indices([i])
        write_layers(self.program, self.state, index, weights, reset)

    def extract(self, i: int) -> torch.nn.Sequential:
        """Member `i` as a plain network in evaluation mode, with copies of its weights. Needs PyTorch."""
        from shoal.population.extract import sequential

        (index,) = self._indices([i])
        return sequential(self.members[index], self.weights(index))

    @needs_rest("save")
    def save(self, path: str | os.PathLike[str]) -> None:
        """Save everything, including optimiser state and history, in one safetensors file. No code is stored."""
        storage.save_population(self, path)

    @staticmethod
    def load(path: str | os.PathLike[str], memory_limit: int | None = None) -> Population:
        """A population from `save`, which can be trained further as if it had never been saved."""
        return storage.load_population(path, Population.blank, memory_limit)

    # ---- internal ----

    def _indices(self, members: Sequence[int] | np.ndarray | None) -> np.ndarray:
        if members is None:
            return np.arange(len(self))
        array = np.atleast_1d(np.asarray(members))
        if array.dtype == bool and array.shape == (len(self),):
            array = np.flatnonzero(array)
        if array.size == 0:
            return np.empty(0, np.int64)
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise WrongType(f"members must be a list of whole numbers or a mask over the population; got {members!r}")
        wrong = array[(array < -len(self)) | (array >= len(self))]
        if len(wrong):
            raise IndexError(f"there is no member {wrong[0]}: the population has members 0 to {len(self) - 1}")
        return np.where(array < 0, array + len(self), array).astype(np.int64)

    def _targets(self, epochs: int | None, until: int | Sequence[int] | np.ndarray | None) -> np.ndarray:
        """Epoch count at which this fit ends, per member."""
        if epochs is not None and until is not None:
            raise UserError(f"give `epochs` or `until`, not both; got {epochs=}, {until=}")
        number = np.asarray((10 if epochs is None else epochs) if until is None else until)
        least = 1 if number.ndim == 0 else 0  # with one number per member, zero leaves a member unchanged
        if number.dtype.kind not in "iu" or np.any(number < least) or np.any(number >= 1 << 30):
            raise UserError(
                f"epochs must be a whole number of at least {least}; got {epochs if until is None else until!r}"
            )
        if number.ndim and (until is None or number.shape != (len(self),)):
            raise UserError(f"until must be one number or one per member ({len(self)}); got shape {number.shape}")
        targets = self.state.epochs + number if until is None else np.broadcast_to(number, (len(self),))
        most = self.program.records["epochs"]
        return np.where(most >= 0, np.minimum(targets, most), targets).astype(np.int64)

    def _assign(self, rows: Rows, shuffle: bool | str, seed: int, targets: np.ndarray) -> Assignment:
        if shuffle not in (True, False, "each"):
            raise UserError(f"shuffle must be True, False or 'each'; got {shuffle!r}")
        records = self.program.records
        scored = np.array([len(split.valid) > 0 for split in rows.splits])
        unscored = np.flatnonzero((records["patience"] > 0) & ~scored[rows.member])
        if len(unscored):
            raise UserError(
                f"member {unscored[0]} has patience={records['patience'][unscored[0]]} but no validation rows; "
                "give rows=, e.g. shoal.rows.holdout(len(X)), or set patience=0"
            )
        order = np.full(len(self), whole("seed", seed, 0, (1 << 64) - 1), dtype=np.uint64)
        if shuffle == "each":  # multiplied, so that consecutive seeds give unrelated orders
            order = order + (records["seed"] + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        horizon = np.where(records["epochs"] >= 0, records["epochs"], targets)
        return flatten_rows(rows, bool(shuffle), order, horizon)

    def _most_epochs(self) -> int:
        """Of one run of an engine. Few runs are fastest, as members stay in cache; the size of the log limits them."""
        return max(1, LARGEST_LOG // (24 * len(self)))

    def _remaining(self, targets: np.ndarray) -> int:
        """Member-epochs still to be trained."""
        left = np.maximum(targets - self.state.epochs, 0)
        return int(left[self.state.status == ACTIVE].sum())


def _check_members(members: Sequence[Member], n_features: int, n_outputs: int) -> list[Member]:
    if isinstance(members, Member):
        raise WrongType(f"members must be a list of shoal.Member; put the single one into a list: [{members!r}]")
    members = list(members)
    if not members:
        raise UserError("a population needs at least one member; got none")
    whole("n_features", n_features, 1, (1 << 31) - 1)
    whole("n_outputs", n_outputs, 1, (1 << 31) - 1)
    for k, member in enumerate(members):
        if not isinstance(member, Member):
            raise WrongType(f"members must be shoal.Member; number {k} is {member!r}")
        if member.features and max(member.features) >= n_features:
            raise UserError(f"member {k} sees column {max(member.features)}, but columns are 0 to {n_features - 1}")
    return members
