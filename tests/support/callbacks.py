"""Callbacks of searches for tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shoal.callbacks import Callback


def watching(watch: Callable[[Any], bool | None]) -> Callback:
    """A callback that is told of progress only."""

    class Watching(Callback):
        def progress(self, progress: Any) -> bool | None:
            return watch(progress)

    return Watching()


class Crash(Exception):
    """In the place of kill -9: nothing after it is done."""


class CrashAfter:
    """Ends a search after so many rungs."""

    def __init__(self, rungs: int) -> None:
        self.left = rungs

    def step_ended(self, rung: object) -> None:
        self.left -= 1
        if not self.left:
            raise Crash


class EndAfter:
    """Asks a search to end after so many rungs."""

    def __init__(self, rungs: int) -> None:
        self.left = rungs

    def step_ended(self, rung: object) -> bool:
        self.left -= 1
        return self.left <= 0
