"""Loads rows of a data set as tensors, in a reproducible order, and the next ones ahead of time in a thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import IntEnum
from typing import TYPE_CHECKING, Any, TypeVar

from shoal.errors import UserError
from shoal.parallel.exact.randomness import own_generator
from shoal.parallel.exact.threads import use_threads
from shoal.parallel.lazy import torch

if TYPE_CHECKING:
    from torch.utils.data import Dataset

BATCHES_AHEAD = 2
ROWS_READ_FOR_TARGETS = 1024  # at a time
ALIGNMENT = 64  # bytes; that of new tensors
Item = TypeVar("Item")


class RandomKey(IntEnum):
    """Keys of random numbers beside those of epochs, which count from zero."""

    ROWS_OF_WORKERS = -1
    FOLDS = -2
    VALIDATION_ROWS = -3
    CLASSES_OF_WORKERS = -4
    FIRST_WEIGHTS = -5


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
        parts = [self.take(rows)[1] for rows in torch.arange(len(self)).split(ROWS_READ_FOR_TARGETS)]
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
            raise UserError(f"torch finds no GPU for device {name!r}. Use --device auto or cpu")
        return torch.device("cuda", int(number) if number else rank % torch.cuda.device_count())
    if kind == "mps" and not torch.backends.mps.is_available():
        raise UserError(f"this machine has no Apple GPU for device {name!r}. Use --device auto or cpu")
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
    source: Iterator[Any] = iter(items)
    end: Any = object()
    threads = torch.get_num_threads()  # as in the calling thread: a data set may compute, too
    pool = ThreadPoolExecutor(1, "shoal-prefetch", use_threads, (threads,))
    try:
        made = deque(pool.submit(next, source, end) for _ in range(BATCHES_AHEAD))
        while (item := made.popleft().result()) is not end:
            made.append(pool.submit(next, source, end))
            yield item
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
