"""Out-of-fold predictions of every candidate, on the rows kept for honest estimates.

They stay in memory while they are few. Beyond a limit all of them are in one file without a name, which goes away with
the process however that ends. It is read and written, not mapped into memory: mapped pages would count as memory of
the process, and a full disk would kill it without a word.
"""

from __future__ import annotations

import errno
import tempfile
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO

import numpy as np

from shoal.errors import UserError
from shoal.machine import size_text
from shoal.metrics.metric import Metric
from shoal.metrics.tasks import Task

IN_MEMORY = 64 << 20  # bytes


class Samples:
    """A place for the sample of each candidate, by its number; a new one is written over the old one.

    rows    that are sampled
    folder  of the file; None: that of temporary files
    limit   bytes that may stay in memory
    """

    def __init__(self, rows: np.ndarray, n_outputs: int, folder: Path | None = None, limit: int | None = None) -> None:
        self.rows = rows
        self.shape = (len(rows), n_outputs)
        self.folder, self.limit = folder, IN_MEMORY if limit is None else limit
        self._size = 4 * len(rows) * n_outputs  # bytes of a sample
        self._kept: dict[int, np.ndarray] = {}  # as long as they are in memory
        self._file: IO[bytes] | None = None

    def put(self, number: int, sample: np.ndarray) -> None:
        """Keep a candidate's predictions (n_rows, n_outputs) of the sampled rows."""
        sample = np.ascontiguousarray(sample, dtype=np.float32)
        if self._file is None:
            self._kept[number] = sample if sample.base is None else sample.copy()
            if len(self._kept) * self._size > self.limit:
                self._move_to_file()
            return
        self._write(self._file, number, sample)

    def read(self, numbers: Sequence[int] | np.ndarray) -> np.ndarray:
        """(len(numbers), n_rows, n_outputs) of candidates that have a sample."""
        if self._file is None:
            return np.array([self._kept[number] for number in np.asarray(numbers).tolist()]).reshape(-1, *self.shape)
        found = np.empty((len(numbers), *self.shape), dtype=np.float32)
        wanted = np.asarray(numbers, dtype=np.int64)
        starts = [0, *(np.flatnonzero(np.diff(wanted) != 1) + 1).tolist(), len(wanted)]
        for start, end in pairwise(starts):  # neighbours are read at once
            if start < end:
                self._read_into(self._file, int(wanted[start]), found[start:end])
        return found

    @property
    def in_memory(self) -> bool:
        return self._file is None

    def _move_to_file(self) -> None:
        folder = None if self.folder is None else str(self.folder)
        file = tempfile.TemporaryFile(prefix="shoal-samples-", dir=folder)  # noqa: SIM115, open as long as it is needed
        weakref.finalize(self, file.close)
        for number, sample in self._kept.items():
            self._write(file, number, sample)
        self._file = file
        self._kept = {}

    def _write(self, file: IO[bytes], number: int, sample: np.ndarray) -> None:
        try:
            file.seek(number * self._size)
            file.write(sample.data)
            file.flush()
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            place = self.folder or tempfile.gettempdir()
            raise UserError(
                f"the disk of {place} is full: predictions of {number + 1:,} recipes take "
                f"{size_text((number + 1) * self._size)} there; make room"
                + ("" if self.folder else ", or set TMPDIR to a folder on a larger disk")
            ) from error

    def _read_into(self, file: IO[bytes], number: int, out: np.ndarray) -> None:
        file.seek(number * self._size)
        view = out.data.cast("B")
        got = file.readinto(view)  # type: ignore[attr-defined]
        if got != len(view):
            raise OSError(f"the file of samples ends too early: {len(view)} bytes wanted, {got} read")


class Sampled:
    """Predictions of some candidates on some of the sampled rows, read when they are asked for.

    `sampled[3:8]`, or with any array of places, is an array (candidates, rows, outputs), as that of an array of all
    would be; `sampled[3]` one of (rows, outputs).
    """

    def __init__(self, samples: Samples, numbers: Sequence[int], places: np.ndarray) -> None:
        self.samples, self.numbers, self.places = samples, np.asarray(numbers, dtype=np.int64), places
        self.shape = (len(self.numbers), len(places), samples.shape[1])
        self._whole = len(places) == samples.shape[0] and bool((places == np.arange(len(places))).all())

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, key: int | slice | np.ndarray) -> np.ndarray:
        chosen = self.numbers[key]
        found = self.samples.read(np.atleast_1d(chosen))
        if not self._whole:
            found = found[:, self.places]
        return found[0] if np.ndim(chosen) == 0 else found


@dataclass(frozen=True, eq=False)
class Evidence:
    """Out-of-fold predictions of every candidate on the same rows."""

    task: Task
    metric: Metric
    prediction: np.ndarray | Sampled  # (n_candidates, n, n_outputs); those that are not in memory are read in blocks
    y: np.ndarray
    weight: np.ndarray  # (n,) in scores
    loss_weight: np.ndarray  # (n,) in losses
    scale: np.ndarray | float  # of losses
    group: np.ndarray | None = None  # (n,) from 0; rows of one group are drawn together

    def counts(self, generator: np.random.Generator) -> np.ndarray:
        """How often each row is in a bootstrap sample."""
        if self.group is None:
            n = len(self.y)
            return np.bincount(generator.integers(n, size=n), minlength=n)
        groups = int(self.group.max()) + 1
        return np.bincount(generator.integers(groups, size=groups), minlength=groups)[self.group]


def effective_rows(weight: np.ndarray, group: np.ndarray | None = None) -> float:
    """How many rows (or groups) of equal weight would tell as much (Kish, 1965).

    >>> effective_rows(np.array([2.0, 2.0, 2.0])), effective_rows(np.array([4.0, 2.0, 0.0]))
    (3.0, 1.8)
    """
    share = weight / weight.max()
    if group is not None:
        share = np.bincount(np.unique(group, return_inverse=True)[1], share)
    return float(share.sum() ** 2 / (share**2).sum())
