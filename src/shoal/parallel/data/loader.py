"""Loads rows of a data set as tensors, in a reproducible order, and the next ones ahead of time in a thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from shoal.errors import UserError
from shoal.parallel.exact.randomness import own_generator
from shoal.parallel.exact.threads import use_threads
from shoal.parallel.lazy import torch

if TYPE_CHECKING:
    from torch.utils.data import Dataset

AHEAD = 2  # batches that are loaded ahead
READ = 1024  # rows that are read at a time for their targets alone
ALIGNMENT = 64  # bytes; that of new tensors
WAIT = 0.2  # seconds after which the thread looks whether its results are still wanted
Item = TypeVar("Item")
Pair = tuple[Any, Any]


def epoch_order(rows: int, seed: int, epoch: int, shuffle: bool) -> torch.Tensor:
    """All row numbers in the order of an epoch, which depends on seed and epoch only."""
    if not shuffle:
        return torch.arange(rows)
    return torch.randperm(rows, generator=torch.Generator().manual_seed(key(seed, epoch, 0)))


def key(*numbers: int) -> int:
    """A seed for random numbers, hashed from several whole numbers.

    >>> key(0, 1, 2) == key(0, 1, 2), key(0, 1, 2) == key(0, 2, 1)
    (True, False)
    """
    state = 0x9E3779B97F4A7C15
    for number in numbers:
        state = (state ^ (number & (2**64 - 1))) * 0xBF58476D1CE4E5B9 & (2**64 - 1)
        state = (state ^ (state >> 30)) * 0x94D049BB133111EB & (2**64 - 1)
        state ^= state >> 31
    return state >> 1


class Loader:
    """Rows of a map-style data set as (inputs, targets) on a device."""

    def __init__(self, data: Dataset[Any], device: torch.device, seed: int = 0) -> None:
        self.data, self.device, self.seed = data, device, seed
        self.tensors: Any = None
        if type(data) is torch.utils.data.TensorDataset:  # a subclass may change its rows
            self.tensors = data.tensors

    @property
    def in_memory(self) -> bool:
        """Whether loading is only a copy in memory: then a thread costs more time than it saves."""
        return self.tensors is not None and self.device.type == "cpu"

    def __len__(self) -> int:
        return len(self.data)  # type: ignore[arg-type]

    def take(self, rows: torch.Tensor, epoch: int = 0) -> Pair:
        if self.tensors is not None:
            pair = [part.index_select(0, rows) for part in self.tensors]
        else:
            pair = torch.utils.data.default_collate([self._row(int(row), epoch) for row in rows])
        if len(pair) != 2:
            raise UserError(f"a data set must give pairs of input and target; this one gives {len(pair)} parts")
        return to_device(pair[0], self.device), to_device(pair[1], self.device)

    def targets(self) -> torch.Tensor | None:
        """The targets of all rows, if they are one tensor. Of rows that are not in memory, each is read once."""
        if self.tensors is not None:
            return self.tensors[1]
        parts = [self.take(rows)[1] for rows in torch.arange(len(self)).split(READ)]
        return torch.cat(parts) if isinstance(parts[0], torch.Tensor) else None

    def _row(self, row: int, epoch: int) -> Any:
        """Torch's random numbers, say for augmentation, depend on row and epoch only."""
        with own_generator(torch.Generator().manual_seed(key(self.seed, epoch, row))):
            return self.data[row]


def rows_in(value: Any) -> int:
    """The number of rows in a batch, which may be a tensor, or a list or dict of such."""
    while not isinstance(value, torch.Tensor):
        value = next(iter(value.values() if isinstance(value, dict) else value))
    return len(value)


def find_device(name: str, rank: int = 0) -> torch.device:
    """ "auto": CUDA if there is one, else Apple's MPS, else the CPU. Several workers spread over several GPUs."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    kind, _, number = name.partition(":")
    if kind == "cuda":
        if not torch.cuda.is_available():
            raise UserError(f"device {name!r} was asked for, but torch finds no GPU; use --device auto or cpu")
        return torch.device("cuda", int(number) if number else rank % torch.cuda.device_count())
    if kind == "mps" and not torch.backends.mps.is_available():
        raise UserError(f"device {name!r} was asked for, but this machine has no Apple GPU; use --device auto or cpu")
    return torch.device(name)


def to_device(value: Any, device: torch.device) -> Any:
    if isinstance(value, torch.Tensor):
        return aligned(value.to(device, non_blocking=True))
    if isinstance(value, (list, tuple)):
        return [to_device(part, device) for part in value]
    if isinstance(value, dict):
        return {name: to_device(part, device) for name, part in value.items()}
    return value


def aligned(value: torch.Tensor) -> torch.Tensor:
    """A copy at an aligned address, if need be: the last bits of some matrix products depend on the address."""
    return value.clone() if value.device.type == "cpu" and value.data_ptr() % ALIGNMENT else value


def align(model: torch.nn.Module) -> None:
    """Align all weights: those made by numpy, say, may not be; in another process they would be."""
    for value in (*model.parameters(), *model.buffers()):
        value.data = aligned(value.data)


def take_all(loader: Loader, parts: Sequence[torch.Tensor], epoch: int = 0) -> list[Pair | None]:
    """The data of each part; None for a part without rows."""
    return [loader.take(rows, epoch) if len(rows) else None for rows in parts]


def prefetch(items: Iterable[Item]) -> Iterator[Item]:
    """The same items, made ahead of time in a thread. An error in it is raised here."""
    made: queue.Queue[tuple[str, Any]] = queue.Queue(AHEAD)
    cancelled = threading.Event()
    threads = torch.get_num_threads()  # as in the calling thread: a data set may compute, too

    def put(kind: str, item: Any) -> bool:
        while not cancelled.is_set():
            try:
                made.put((kind, item), timeout=WAIT)
                return True
            except queue.Full:
                continue
        return False

    def work() -> None:
        use_threads(threads)
        try:
            for item in items:
                if not put("item", item):
                    return
            put("end", None)
        except BaseException as error:
            put("error", error)

    threading.Thread(target=work, name="shoal-prefetch", daemon=True).start()
    try:
        while True:
            kind, item = made.get()
            if kind == "error":
                raise item
            if kind == "end":
                return
            yield item
    finally:
        cancelled.set()
