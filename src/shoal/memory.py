"""An estimate of the memory that training takes, and buffers in a temporary file where it does not fit."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass

import numpy as np

from shoal.engines.program import Program, State, empty_state
from shoal.machine import size_text


@dataclass(frozen=True)
class Memory:
    """Bytes of each part. `on_disk`: parameters and optimiser state are in a temporary file, paged in as needed."""

    parameters: int
    slots: int
    data: int
    workspace: int
    limit: int
    on_disk: bool

    @staticmethod
    def of(program: Program, state: State, X: np.ndarray, workspace: int, limit: int) -> Memory:
        on_disk = isinstance(_base(state.parameters), np.memmap)
        return Memory(state.parameters.nbytes, state.slots.nbytes, X.nbytes, workspace, limit, on_disk)

    @property
    def total(self) -> int:
        return self.data + self.workspace + (0 if self.on_disk else self.parameters + self.slots)

    def __str__(self) -> str:
        kept = f"parameters {size_text(self.parameters)}, optimiser state {size_text(self.slots)}"
        where = f"{kept} in a temporary file" if self.on_disk else kept
        rest = f"data {size_text(self.data)}, workspace {size_text(self.workspace)}"
        return f"estimated peak memory {size_text(self.total)} of {size_text(self.limit)} ({where}, {rest})"


def new_state(program: Program, limit: int) -> State:
    """Zeroed buffers: in memory if they fit into the limit, else in a temporary file that is deleted with them."""
    state_bytes = 4 * (program.layout.total + program.n_slot_floats)
    if state_bytes <= limit:
        return empty_state(program)
    folder = tempfile.gettempdir()
    free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize if hasattr(os, "statvfs") else state_bytes
    if free < state_bytes:
        raise MemoryError(
            f"the population needs {size_text(state_bytes)}, but the memory limit is {size_text(limit)} and {folder} "
            f"has only {size_text(free)} free; use fewer members, or set TMPDIR to a larger disk"
        )
    return empty_state(program, zeros=_file_zeros)


def _file_zeros(count: int) -> np.ndarray:
    if count == 0:
        return np.zeros(0, np.float32)
    with tempfile.TemporaryFile(prefix="shoal-") as file:
        return np.memmap(file, dtype=np.float32, mode="w+", shape=(count,))


def _base(array: np.ndarray) -> object:
    while isinstance(array, np.ndarray) and not isinstance(array, np.memmap) and isinstance(array.base, np.ndarray):
        array = array.base
    return array
