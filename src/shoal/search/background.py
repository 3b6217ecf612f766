"""Long work in a thread of its own, so that the main thread is free for Ctrl-C and the screen.

Signals reach the main thread only. While a population trains there, its own handler takes the first Ctrl-C; with the
work elsewhere, one handler serves all phases of a run: the first Ctrl-C asks it to end, the second one quits at once.
SIGTERM, which `kill`, `timeout` and batch systems send, is the same request.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

LAST_MOMENT = 1.0  # seconds


class Stop:
    """Whether the user has asked to end, and how."""

    requested = ""  # "Ctrl-C" or "SIGTERM"


@contextmanager
def two_step_interrupt(told: Callable[[], None]) -> Iterator[Stop]:
    """While inside: the first signal is noted and `told` is called, the second one raises KeyboardInterrupt."""
    stop = Stop()
    names = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}

    def on_signal(number: int, _frame: FrameType | None) -> None:
        if stop.requested:
            raise KeyboardInterrupt
        stop.requested = names[signal.Signals(number)]
        told()

    before = {number: signal.signal(number, on_signal) for number in names}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run(work: Callable[[], Any], meanwhile: Callable[[], None], every: float = 0.1) -> Any:
    """The result of `work`, done in another thread; the present one calls `meanwhile` now and then.

    After KeyboardInterrupt the work gets a moment to end: whoever it asks has said so. It is not waited for longer.
    """
    results: list[Any] = []
    errors: list[BaseException] = []

    def body() -> None:
        try:
            results.append(work())
        except BaseException as error:  # handed over to the thread that waits
            errors.append(error)

    thread = threading.Thread(target=body, name="shoal-search", daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(every)
            meanwhile()
    except KeyboardInterrupt:
        thread.join(LAST_MOMENT)
        raise
    if errors:
        raise errors[0]
    return results[0]
