"""Shared by the two PyTorch engines: all of training except the arithmetic of the networks.

Members that can be trained by the same calls form a part. A part becomes `Networks`: tensors, with one update and one
forward pass as methods. `train_part` runs epochs over them, `PartProgress` holds their counters and status,
`PartThreads` distributes parts over threads.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np
import torch
from torch import Tensor

from shoal.population.engines.program import (
    ACTIVE,
    DIVERGED,
    FINISHED,
    STOPPED,
    Assignment,
    Data,
    Program,
    Progress,
    Resources,
    Selection,
    Training,
    delivered,
)
from shoal.population.engines.torch_numbers import (
    Batches,
    DeviceData,
    Goal,
    UpdateSettings,
    clip_factors,
    dropout_keys,
    dropout_thresholds,
    learning_rates,
    loss_terms,
    training_rows,
    update,
    valid_rows,
)

BLOCK = 128  # rows of one forward pass outside training; fixed, so that a member's bits depend on nothing else
CHUNK_BYTES = 1 << 20  # bytes of inputs that are gathered at a time


class Networks(ABC):
    """Some members of a population as tensors, which differ only in what the calls for them do not depend on.

    Each engine has its subclass. A block is a list of tensors: the weights, then, in training, each of the slots.
    """

    multiple = 1  # batches are padded to a multiple of this many rows
    own_inputs = False  # whether members that share their rows still need their own inputs
    blocks: list[list[Tensor]]
    spreads: list[Callable[[Tensor], Tensor]]  # make a vector over members broadcast against each tensor of a block

    def __init__(self, selection: Selection, device_data: DeviceData, members: np.ndarray, training: bool) -> None:
        self.program, self.state = selection.program, selection.state
        self.device_data, self.members, self.training = device_data, members, training
        self.records = self.program.records[members]
        first = self.records[0]
        self.n_moments = int(first["optimizer_slots"])
        self.n_slots = self.n_moments + bool(first["patience"] > 0) if training else 0
        smoothing = self.records["label_smoothing"]
        self.smoothing = self.vector(smoothing) if smoothing.any() else None
        self.clip = self.vector(self.records["clip"]) if first["clip"] > 0 else None
        self.dropout = training and bool(first["dropout"] > 0)
        if self.dropout:
            self.threshold = torch.from_numpy(dropout_thresholds(self.records)).to(device_data.device)
            self.scale = self.vector(1.0 / (1.0 - self.records["dropout"]))
        self.settings: UpdateSettings
        self.keys: Tensor  # of dropout

    def vector(self, values: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values, np.float32)).to(self.device_data.device)

    def places(self, k: int) -> list[tuple[np.ndarray, int]]:
        """Buffer and offset of block k of each member; without training, of the weights with which it predicts."""
        if not self.training:
            return [delivered(self.program, self.state, i) for i in self.members.tolist()]
        if k == 0:
            return [(self.state.parameters, start) for start in self.records["parameters"].tolist()]
        starts = self.records["slots"] + (k - 1) * self.records["slot_size"]
        return [(self.state.slots, start) for start in starts.tolist()]

    def begin_epoch(self, steps: np.ndarray, rates: np.ndarray) -> None:
        """Prepare an epoch with these learning rates [updates, members], after `steps` earlier updates."""
        self.settings = UpdateSettings(self.records, steps, rates, self.device_data.device)
        if self.dropout:
            keys = dropout_keys(self.records, steps, len(rates), int(self.records["n_layers"].max()) - 1)
            self.keys = torch.from_numpy(keys).to(self.device_data.device)

    @torch.no_grad()
    def update(self, k: int, gradients: Sequence[Tensor]) -> None:
        """The optimiser's part of update k of the epoch."""
        if self.clip is not None:
            factors = clip_factors(self.member_sums([gradient.square() for gradient in gradients]).sqrt(), self.clip)
            for gradient, spread in zip(gradients, self.spreads, strict=True):
                gradient.mul_(spread(factors))
        rates = {spread: self.settings.at(k, spread) for spread in dict.fromkeys(self.spreads)}
        for place, (weight, gradient) in enumerate(zip(self.blocks[0], gradients, strict=True)):
            moments = [block[place] for block in self.blocks[1 : 1 + self.n_moments]]
            update(weight, gradient, moments, rates[self.spreads[place]])

    def tensors(self) -> list[Tensor]:
        """All that training changes."""
        return [tensor for block in self.blocks for tensor in block]

    @torch.no_grad()
    def finite(self) -> np.ndarray:
        """A mask of the members whose weights are all finite."""
        broken = self.member_sums([(~torch.isfinite(weight)).float() for weight in self.blocks[0]])
        return (broken == 0).cpu().numpy()

    @torch.no_grad()
    def keep_best(self, better: np.ndarray) -> None:
        """Copy the weights of these members (a mask) to their best slot."""
        if better.any():
            chosen = torch.from_numpy(better).to(self.device_data.device)
            for best, weight, spread in zip(self.blocks[-1], self.blocks[0], self.spreads, strict=True):
                best.copy_(torch.where(spread(chosen), weight, best))

    @abstractmethod
    def member_sums(self, tensors: list[Tensor]) -> Tensor:
        """Sums over each member's part of tensors like those of a block, [members]."""

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
    def store(self) -> None:
        """Write weights and slots back to the population's state."""


class PartProgress:
    """Counters and status of the members of a part. They change only at the end of an epoch, so they may be written
    to the state at any time.
    """

    def __init__(self, training: Training, places: np.ndarray) -> None:
        self.training = training
        self.places = places  # into training.which
        self.members = training.which[places]
        self.records = training.program.records[self.members]
        state = training.state
        self.steps, self.epochs = state.steps[self.members], state.epochs[self.members]
        self.best_epoch, self.best_loss = state.best_epoch[self.members], state.best_loss[self.members]
        self.status = state.status[self.members]

    def active(self) -> np.ndarray:
        return (self.status == ACTIVE) & (self.epochs < self.training.until[self.places])

    def finish_epoch(
        self, updates: int, loss: np.ndarray, valid: tuple[np.ndarray, np.ndarray] | None, finite: np.ndarray
    ) -> np.ndarray:
        """Log an epoch and update the status of members. Returns a mask of the members with a new best loss."""
        valid_loss, valid_score = valid or (np.full(len(loss), np.nan), np.full(len(loss), np.nan))
        diverged = ~np.isfinite(loss) | ~finite
        if valid is not None:  # infinite loss, so that it is never the best; NaN means not measured
            diverged |= ~np.isfinite(valid_loss)
            valid_loss, valid_score = np.where(diverged, np.inf, valid_loss), np.where(diverged, -np.inf, valid_score)
        place, log = (self.places, self.epochs - self.training.start[self.places]), self.training.log
        log.loss[place] = np.where(diverged, np.inf, loss)
        log.valid_loss[place], log.valid_score[place] = valid_loss, valid_score
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
        state = self.training.state
        state.steps[self.members], state.epochs[self.members] = self.steps, self.epochs
        state.best_epoch[self.members], state.best_loss[self.members] = self.best_epoch, self.best_loss
        state.status[self.members] = self.status


class Stopped(Exception):
    """Raised inside a part when training is to stop."""


class PartThreads:
    """Threads that take one part after the other, and what they share with the calling thread."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.done = 0  # member-epochs
        self._lock = threading.Lock()

    def add(self, member_epochs: int) -> None:
        with self._lock:
            self.done += member_epochs

    def check(self) -> None:
        if self.stop.is_set():
            raise Stopped

    def run(
        self,
        work: Callable[[np.ndarray], None],
        parts: Sequence[np.ndarray],
        threads: tuple[int, int],
        progress: Progress = lambda done: False,
    ) -> bool:
        """Do `work` for each part; `threads` is the number of parts at a time, and of torch threads in each.

        Torch releases the GIL while it computes. The calling thread only calls the progress function and handles
        signals, every 50 ms. Returns whether all parts were finished.
        """
        workers, torch_threads = threads
        before = torch.get_num_threads()
        stopped = False
        with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(torch_threads,)) as pool:
            pending = {pool.submit(work, part) for part in parts}
            try:
                while pending:
                    if not self.stop.is_set() and progress(self.done):
                        self.stop.set()
                    finished, pending = wait(pending, timeout=0.05)
                    for future in finished:
                        error = future.exception()
                        stopped |= isinstance(error, Stopped)
                        if error is not None and not isinstance(error, Stopped):
                            raise error
            finally:
                self.stop.set()  # after an error all threads stop
                pool.shutdown(cancel_futures=True)
                torch.set_num_threads(before)
        return not stopped


Pack = Callable[[np.ndarray], Networks]


def train_part(training: Training, pack: Pack, places: np.ndarray, threads: PartThreads) -> None:
    """Train members until each has done its epochs. The rest is packed again whenever some of them are done."""
    while len(places):
        threads.check()
        part = PartProgress(training, places)
        networks = pack(part.members)
        try:
            while part.active().all():
                _train_epoch(training.rows, networks, part, threads)
                threads.add(len(places))
        finally:
            networks.store()
            part.write()
        places = places[part.active()]


def _train_epoch(rows: Assignment, networks: Networks, part: PartProgress, threads: PartThreads) -> None:
    """Train one epoch. If it ends before it is complete, the networks are restored."""
    order, weight = training_rows(rows, part.members, part.epochs)
    batch_size = int(part.records["batch_size"][0])
    batches = Batches(networks.device_data, order, weight, batch_size, networks.multiple)
    rates = learning_rates(part.records, part.steps, len(batches), rows.horizon[part.members])
    networks.begin_epoch(part.steps, rates)
    before = [tensor.clone() for tensor in networks.tensors()]
    try:
        losses = _update_with_each(batches, networks, threads)
        with np.errstate(all="ignore"):  # a diverging member overflows, which its loss shows
            loss = (losses * batches.mass).sum(1) / batches.mass.sum(1)
        scored = valid_rows(rows, part.members)
        valid = measure(networks, scored, threads) if scored.shape[1] else None
    except BaseException:
        with torch.no_grad():
            for tensor, old in zip(networks.tensors(), before, strict=True):
                tensor.copy_(old)
        raise
    networks.keep_best(part.finish_epoch(len(batches), loss, valid, networks.finite()))


def _update_with_each(batches: Batches, networks: Networks, threads: PartThreads) -> np.ndarray:
    """One update for each batch. Returns the losses, float64 [members, batches]."""
    losses: list[Tensor] = []
    device_data = networks.device_data
    own = networks.own_inputs or networks.smoothing is not None
    lines = len(networks.members) if own else len(batches.order)
    for chunk in batches.chunks(CHUNK_BYTES // (4 * lines * (device_data.X.shape[1] + device_data.n_outputs))):
        x, goal = networks.inputs(chunk.rows), device_data.goal(chunk, networks.smoothing)
        for span in chunk.spans:
            threads.check()
            losses.append(networks.step(len(losses), x[:, span], goal.at(span)))
    return torch.stack(losses, 1).cpu().double().numpy()


@torch.no_grad()
def measure(networks: Networks, order: np.ndarray, threads: PartThreads) -> tuple[np.ndarray, np.ndarray]:
    """Loss and score of each member over the rows in `order`, [1 or members, rows]."""
    n, device_data = order.shape[1], networks.device_data
    batches = Batches(device_data, order, np.ones(order.shape, np.float32), BLOCK, networks.multiple, whole=True)
    losses, hits = [], torch.zeros(len(networks.members), dtype=torch.int64, device=device_data.device)
    for chunk in batches.chunks(BLOCK):
        threads.check()
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


class TorchEngine(ABC):
    """Base class of the PyTorch engines: a subclass divides members into parts, each of which becomes `networks`."""

    name: str
    networks: type[Networks]
    shares_rows = False  # whether all members of a part must see the same rows in the same order

    @abstractmethod
    def shapes(self, program: Program, members: np.ndarray) -> Sequence[Hashable]:
        """Members of equal shape may share a part. It depends on the member alone."""

    @abstractmethod
    def floats_each(self, program: Program, members: np.ndarray, training: bool) -> tuple[np.ndarray, np.ndarray]:
        """Parameters of each member in a part, and the floats that each row of a batch takes."""

    @abstractmethod
    def limit(self, resources: Resources) -> int:
        """Bytes that one part may take."""

    @abstractmethod
    def threads(self, resources: Resources) -> tuple[int, int]:
        """How many parts at a time, and threads of torch in each."""

    def train(self, training: Training) -> bool:
        state, which = training.state, training.which
        device_data = DeviceData(training.program, training.data, training.resources.device)
        places = np.flatnonzero((state.status[which] == ACTIVE) & (training.start < training.until))
        parts = [places[part] for part in self._parts(training, which[places], training.rows)]
        threads = PartThreads()

        def work(part: np.ndarray) -> None:
            train_part(training, lambda members: self.networks(training, device_data, members, True), part, threads)

        finished = threads.run(work, parts, self.threads(training.resources), training.progress)
        training.progress(threads.done)
        return finished

    def predict(self, selection: Selection, X: np.ndarray, out: np.ndarray) -> None:
        program, which = selection.program, selection.which
        unknown = Data(X, np.empty(0, np.int32), np.empty((0, program.n_outputs), np.float32))
        device_data = DeviceData(program, unknown, selection.resources.device)

        @torch.no_grad()
        def work(part: np.ndarray) -> None:
            networks = self.networks(selection, device_data, which[part], False)
            for start in range(0, len(X), BLOCK):
                count = min(BLOCK, len(X) - start)
                rows = torch.arange(start, start + BLOCK, device=device_data.device).clamp_max_(len(X) - 1)[None]
                outputs = networks.outputs(networks.inputs(rows))[:, :, :count].transpose(1, 2)
                out[part, start : start + count] = outputs.cpu().numpy()

        PartThreads().run(work, self._parts(selection, which, None), self.threads(selection.resources))

    def evaluate(self, selection: Selection, data: Data) -> tuple[np.ndarray, np.ndarray]:
        which = selection.which
        device_data = DeviceData(selection.program, data, selection.resources.device)
        losses, scores = np.empty(len(which)), np.empty(len(which))
        threads, every_row = PartThreads(), np.arange(len(data.X))[None]

        def work(part: np.ndarray) -> None:
            networks = self.networks(selection, device_data, which[part], False)
            losses[part], scores[part] = measure(networks, every_row, threads)

        threads.run(work, self._parts(selection, which, None), self.threads(selection.resources))
        return losses, scores

    def workspace(self, program: Program, rows: Assignment, resources: Resources) -> int:
        members = np.arange(len(program))
        each = self._bytes(program, members, rows)
        return self.threads(resources)[0] * int(max(each.max(), min(each.sum(), self.limit(resources))))

    def _bytes(self, program: Program, members: np.ndarray, rows: Assignment | None) -> np.ndarray:
        parameters, per_row = self.floats_each(program, members, rows is not None)
        if rows is None:
            return 4 * (parameters + BLOCK * per_row)
        records = program.records[members]
        copies = 3 + records["optimizer_slots"] + (records["patience"] > 0)
        n_train = np.diff(rows.train_start)[rows.split[members]]
        scored = np.diff(rows.valid_start)[rows.split[members]] > 0  # a forward pass needs half the memory of training
        batch = np.maximum(np.minimum(records["batch_size"], n_train), BLOCK // 2 * scored)
        alike = len(np.unique(rows.split[members])) == 1 and len(np.unique(rows.order[members])) == 1
        orders = 0 if alike else 20 * n_train  # row numbers and shares, if each member has its own
        return 4 * (parameters * copies + batch * per_row) + orders

    def _parts(self, selection: Selection, which: np.ndarray, rows: Assignment | None) -> list[np.ndarray]:
        """Indices into `which` of the members of each part, most work first. They share their rows where possible."""
        program, epochs, resources = selection.program, selection.state.epochs, selection.resources
        records = program.records
        flags = [records[name] > 0 for name in ("weight_decay", "clip", "dropout", "patience")]
        columns = [records["optimizer_slots"], *flags]
        if rows is not None:
            n_train, n_valid = np.diff(rows.train_start)[rows.split], np.diff(rows.valid_start)[rows.split]
            columns += [n_train, n_valid, records["batch_size"]]
            columns += [rows.split, rows.order, epochs] if self.shares_rows else []
        keys = zip(self.shapes(program, which), *(column[which].tolist() for column in columns), strict=True)
        groups: dict[Hashable, list[int]] = {}
        for place, key in enumerate(keys):
            groups.setdefault(key, []).append(place)
        each = self._bytes(program, which, rows)
        most = -(-len(which) // self.threads(resources)[0])  # so that no thread is idle
        activation = records["activation"][which]
        parts = []
        for group in map(np.array, groups.values()):
            if rows is not None:
                group = group[np.lexsort([column[which[group]] for column in (epochs, rows.order, rows.split)])]
            count = max(1, min(most, self.limit(resources) // int(each[group].max())))
            for part in np.array_split(group, -(-len(group) // count)):
                parts.append(part[np.argsort(activation[part], kind="stable")])
        return sorted(parts, key=lambda part: -float(program.layout.flops_per_row[which[part]].sum()))
