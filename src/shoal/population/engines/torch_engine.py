"""The PyTorch engine: `bmm` over members of similar shape.

Members that can be trained by the same calls form a part. A part becomes `GroupedNetworks`: tensors, with one update
and one forward pass as methods. `train_part` runs epochs over them, `PartProgress` holds their counters and status,
`PartThreads` distributes parts over threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from shoal.population.engines.grouped import GroupedNetworks, matrix_columns, padded_shapes
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
)
from shoal.population.engines.torch_numbers import (
    Batches,
    DeviceData,
    learning_rates,
    loss_terms,
    training_rows,
    valid_rows,
)

BLOCK = 128  # rows of one forward pass outside training; fixed, so that a member's bits depend on nothing else
CHUNK_BYTES = 1 << 20  # bytes of inputs that are gathered at a time
CACHE = 8 << 20  # bytes of one part on a CPU. Measured: 6 to 12 MB are equally fast, smaller parts are slower
DEVICE_MEMORY = 1 << 30  # bytes of one part on a GPU


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


def train_part(training: Training, device_data: DeviceData, places: np.ndarray, threads: PartThreads) -> None:
    """Train members until each has done its epochs. The rest is packed again whenever some of them are done."""
    while len(places):
        threads.check()
        part = PartProgress(training, places)
        networks = GroupedNetworks(training, device_data, part.members, training=True)
        try:
            while part.active().all():
                _train_epoch(training.rows, networks, part, threads)
                threads.add(len(places))
        finally:
            networks.store()
            part.write()
        places = places[part.active()]


def _train_epoch(rows: Assignment, networks: GroupedNetworks, part: PartProgress, threads: PartThreads) -> None:
    """Train one epoch. If it ends before it is complete, the networks are restored."""
    order, weight = training_rows(rows, part.members, part.epochs)
    batch_size = int(part.records["batch_size"][0])
    batches = Batches(networks.device_data, order, weight, batch_size)
    rates = learning_rates(part.records, part.steps, len(batches), rows.horizon[part.members])
    networks.begin_epoch(part.steps, rates)
    tensors = [tensor for block in networks.blocks for tensor in block]
    before = [tensor.clone() for tensor in tensors]
    try:
        losses = _update_with_each(batches, networks, threads)
        with np.errstate(all="ignore"):  # a diverging member overflows, which its loss shows
            loss = (losses * batches.mass).sum(1) / batches.mass.sum(1)
        scored = valid_rows(rows, part.members)
        valid = measure(networks, scored, threads) if scored.shape[1] else None
    except BaseException:
        with torch.no_grad():
            for tensor, old in zip(tensors, before, strict=True):
                tensor.copy_(old)
        raise
    networks.keep_best(part.finish_epoch(len(batches), loss, valid, networks.finite()))


def _update_with_each(batches: Batches, networks: GroupedNetworks, threads: PartThreads) -> np.ndarray:
    """One update for each batch. Returns the losses, float64 [members, batches]."""
    losses: list[Tensor] = []
    device_data = networks.device_data
    own = networks.features is not None or networks.smoothing is not None
    lines = len(networks.members) if own else len(batches.order)
    for chunk in batches.chunks(CHUNK_BYTES // (4 * lines * (device_data.X.shape[1] + device_data.n_outputs))):
        x, goal = networks.inputs(chunk.rows), device_data.goal(chunk, networks.smoothing)
        for span in chunk.spans:
            threads.check()
            losses.append(networks.step(len(losses), x[:, span], goal.at(span)))
    return torch.stack(losses, 1).cpu().double().numpy()


@torch.no_grad()
def measure(networks: GroupedNetworks, order: np.ndarray, threads: PartThreads) -> tuple[np.ndarray, np.ndarray]:
    """Loss and score of each member over the rows in `order`, [1 or members, rows]."""
    n, device_data = order.shape[1], networks.device_data
    batches = Batches(device_data, order, np.ones(order.shape, np.float32), BLOCK, whole=True)
    losses, hits = [], torch.zeros(len(networks.members), dtype=torch.int64, device=device_data.device)
    for chunk in batches.chunks(BLOCK):
        threads.check()
        outputs = networks.outputs(networks.inputs(chunk.rows))
        losses.append(loss_terms(device_data.loss, outputs, device_data.goal(chunk)).flatten(1).sum(1))
        if device_data.loss != "mse":
            hits += device_data.hits(outputs, chunk)
    with np.errstate(all="ignore"):
        loss = torch.stack(losses).cpu().double().numpy().sum(0)
        if device_data.loss == "mse":
            spread = device_data.spread(order)
            return loss, np.where(spread > 0, 1.0 - loss * (n * device_data.n_outputs) / spread, np.nan)
    return loss, hits.cpu().numpy() / (n if device_data.loss == "cross_entropy" else n * device_data.n_outputs)


class GroupedEngine:
    """`bmm` over buckets of similar members. On a CPU each thread takes parts that fit into its cache."""

    name = "grouped"

    def train(self, training: Training) -> bool:
        state, which = training.state, training.which
        device_data = DeviceData(training.program, training.data, training.resources.device)
        places = np.flatnonzero((state.status[which] == ACTIVE) & (training.start < training.until))
        parts = [places[part] for part in _parts(training, which[places], training.rows)]
        threads = PartThreads()

        def work(part: np.ndarray) -> None:
            train_part(training, device_data, part, threads)

        finished = threads.run(work, parts, _threads(training.resources), training.progress)
        training.progress(threads.done)
        return finished

    def predict(self, selection: Selection, X: np.ndarray, out: np.ndarray) -> None:
        program, which = selection.program, selection.which
        unknown = Data(X, np.empty(0, np.int32), np.empty((0, program.n_outputs), np.float32))
        device_data = DeviceData(program, unknown, selection.resources.device)

        @torch.no_grad()
        def work(part: np.ndarray) -> None:
            networks = GroupedNetworks(selection, device_data, which[part], training=False)
            for start in range(0, len(X), BLOCK):
                count = min(BLOCK, len(X) - start)
                rows = torch.arange(start, start + BLOCK, device=device_data.device).clamp_max_(len(X) - 1)[None]
                outputs = networks.outputs(networks.inputs(rows))[:, :, :count].transpose(1, 2)
                out[part, start : start + count] = outputs.cpu().numpy()

        PartThreads().run(work, _parts(selection, which, None), _threads(selection.resources))

    def evaluate(self, selection: Selection, data: Data) -> tuple[np.ndarray, np.ndarray]:
        which = selection.which
        device_data = DeviceData(selection.program, data, selection.resources.device)
        losses, scores = np.empty(len(which)), np.empty(len(which))
        threads, every_row = PartThreads(), np.arange(len(data.X))[None]

        def work(part: np.ndarray) -> None:
            networks = GroupedNetworks(selection, device_data, which[part], training=False)
            losses[part], scores[part] = measure(networks, every_row, threads)

        threads.run(work, _parts(selection, which, None), _threads(selection.resources))
        return losses, scores

    def workspace(self, program: Program, rows: Assignment, resources: Resources) -> int:
        members = np.arange(len(program))
        each = _bytes(program, members, rows)
        return _threads(resources)[0] * int(max(each.max(), min(each.sum(), _limit(resources))))


def _limit(resources: Resources) -> int:
    """Bytes that one part may take."""
    most = CACHE if resources.device == "cpu" else DEVICE_MEMORY
    return max(1, min(most, resources.memory // _threads(resources)[0]))


def _threads(resources: Resources) -> tuple[int, int]:
    """How many parts at a time, and threads of torch in each."""
    return (resources.threads, 1) if resources.device == "cpu" else (1, resources.threads)


def _floats_each(program: Program, members: np.ndarray, training: bool) -> tuple[np.ndarray, np.ndarray]:
    """Parameters of each member in a part, and the floats that each row of a batch takes."""
    records = program.records[members]
    shapes = padded_shapes(program, members)
    parameters = np.array([sum(o * matrix_columns(i, o) for i, o in pairwise(s)) for s in shapes])
    neurons = np.array([sum(s[1:]) for s in shapes])
    inputs = np.array([s[0] + 1 for s in shapes]) * (records["features_start"] >= 0)
    dropout = np.where(training & (records["dropout"] > 0), 8, 0)  # its integers have eight bytes
    return parameters, neurons * (3 + dropout) + inputs


def _bytes(program: Program, members: np.ndarray, rows: Assignment | None) -> np.ndarray:
    parameters, per_row = _floats_each(program, members, rows is not None)
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


def _parts(selection: Selection, which: np.ndarray, rows: Assignment | None) -> list[np.ndarray]:
    """Indices into `which` of the members of each part, most work first. They share their rows where possible."""
    program, epochs, resources = selection.program, selection.state.epochs, selection.resources
    records = program.records
    flags = [records[name] > 0 for name in ("weight_decay", "clip", "dropout", "patience")]
    columns = [records["features_start"] >= 0, records["optimizer_slots"], *flags]
    if rows is not None:
        n_train, n_valid = np.diff(rows.train_start)[rows.split], np.diff(rows.valid_start)[rows.split]
        columns += [n_train, n_valid, records["batch_size"]]
    keys = zip(padded_shapes(program, which), *(column[which].tolist() for column in columns), strict=True)
    groups: dict[Hashable, list[int]] = {}
    for place, key in enumerate(keys):
        groups.setdefault(key, []).append(place)
    each = _bytes(program, which, rows)
    most = -(-len(which) // _threads(resources)[0])  # so that no thread is idle
    activation = records["activation"][which]
    parts = []
    for group in map(np.array, groups.values()):
        if rows is not None:
            group = group[np.lexsort([column[which[group]] for column in (epochs, rows.order, rows.split)])]
        count = max(1, min(most, _limit(resources) // int(each[group].max())))
        for part in np.array_split(group, -(-len(group) // count)):
            parts.append(part[np.argsort(activation[part], kind="stable")])
    return sorted(parts, key=lambda part: -float(program.layout.flops_per_row[which[part]].sum()))
