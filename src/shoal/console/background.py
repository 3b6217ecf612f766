"""Long work in threads of their own, so that the main thread is free for Ctrl-C and the screen.

Signals reach the main thread only. While a population trains there, its own handler takes the first Ctrl-C; with the
work elsewhere, one handler (`shoal.console.interrupts`) serves all phases of a run.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

SECONDS_TO_END = 1.0  # after an interrupt; the engines look several times a second whether to end


class BackgroundThread(threading.Thread):
    """Calls a function in a thread of its own; `result` waits for what it returns.

    Never `join` it: in Python before 3.13, a thread whose `join` is interrupted counts as ended while it works. A
    command that ends looks for such threads, since Python aborts if it shuts down while the kernel trains.
    """

    def __init__(self, work: Callable[[], Any], name: str = "shoal-search") -> None:
        super().__init__(name=name, daemon=True)
        self._work, self._result, self._error = work, None, None  # type: Callable[[], Any], Any, BaseException | None
        self.ended = threading.Event()
        self.start()

    def run(self) -> None:
        try:
            self._result = self._work()
        except BaseException as error:  # handed over to the thread that waits
            self._error = error
        finally:
            self.ended.set()

    def result(self, meanwhile: Callable[[], None], every: float = 0.1) -> Any:
        """What the work returns, or its error. `meanwhile` is called now and then."""
        wait_for([self], meanwhile, every=every)
        if self._error is not None:
            raise self._error
        return self._result


def nothing() -> None:
    """Nothing."""


def wait_for(
    threads: Sequence[BackgroundThread],
    meanwhile: Callable[[], None] = nothing,
    interrupted: Callable[[], None] = nothing,
    every: float = 0.1,
) -> None:
    """Wait until all have ended. After KeyboardInterrupt `interrupted` is called, and they have a moment to end."""
    try:
        for thread in threads:
            while not thread.ended.wait(every):
                meanwhile()
    except KeyboardInterrupt:
        interrupted()
        until = time.monotonic() + SECONDS_TO_END
        for thread in threads:
            thread.ended.wait(max(0.0, until - time.monotonic()))
        raise
