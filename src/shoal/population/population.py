"""`Population`: many members with their parameters, which are trained together, predict, and can be extracted."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shoal.console.notebook import InNotebook
from shoal.errors import UserError, WrongType
from shoal.machine import thread_count
from shoal.population import storage
from shoal.population.engines import get_engine
from shoal.population.engines.checks import check_class_weight, check_data, check_features, check_loss
from shoal.population.engines.native import draw
from shoal.population.engines.program import (
    ACTIVE,
    STATUS_NAMES,
    STOPPED,
    Program,
    Resources,
    Selection,
    State,
    compile_program,
    flatten_rows,
)
from shoal.population.engines.weights import Layers, read_layers, write_layers
from shoal.population.fitting import FitOptions, Fitting
from shoal.population.history import History
from shoal.population.layout import Layout
from shoal.population.members import Member, check_members
from shoal.population.memory import Memory, check_limit, check_out, new_state
from shoal.population.rows import Rows, Split, as_rows
from shoal.population.turns import Turns, needs_rest
from shoal.validate import whole

if TYPE_CHECKING:
    import torch


LARGEST_LOG = 64 << 20  # bytes of the log of one run of an engine


class Evaluation(NamedTuple):
    """Mean loss and score (accuracy, or R2 for squared error) of each member."""

    loss: np.ndarray
    score: np.ndarray


class Population(InNotebook):
    """Many independent networks on one data set, which are trained together.

    Parameters
    ----------
    members : list of Member
        The recipe of each network. `init="torch"` draws exactly the weights that `torch.manual_seed(seed)` and
        `nn.Linear` give.
    n_features, n_outputs : int
        Columns of X, and classes or numbers to predict.
    loss : {"cross_entropy", "mse", "bce"}
        Of all members.
    class_weight : array of shape (n_outputs,), optional
        How much rows of each class count.
    memory_limit : int, optional
        Bytes that training may use. Parameters beyond them are kept in a temporary file, with the same results.

    Attributes
    ----------
    members : tuple of Member
        The recipes.
    history : History
        Losses and scores of every member after every epoch.
    epochs : array of shape (n_members,)
        Epochs that each member has been trained for.
    status : list of str
        "active", "finished", "stopped" or "diverged", for each member.

    Examples
    --------
    >>> population = Population([Member(hidden=4), Member(hidden=())], n_features=2, n_outputs=3)
    >>> [W.shape for W, b in population.weights(0)]
    [(2, 4), (4, 3)]
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
        members = check_members(members, n_features, n_outputs)
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
        """The recipe of each network."""
        return self.program.layout.members

    @property
    def layout(self) -> Layout:
        """Where the parameters of each member lie."""
        return self.program.layout

    @property
    def n_features(self) -> int:
        """Columns of X."""
        return self.program.n_features

    @property
    def n_outputs(self) -> int:
        """Classes, or numbers to predict."""
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
            return Memory.of(self, np.empty(0, np.float32))
        features = check_features(X, self.n_features)
        rows = flatten_rows(
            as_rows(None, len(self), len(features)), True, np.zeros(len(self), np.uint64), self.state.epochs
        )
        workspace = get_engine(engine, device).workspace(self.program, rows, self._resources(threads, device))
        each = whole("epochs", epochs, 1), self._most_epochs()
        return Memory.of(self, features, workspace, *each).with_given(X, features)

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
        """Train every active member for some more epochs, from its present weights and moments.

        After Ctrl-C every member is at the end of an epoch; `fit(..., until=n)` resumes there.

        Parameters
        ----------
        X : array of shape (n_rows, n_features)
            The inputs.
        y : array of shape (n_rows,) or (n_rows, n_outputs)
            Class numbers, or numbers to predict.
        epochs : int, default 10
            How many more epochs to train.
        engine : {"auto", "native", "grouped"}
            "auto" is native on a CPU and grouped on a GPU.
        threads : int, optional
            All cores by default. The result does not depend on it.
        shuffle : bool or "each"
            True draws a new order of rows each epoch, the same for all members that share their rows. "each" gives each
            member its own order. False takes the rows of `Split.train` as they stand there.
        rows : Rows, Split, list of Split, or float, optional
            Which rows each member trains on and is scored on: all rows by default; 0.2 holds out a fifth.
        until : int or sequence of int, optional
            Instead of `epochs`: total epochs to train to, for all members or for each.
        seed : int
            Seed of the order of rows.
        device : {"cpu", "cuda", "mps"}
            Where the engine grouped trains.
        callbacks : list of callbacks, optional
            Such as `shoal.ProgressBar()`. `started` gets the estimated memory, `progress` a `FitProgress`, `step_ended`
            and `finished` the history. Returning True stops at the end of an epoch.

        Returns
        -------
        History
            Losses and scores of every member after every epoch.
        """
        options = FitOptions(engine, threads, shuffle, rows, until, seed, device, callbacks)
        with self.turns.training():
            for _ in self._steps(X, y, epochs, self._most_epochs(), options):
                pass
        return self.history

    def iter_fit(
        self, X: Any, y: Any, epochs: int | None = None, *, every: int = 1, **options: Any
    ) -> Iterator[History]:
        """`fit` as a generator: yields the history after every `every` epochs, to watch or stop training.

        Members may be stopped with `stop` between two steps; stopped members take no more time. One thread at a time
        works with a population: from the first step to the last, other threads are refused, except to call `stop`.
        The other keyword arguments are those of `fit`.
        """
        every = whole("every", every, 1, what="a whole number of epochs")
        return self._steps(X, y, epochs, every, FitOptions(**options))

    def _steps(self, X: Any, y: Any, epochs: int | None, every: int, options: FitOptions) -> Iterator[History]:
        """Arguments are checked at once; training starts at the first `next`."""
        data = check_data(X, y, self.n_features, self.n_outputs, self.loss)
        return Fitting(self, data, epochs, every, options).steps()

    def stop(self, members: Sequence[int] | np.ndarray) -> None:
        """Stop training these members. They keep their weights and take no more time.

        Called while `fit` runs, from another thread or a callback, it takes effect at the end of an epoch.
        """
        self.turns.stop(self._indices(members), self.mark_stopped)

    def mark_stopped(self, chosen: np.ndarray) -> None:
        """Stop members, once no engine runs."""
        self.state.status[chosen[self.state.status[chosen] == ACTIVE]] = STOPPED

    @needs_rest("select members")
    def select(self, members: Sequence[int] | np.ndarray) -> Population:
        """A new population of some of the members, with their weights, moments and counters."""
        chosen = self._indices(members)
        if not len(chosen):
            raise UserError("select at least one member; got none")
        other = Population.gather([(self, i) for i in chosen.tolist()])
        other.history.seconds = self.history.seconds
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
                storage.copy_state(source, chosen, other, mine)
            other.history.record(mine, np.zeros(len(mine), np.int64), source.history.select(chosen))
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
        """Predict with each member; raw outputs, before softmax.

        Parameters
        ----------
        X : array of shape (n_rows, n_features)
            The inputs.
        members : list of int, optional
            Which members; by default all.
        engine, threads, device : as in `fit`
            Where and how to compute.
        out : array, optional
            Where to write, such as a memmap.

        Returns
        -------
        array of shape (n_members, n_rows, n_outputs)
        """
        features = check_features(X, self.n_features)
        chosen = self._indices(members)
        shape = (len(chosen), len(features), self.n_outputs)
        out = check_out(out, shape, self.memory_limit)
        selection = Selection(self.program, self.state, chosen, self._resources(threads, device))
        get_engine(engine, device).predict(selection, features, out)
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
        """Loss and score of each member on these rows, without holding all predictions in memory.

        Parameters
        ----------
        X, y : arrays
            As in `fit`.
        members : list of int, optional
            Which members; by default all.
        engine, threads, device : as in `fit`
            Where and how to compute.

        Returns
        -------
        Evaluation
            `loss` and `score` of shape (n_members,).
        """
        data = check_data(X, y, self.n_features, self.n_outputs, self.loss)
        selection = Selection(self.program, self.state, self._indices(members), self._resources(threads, device))
        return Evaluation(*get_engine(engine, device).evaluate(selection, data))

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

        Training continues with the optimiser's moments. `reset` clears the moments, the count of updates and a
        divergence.
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

    def _resources(self, threads: int | None, device: str) -> Resources:
        return Resources(thread_count(threads), device, self.memory_limit)

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

    def _most_epochs(self) -> int:
        """Of one run of an engine. Few runs are fastest, as members stay in cache; the size of the log limits them."""
        return max(1, LARGEST_LOG // (24 * len(self)))
