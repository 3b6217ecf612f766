"""Access to a population: one thread that trains it, or any number of threads that read it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import numpy as np

from shoal.errors import UserError

P = ParamSpec("P")
R = TypeVar("R")


class Turns:
    """Of one population. Other threads are refused while one trains it, and everybody while an engine runs.

    Between two steps of `iter_fit` the thread that trains may do anything. A copy begins with nobody at work.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._trainer: int | None = None  # the thread that trains, from the first step of a fit to its last
        self._fits = 0  # of that thread; one may be inside of another
        self._running = False  # an engine runs
        self._readers = 0
        self._stopped: list[np.ndarray] = []  # members to be stopped when the engine returns

    def __reduce__(self) -> tuple[type[Turns], tuple[()]]:
        return Turns, ()

    @contextmanager
    def training(self) -> Iterator[None]:
        """A whole fit."""
        with self._lock:
            self._refuse_others("train")
            self._refuse_running("train")
            self._trainer = threading.get_ident()
            self._fits += 1
        try:
            yield
        finally:
            with self._lock:
                self._fits -= 1
                self._trainer = self._trainer if self._fits else None

    @contextmanager
    def running(self, stop: Callable[[np.ndarray], None]) -> Iterator[list[np.ndarray]]:
        """One run of an engine. The list has the members that are to be stopped; `stop` does so afterwards."""
        with self._lock:
            self._refuse_running("train")
            self._running = True
        try:
            yield self._stopped
        finally:
            with self._lock:
                self._running = False
                for members in self._stopped:
                    stop(members)
                self._stopped.clear()

    @contextmanager
    def reading(self, what: str) -> Iterator[None]:
        """A call that needs weights which nobody changes meanwhile."""
        with self._lock:
            self._refuse_others(what)
            self._refuse_running(what)
            self._readers += 1
        try:
            yield
        finally:
            with self._lock:
                self._readers -= 1

    def stop(self, members: np.ndarray, stop: Callable[[np.ndarray], None]) -> None:
        """Stop members now, or at the end of an epoch if an engine runs."""
        with self._lock:
            if self._running:
                self._stopped.append(members)
            else:
                stop(members)

    def _refuse_others(self, what: str) -> None:
        if self._trainer not in (None, threading.get_ident()):
            raise UserError(
                f"cannot {what}: another thread trains this population. Wait until its fit ends (an iter_fit: until it "
                "is exhausted or closed), or give each thread a copy of the population, e.g. with select"
            )
        if what in ("train", "set weights") and self._readers:
            raise UserError(
                f"cannot {what}: another thread predicts with this population or copies it; wait until it ends"
            )

    def _refuse_running(self, what: str) -> None:
        if self._running:
            raise UserError(
                f"cannot {what} while this population is being trained, as in a callback: call it after fit, or "
                "between two steps of iter_fit"
            )


class Shared(Protocol):
    turns: Turns


S = TypeVar("S", bound=Shared)


def needs_rest(what: str) -> Callable[[Callable[Concatenate[S, P], R]], Callable[Concatenate[S, P], R]]:
    """For methods that need weights which nobody changes meanwhile; `what` they do, for the error."""

    def decorate(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
        @wraps(method)
        def guarded(self: S, *args: P.args, **kwargs: P.kwargs) -> Any:
            with self.turns.reading(what):
                return method(self, *args, **kwargs)

        return guarded

    return decorate
