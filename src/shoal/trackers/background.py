"""A thread that writes to a tracker, so that a slow server does not hold up training, and one that is gone no more."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable

PATIENCE = 60.0  # seconds that the end of a run waits while the tracker finishes nothing
MOST_WAITING = 1000  # pieces of work; while so many wait, others are left out


class Background:
    """Does what it is given, in order. After the first failure it does nothing more."""

    def __init__(self, name: str) -> None:
        self.problem = ""  # what went wrong, in words
        self._waiting: queue.Queue[Callable[[], None] | None] = queue.Queue()
        self._advanced = time.monotonic()
        self._thread = threading.Thread(target=self._run, name=f"shoal-{name}", daemon=True)
        self._thread.start()

    def put(self, work: Callable[[], None]) -> None:
        if not self.problem and self._waiting.qsize() >= MOST_WAITING:
            self.problem = "it is too slow"
        if not self.problem:
            self._waiting.put(work)

    def end(self, patience: float | None = None) -> None:
        """Wait until all is done, or nothing has been for so long."""
        patience = PATIENCE if patience is None else patience
        self._advanced = time.monotonic()
        if not self.problem:
            self._waiting.put(None)
            while self._thread.is_alive() and time.monotonic() - self._advanced < patience:
                self._thread.join(0.05)
            if self._thread.is_alive():
                self.problem = self.problem or f"it did not answer for {patience:.0f} s"

    def _run(self) -> None:
        while not self.problem and (work := self._waiting.get()) is not None:
            try:
                work()
            except Exception as error:  # whatever a server, a disk or a library may say
                self.problem = f"{type(error).__name__}: {error}".splitlines()[0][:300]
            self._advanced = time.monotonic()
