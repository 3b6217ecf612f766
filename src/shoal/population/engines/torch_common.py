"""Shared by the two PyTorch engines: all of training except the arithmetic of the networks.

Members that can be trained by the same calls form a part. A part becomes `Networks`: tensors, with one update and one
forward pass as methods. `train_part` runs epochs over them, `PartProgress` holds their counters and status, `run`
distributes parts over threads.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from shoal.population.engines import Progress, Resources
from shoal.population.engines.program import (
    ACTIVE,
    DIVERGED,
    FINISHED,
    STOPPED,
    Assignment,
    Data,
    Log,
    Program,
    State,
    delivered,
)
from shoal.population.engines.torch_numbers import (
    Batches,
    DeviceData,
    Goal,
    learning_rates,
    loss_terms,
    training_rows,
    valid_rows,
)

BLOCK = 128  # rows of one forward pass outside training; fixed, so that a member's bits depend on nothing else
CHUNK_BYTES = 1 << 20  # bytes of inputs that are gathered at a time


class Networks(ABC):
    """Some members of a population as tensors. Each engine has its subclass."""

    multiple = 1  # batches are padded to a multiple of this many rows
    smoothing: Tensor | None = None  # label smoothing of each member, if there is any
    own_inputs = False  # whether members that share their rows still need their own inputs

    def __init__(self, program: Program, device_data: DeviceData, state: State, members: np.ndarray) -> None:
        self.program, self.device_data, self.state, self.members = program, device_data, state, members
        self.records = program.records[members]

    def vector(self, values: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values, np.float32)).to(self.device_data.device)

    def places(self, k: int) -> list[tuple[np.ndarray, int]]:
        """Buffer and offset of block k of each member: its weights, then its slots."""
        if k == 0:
            return [(self.state.parameters, start) for start in self.records["parameters"].tolist()]
        starts = self.records["slots"] + (k - 1) * self.records["slot_size"]
        return [(self.state.slots, start) for start in starts.tolist()]

    def delivered_places(self) -> list[tuple[np.ndarray, int]]:
        """Buffer and offset of the weights with which each member predicts."""
        return [delivered(self.program, self.state, i) for i in self.members.tolist()]

    @abstractmethod
    def begin_epoch(self, steps: np.ndarray, rates: np.ndarray) -> None:
        """Prepare an epoch with these learning rates [updates, members], after `steps` earlier updates."""

    @abstractmethod
    def inputs(self, rows: Tensor) -> Tensor:
        """The inputs of the networks, [members, rows, columns], for row numbers [1 or members, rows]."""

    @abstractmethod
    def step(self, k: int, x: Tensor, goal: Goal) -> Tensor:
        """Do update k of the epoch on some inputs; returns the loss before it, [members]."""

    @abstractmethod
    def outputs(self, x: Tensor) -> Tensor:
        """Raw outputs [members, outputs, rows] for some inputs, without dropout."""

    @abstractmethod
    def tensors(self) -> list[Tensor]:
        """All that training changes."""

    @abstractmethod
    def finite(self) -> np.ndarray:
        """A mask of the members whose weights are all finite."""

    @abstractmethod
    def keep_best(self, better: np.ndarray) -> None:
        """Copy the weights of these members (a mask) to their best slot."""

    @abstractmethod
    def store(self) -> None:
        """Write weights and slots back to the population's state."""


@dataclass(frozen=True, eq=False)
class Job:
    """One call of `train`."""

    program: Program
    device_data: DeviceData
    rows: Assignment
    state: State
    which: np.ndarray
    until: np.ndarray
    start: np.ndarray  # epochs that members had done when the call began
    log: Log


class PartProgress:
    """Counters and status of the members of a part. They change only at the end of an epoch, so they may be written
    to the state at any time.
    """

    def __init__(self, job: Job, places: np.ndarray) -> None:
        self.job = job
        self.places = places  # into job.which
        self.members = job.which[places]
        self.records = job.program.records[self.members]
        state = job.state
        self.steps, self.epochs = state.steps[self.members], state.epochs[self.members]
        self.best_epoch, self.best_loss = state.best_epoch[self.members], state.best_loss[self.members]
        self.status = state.status[self.members]

    def active(self) -> np.ndarray:
        return (self.status == ACTIVE) & (self.epochs < self.job.until[self.places])

    def finish_epoch(
        self, updates: int, loss: np.ndarray, valid: tuple[np.ndarray, np.ndarray] | None, finite: np.ndarray
    ) -> np.ndarray:
        """Log an epoch and update the status of members. Returns a mask of the members with a new best loss."""
        valid_loss, valid_score = valid or (np.full(len(loss), np.nan), np.full(len(loss), np.nan))
        diverged = ~np.isfinite(loss) | ~finite
        if valid is not None:  # infinite loss, so that it is never the best; NaN means not measured
            diverged |= ~np.isfinite(valid_loss)
            valid_loss, valid_score = np.where(diverged, np.inf, valid_loss), np.where(diverged, -np.inf, valid_score)
        place = self.places, self.epochs - self.job.start[self.places]
        self.job.log.loss[place] = np.where(diverged, np.inf, loss)
        self.job.log.valid_loss[place] = valid_loss
        self.job.log.valid_score[place] = valid_score
        self.steps += updates
        self.epochs += 1
        patience, most = self.records["patience"], self.records["epochs"]
        better = (patience > 0) & (valid_loss < self.best_loss)
        self.best_loss[better] = valid_loss[better]
        self.best_epoch[better] = self.epochs[better]
        stopped = (patience > 0) & ~better & (self.epochs - self.best_epoch >= patience)
        finished = (most >= 0) & (self.epochs >= most)
        self.status[:] = np.select([diverged, stopped, finished], [DIVERGED, STOPPED, FINISHED], ACTIVE)
        return better

    def write(self) -> None:
        state = self.job.state
        state.steps[self.members], state.epochs[self.members] = self.steps, self.epochs
        state.best_epoch[self.members], state.best_loss[self.members] = self.best_epoch, self.best_loss
        state.status[self.members] = self.status


class Stopped(Exception):
    """Raised inside a part when training is to stop."""


class Monitor:
    """Connects the caller's progress function with the training threads."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.done = 0
        self._lock = threading.Lock()

    def add(self, member_epochs: int) -> None:
        with self._lock:
            self.done += member_epochs

    def check(self) -> None:
        if self.stop.is_set():
            raise Stopped


def train_part(job: Job, pack: Callable[[np.ndarray], Networks], places: np.ndarray, monitor: Monitor) -> None:
    """Train members until each has done its epochs. The rest is packed again whenever some of them are done."""
    while len(places):
        monitor.check()
        part_progress = PartProgress(job, places)
        networks = pack(part_progress.members)
        try:
            while part_progress.active().all():
                _train_epoch(job, networks, part_progress, monitor)
                monitor.add(len(places))
        finally:
            networks.store()
            part_progress.write()
        places = places[part_progress.active()]


def _train_epoch(job: Job, networks: Networks, part_progress: PartProgress, monitor: Monitor) -> None:
    """Train one epoch. If it ends before it is complete, the networks are restored."""
    order, weight = training_rows(job.rows, part_progress.members, part_progress.epochs)
    batches = Batches(job.device_data, order, weight, int(part_progress.records["batch_size"][0]), networks.multiple)
    rates = learning_rates(
        part_progress.records, part_progress.steps, len(batches), job.rows.horizon[part_progress.members]
    )
    networks.begin_epoch(part_progress.steps, rates)
    before = [tensor.clone() for tensor in networks.tensors()]
    try:
        losses = _update_with_each(batches, job.device_data, networks, len(part_progress.members), monitor)
        with np.errstate(all="ignore"):  # a diverging member overflows, which its loss shows
            loss = (losses * batches.mass).sum(1) / batches.mass.sum(1)
        scored = valid_rows(job.rows, part_progress.members)
        valid = (
            measure(job.device_data, networks, scored, len(part_progress.members), monitor) if scored.shape[1] else None
        )
    except BaseException:
        with torch.no_grad():
            for tensor, old in zip(networks.tensors(), before, strict=True):
                tensor.copy_(old)
        raise
    networks.keep_best(part_progress.finish_epoch(len(batches), loss, valid, networks.finite()))


def _update_with_each(
    batches: Batches, device_data: DeviceData, networks: Networks, n_members: int, monitor: Monitor
) -> np.ndarray:
    """One update for each batch. Returns the losses, float64 [members, batches]."""
    losses: list[Tensor] = []
    lines = n_members if networks.own_inputs or networks.smoothing is not None else len(batches.order)
    for chunk in batches.chunks(CHUNK_BYTES // (4 * lines * (device_data.X.shape[1] + device_data.n_outputs))):
        x, goal = networks.inputs(chunk.rows), device_data.goal(chunk, networks.smoothing)
        for span in chunk.spans:
            monitor.check()
            losses.append(networks.step(len(losses), x[:, span], goal.at(span)))
    return torch.stack(losses, 1).cpu().double().numpy()


@torch.no_grad()
def measure(
    device_data: DeviceData, networks: Networks, order: np.ndarray, n_members: int, monitor: Monitor
) -> tuple[np.ndarray, np.ndarray]:
    """Loss and score of each member over the rows in `order`, [1 or members, rows]."""
    n = order.shape[1]
    batches = Batches(device_data, order, np.ones(order.shape, np.float32), BLOCK, networks.multiple, whole=True)
    losses, hits = [], torch.zeros(n_members, dtype=torch.int64, device=device_data.device)
    for chunk in batches.chunks(BLOCK):
        monitor.check()
        outputs = networks.outputs(networks.inputs(chunk.rows))
        losses.append(loss_terms(device_data.loss, outputs, device_data.goal(chunk), 1).flatten(1).sum(1))
        if device_data.loss != "mse":
            hits += device_data.hits(outputs, chunk)
    with np.errstate(all="ignore"):
        loss = torch.stack(losses).cpu().double().numpy().sum(0)
        if device_data.loss == "mse":
            spread = device_data.spread(order)
            return loss, np.where(spread > 0, 1.0 - loss * (n * device_data.n_outputs) / spread, np.nan)
    return loss, hits.cpu().numpy() / (n if device_data.loss == "cross_entropy" else n * device_data.n_outputs)


def run(
    work: Callable[[np.ndarray], None],
    parts: Sequence[np.ndarray],
    threads: tuple[int, int],
    monitor: Monitor,
    progress: Progress = lambda done: False,
) -> bool:
    """Do `work` for each part; `threads` is the number of parts at a time, and of torch threads in each.

    Torch releases the GIL while it computes. The calling thread only calls the progress function and handles signals,
    every 50 ms. Returns whether all parts were finished.
    """
    workers, torch_threads = threads
    before = torch.get_num_threads()
    stopped = False
    with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(torch_threads,)) as pool:
        pending = {pool.submit(work, part) for part in parts}
        try:
            while pending:
                if not monitor.stop.is_set() and progress(monitor.done):
                    monitor.stop.set()
                finished, pending = wait(pending, timeout=0.05)
                for future in finished:
                    error = future.exception()
                    stopped |= isinstance(error, Stopped)
                    if error is not None and not isinstance(error, Stopped):
                        raise error
        finally:
            monitor.stop.set()  # after an error all threads stop
            pool.shutdown(cancel_futures=True)
            torch.set_num_threads(before)
    return not stopped


class TorchEngine(ABC):
    """Base class of the PyTorch engines: a subclass divides members into parts and packs a part into `Networks`."""

    name: str
    shares_rows = False  # whether all members of a part must see the same rows in the same order

    @abstractmethod
    def pack(
        self, program: Program, device_data: DeviceData, state: State, members: np.ndarray, training: bool
    ) -> Networks:
        """Tensors of these members: for training their present weights and slots, else the weights to predict with."""

    @abstractmethod
    def keys(self, program: Program, members: np.ndarray) -> list[Hashable]:
        """Members with equal keys may share a part. A key depends on its member alone."""

    @abstractmethod
    def bytes_each(self, program: Program, members: np.ndarray, rows: np.ndarray, training: bool) -> np.ndarray:
        """Bytes that each member takes in a part, with batches of this many rows."""

    @abstractmethod
    def limit(self, resources: Resources) -> int:
        """Bytes that one part may take."""

    @abstractmethod
    def threads(self, resources: Resources) -> tuple[int, int]:
        """How many parts at a time, and threads of torch in each."""

    def train(
        self,
        program: Program,
        data: Data,
        rows: Assignment,
        state: State,
        which: np.ndarray,
        until: np.ndarray,
        log: Log,
        resources: Resources,
        progress: Progress,
    ) -> bool:
        device_data = DeviceData(program, data, resources.device)
        job = Job(program, device_data, rows, state, which, until, state.epochs[which], log)
        places = np.flatnonzero((state.status[which] == ACTIVE) & (state.epochs[which] < until))
        parts = [places[part] for part in self._parts(program, which[places], state.epochs, rows, resources)]
        monitor = Monitor()

        def work(part: np.ndarray) -> None:
            train_part(job, lambda members: self.pack(program, device_data, state, members, True), part, monitor)

        finished = run(work, parts, self.threads(resources), monitor, progress)
        progress(monitor.done)
        return finished

    def predict(
        self,
        program: Program,
        state: State,
        X: np.ndarray,
        which: np.ndarray,
        out: np.ndarray,
        resources: Resources,
    ) -> None:
        unknown = Data(X, np.empty(0, np.int32), np.empty((0, program.n_outputs), np.float32))
        device_data = DeviceData(program, unknown, resources.device)

        @torch.no_grad()
        def work(part: np.ndarray) -> None:
            networks = self.pack(program, device_data, state, which[part], False)
            for start in range(0, len(X), BLOCK):
                count = min(BLOCK, len(X) - start)
                rows = torch.arange(start, start + BLOCK, device=device_data.device).clamp_max_(len(X) - 1)[None]
                outputs = networks.outputs(networks.inputs(rows))[:, :, :count].transpose(1, 2)
                out[part, start : start + count] = outputs.cpu().numpy()

        run(work, self._parts(program, which, state.epochs, None, resources), self.threads(resources), Monitor())

    def evaluate(
        self,
        program: Program,
        state: State,
        data: Data,
        which: np.ndarray,
        resources: Resources,
    ) -> tuple[np.ndarray, np.ndarray]:
        device_data = DeviceData(program, data, resources.device)
        losses, scores = np.empty(len(which)), np.empty(len(which))
        monitor, every_row = Monitor(), np.arange(len(data.X))[None]

        def work(part: np.ndarray) -> None:
            networks = self.pack(program, device_data, state, which[part], False)
            losses[part], scores[part] = measure(device_data, networks, every_row, len(part), monitor)

        run(work, self._parts(program, which, state.epochs, None, resources), self.threads(resources), monitor)
        return losses, scores

    def workspace(self, program: Program, data: Data, rows: Assignment, resources: Resources) -> int:
        members = np.arange(len(program))
        each = self._bytes(program, members, rows)
        return self.threads(resources)[0] * int(max(each.max(), min(each.sum(), self.limit(resources))))

    def _bytes(self, program: Program, members: np.ndarray, rows: Assignment | None) -> np.ndarray:
        if rows is None:
            return self.bytes_each(program, members, np.full(len(members), BLOCK), False)
        n_train = np.diff(rows.train_start)[rows.split[members]]
        scored = np.diff(rows.valid_start)[rows.split[members]] > 0  # a forward pass needs half the memory of training
        batch = np.maximum(np.minimum(program.records["batch_size"][members], n_train), BLOCK // 2 * scored)
        alike = len(np.unique(rows.split[members])) == 1 and len(np.unique(rows.order[members])) == 1
        orders = 0 if alike else 20 * n_train  # row numbers and shares, if each member has its own
        return self.bytes_each(program, members, batch, True) + orders

    def _parts(
        self, program: Program, which: np.ndarray, epochs: np.ndarray, rows: Assignment | None, resources: Resources
    ) -> list[np.ndarray]:
        """Indices into `which` of the members of each part, most work first. They share their rows where possible."""
        keys: list[Hashable] = self.keys(program, which)
        if rows is not None:
            n_train, n_valid = np.diff(rows.train_start)[rows.split], np.diff(rows.valid_start)[rows.split]
            columns = [n_train, n_valid, program.records["batch_size"]]
            columns += [rows.split, rows.order, epochs] if self.shares_rows else []
            keys = list(zip(keys, *(column[which].tolist() for column in columns), strict=True))
        groups: dict[Hashable, list[int]] = {}
        for place, key in enumerate(keys):
            groups.setdefault(key, []).append(place)
        each = self._bytes(program, which, rows)
        most = -(-len(which) // self.threads(resources)[0])  # so that no thread is idle
        activation = program.records["activation"][which]
        parts = []
        for group in map(np.array, groups.values()):
            if rows is not None:
                group = group[np.lexsort([column[which[group]] for column in (epochs, rows.order, rows.split)])]
            count = max(1, min(most, self.limit(resources) // int(each[group].max())))
            for part in np.array_split(group, -(-len(group) // count)):
                parts.append(part[np.argsort(activation[part], kind="stable")])
        return sorted(parts, key=lambda part: -float(program.layout.flops_per_row[which[part]].sum()))
