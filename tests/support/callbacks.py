"""Callbacks of searches for tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shoal.search.callbacks import Callback


def watching(watch: Callable[[Any], bool | None]) -> Callback:
    """A callback that is told of progress only."""

    class Watching(Callback):
        def progress(self, progress: Any) -> bool | None:
            return watch(progress)

    return Watching()
