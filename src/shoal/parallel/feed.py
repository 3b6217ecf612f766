"""From row numbers to tensors, ahead of time: the next rows are fetched in a thread while the present ones are used."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch.utils.data import Dataset, TensorDataset, default_collate

from shoal.parallel.randomness import OwnGenerator
from shoal.parallel.threads import use_threads

AHEAD = 2  # batches fetched beforehand
ALIGNMENT = 64  # bytes; torch allocates so
WAIT = 0.2  # seconds between two looks at whether anybody still wants what was fetched
Thing = TypeVar("Thing")
Pair = tuple[Any, Any]


def epoch_order(rows: int, seed: int, epoch: int, shuffle: bool) -> torch.Tensor:
    """Numbers of all rows in the order of an epoch: the same on every worker, and for any number of them."""
    if not shuffle:
        return torch.arange(rows)
    return torch.randperm(rows, generator=torch.Generator().manual_seed(key(seed, epoch, 0)))


def key(*numbers: int) -> int:
    """A seed for random numbers from several whole numbers, well mixed.

    >>> key(0, 1, 2) == key(0, 1, 2), key(0, 1, 2) == key(0, 2, 1)
    (True, False)
    """
    state = 0x9E3779B97F4A7C15
    for number in numbers:
        state = (state ^ (number & (2**64 - 1))) * 0xBF58476D1CE4E5B9 & (2**64 - 1)
        state = (state ^ (state >> 30)) * 0x94D049BB133111EB & (2**64 - 1)
        state ^= state >> 31
    return state >> 1


class Feed:
    """Rows of a map-style data set as (inputs, targets) on a device."""

    def __init__(self, data: Dataset[Any], device: torch.device, seed: int = 0) -> None:
        self.data, self.device, self.seed = data, device, seed
        self.tensors = data.tensors if type(data) is TensorDataset else None  # a subclass may do more than that

    @property
    def at_hand(self) -> bool:
        """Whether rows are only copied within memory: a thread for that takes more from training than it gives."""
        return self.tensors is not None and self.device.type == "cpu"

    def __len__(self) -> int:
        return len(self.data)  # type: ignore[arg-type]

    def take(self, rows: torch.Tensor, epoch: int = 0) -> Pair:
        if self.tensors is not None:
            pair = [part.index_select(0, rows) for part in self.tensors]
        else:
            pair = default_collate([self._row(int(row), epoch) for row in rows])
        if len(pair) != 2:
            raise ValueError(f"a data set must give pairs of input and target; this one gives {len(pair)} parts")
        return to_device(pair[0], self.device), to_device(pair[1], self.device)

    def _row(self, row: int, epoch: int) -> Any:
        """Random numbers of torch drawn on the way, say for augmentation, belong to the row and the epoch."""
        with OwnGenerator(torch.Generator().manual_seed(key(self.seed, epoch, row))):
            return self.data[row]


def rows_in(value: Any) -> int:
    """Rows of a batch, whatever it is made of."""
    while not isinstance(value, torch.Tensor):
        value = next(iter(value.values() if isinstance(value, dict) else value))
    return len(value)


def to_device(value: Any, device: torch.device) -> Any:
    if isinstance(value, torch.Tensor):
        return aligned(value.to(device, non_blocking=True))
    if isinstance(value, (list, tuple)):
        return [to_device(part, device) for part in value]
    if isinstance(value, dict):
        return {name: to_device(part, device) for name, part in value.items()}
    return value


def aligned(value: torch.Tensor) -> torch.Tensor:
    """The same numbers where a new tensor would have them: some matrix products depend on that in their last bit."""
    return value.clone() if value.device.type == "cpu" and value.data_ptr() % ALIGNMENT else value


def align(model: torch.nn.Module) -> None:
    """Weights made elsewhere, say by numpy, lie as they would after a journey to another process."""
    for value in (*model.parameters(), *model.buffers()):
        value.data = aligned(value.data)


def take_all(feed: Feed, parts: Sequence[torch.Tensor], epoch: int = 0) -> list[Pair | None]:
    """The rows of each part; None for a part without rows."""
    return [feed.take(rows, epoch) if len(rows) else None for rows in parts]


def ahead(things: Iterable[Thing]) -> Iterator[Thing]:
    """The same things, made in a thread a few steps ahead. An error there is raised here."""
    made: queue.Queue[tuple[str, Any]] = queue.Queue(AHEAD)
    unwanted = threading.Event()
    threads = torch.get_num_threads()  # of whoever wants them: a data set may compute, too

    def put(kind: str, thing: Any) -> bool:
        while not unwanted.is_set():
            try:
                made.put((kind, thing), timeout=WAIT)
                return True
            except queue.Full:
                continue
        return False

    def work() -> None:
        use_threads(threads)
        try:
            for thing in things:
                if not put("thing", thing):
                    return
            put("end", None)
        except BaseException as error:
            put("error", error)

    threading.Thread(target=work, name="shoal-feed", daemon=True).start()
    try:
        while True:
            kind, thing = made.get()
            if kind == "error":
                raise thing
            if kind == "end":
                return
            yield thing
    finally:
        unwanted.set()
