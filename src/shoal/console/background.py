"""Long work in a thread of its own, so that the main thread is free for Ctrl-C and the screen.

Signals reach the main thread only. While a population trains there, its own handler takes the first Ctrl-C; with the
work elsewhere, one handler (`shoal.console.interrupts`) serves all phases of a run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

SECONDS_TO_END = 10.0  # after an interrupt; the engines look several times a second whether to end


class BackgroundThread(threading.Thread):
    """Calls a function in a thread of its own; `result` waits for what it returns."""

    was_interrupted = False  # any of them, in this process

    def __init__(self, work: Callable[[], Any]) -> None:
        super().__init__(name="shoal-search", daemon=True)
        self._work, self._result, self._error = work, None, None  # type: Callable[[], Any], Any, BaseException | None
        self.start()

    def run(self) -> None:
        try:
            self._result = self._work()
        except BaseException as error:  # handed over to the thread that waits
            self._error = error

    def result(self, meanwhile: Callable[[], None], every: float = 0.1) -> Any:
        """What the work returns, or its error. `meanwhile` is called now and then.

        After KeyboardInterrupt it waits a moment for the end: Python must not shut down while the kernel trains.
        """
        try:
            while self.is_alive():
                self.join(every)
                meanwhile()
        except KeyboardInterrupt:
            BackgroundThread.was_interrupted = True
            self.join(SECONDS_TO_END)
            raise
        if self._error is not None:
            raise self._error
        return self._result
