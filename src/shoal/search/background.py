"""Long work in a thread of its own, so that the main thread is free for Ctrl-C and the screen.

Signals reach the main thread only. While a population trains there, its own handler takes the first Ctrl-C; with the
work elsewhere, one handler serves all phases of a run: the first Ctrl-C asks it to end, the second one quits at once.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Stop:
    """Whether the user has asked to end."""

    requested = False


@contextmanager
def two_step_interrupt(told: Callable[[], None]) -> Iterator[Stop]:
    """While inside: the first Ctrl-C sets the flag and calls `told`, the second one raises KeyboardInterrupt."""
    stop = Stop()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        if stop.requested:
            raise KeyboardInterrupt
        stop.requested = True
        told()

    before = signal.signal(signal.SIGINT, on_signal)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


def run(work: Callable[[], Any], meanwhile: Callable[[], None], every: float = 0.1) -> Any:
    """The result of `work`, done in another thread; the present one calls `meanwhile` now and then."""
    results: list[Any] = []
    errors: list[BaseException] = []

    def body() -> None:
        try:
            results.append(work())
        except BaseException as error:  # handed over to the thread that waits
            errors.append(error)

    thread = threading.Thread(target=body, name="shoal-search", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(every)
        meanwhile()
    if errors:
        raise errors[0]
    return results[0]
