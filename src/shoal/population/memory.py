"""An estimate of the memory that training takes, and buffers in a temporary file where it does not fit."""

from __future__ import annotations

import math
import os
import tempfile
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.errors import UserError, WrongType
from shoal.machine import available_memory, size_text
from shoal.population.engines.program import Program, State, empty_state
from shoal.validate import whole

if TYPE_CHECKING:
    from shoal.population.population import Population

EACH_MEMBER = 700  # bytes of a member besides its parameters: the recipe, its place in all arrays, counters


@dataclass(frozen=True)
class Memory:
    """Bytes of each part. `on_disk`: parameters and optimiser state are in a temporary file, paged in as needed."""

    parameters: int
    slots: int
    members: int
    curves: int
    data: int
    workspace: int
    limit: int
    on_disk: bool

    @staticmethod
    def of(population: Population, X: np.ndarray, workspace: int = 0, epochs: int = 0, every: int = 1) -> Memory:
        """Of a fit of `epochs` more epochs with these rows, at most `every` of them in one run of an engine."""
        state = population.state
        on_disk = isinstance(_base(state.parameters), np.memmap)
        curves = curve_bytes(len(population), int(state.epochs.max(initial=0)), epochs, min(epochs, every))
        members = EACH_MEMBER * len(population)
        parts = state.parameters.nbytes, state.slots.nbytes, members, curves, X.nbytes, workspace
        return Memory(*parts, population.memory_limit, on_disk)

    def with_given(self, X: Any, features: np.ndarray) -> Memory:
        """With the rows as the caller has them, if these had to be converted: then both are in memory."""
        given = int(getattr(X, "nbytes", 0))
        same = not isinstance(X, np.ndarray) or np.may_share_memory(X, features)
        return replace(self, data=self.data + (0 if same else given))

    @property
    def total(self) -> int:
        return (
            self.members
            + self.curves
            + self.data
            + self.workspace
            + (0 if self.on_disk else self.parameters + self.slots)
        )

    def __str__(self) -> str:
        kept = f"parameters {size_text(self.parameters)}, optimiser state {size_text(self.slots)}"
        where = f"{kept} in a temporary file" if self.on_disk else kept
        rest = f"training curves {size_text(self.curves)}, members {size_text(self.members)}, "
        rest += f"data {size_text(self.data)}, workspace {size_text(self.workspace)}"
        return f"estimated peak memory {size_text(self.total)} of {size_text(self.limit)} ({where}, {rest})"


def curve_bytes(members: int, done: int, epochs: int, run: int) -> int:
    """Training curves at their peak, when a run of an engine is recorded: three each of the history and of the run.

    Besides, there are the numbers of the run's epochs, and one curve of the history as it was before.
    """
    return 8 * members * (3 * (done + epochs) + (3 + 1) * run + (done + epochs - run if epochs else 0))


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


def check_limit(limit: int | None) -> int:
    """Bytes that a population may take; None: what is free now."""
    return available_memory() if limit is None else whole("memory_limit", limit, 1, what="a whole number of bytes")


def refuse_too_many(name: str, count: int, each: int) -> None:
    """Before anything is drawn: does what is kept of so many networks, `each` bytes, fit into memory?"""
    free = available_memory()
    if count * each > free:
        raise UserError(
            f"{name}={count:,} would take about {size_text(count * each)}, and {size_text(free)} of memory are free; "
            f"{name} can be at most {free // each:,} here"
        )


def check_out(out: np.ndarray | None, shape: tuple[int, ...], limit: int) -> np.ndarray:
    """The array for predictions: `out` if it has the right shape and type, else a new one if memory allows."""
    if out is None:
        size = 4 * math.prod(shape)
        if size > limit:
            raise MemoryError(
                f"these predictions take {size_text(size)}, but the memory limit is {size_text(limit)}; name fewer "
                "members or rows, or give out=, e.g. a numpy.memmap"
            )
        return np.empty(shape, dtype=np.float32)
    wanted = f"out must be a writable, C-ordered float32 array of shape {shape}"
    if not isinstance(out, np.ndarray):
        raise WrongType(f"{wanted}; got {type(out).__name__}")
    if out.shape != shape or out.dtype != np.float32 or not out.flags.c_contiguous or not out.flags.writeable:
        raise UserError(f"{wanted}; got {out.dtype} {out.shape}")
    return out
