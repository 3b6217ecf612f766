"""The clock of a search, and what it has decided."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from shoal.runs.journal import Journal

SECONDS_AFTER_INTERRUPT = 1.5  # from Ctrl-C to the end
LEAST_WATCHED, MOST_BUSY = 0.1, 4.0  # seconds of work that show how busy a machine is; largest factor
DECIDED, ELAPSED = "decided", "elapsed"  # events of the journal


@dataclass
class Clock:
    """Seconds since the start, and when training has to end."""

    budget: float | None = None
    start: float = field(default_factory=time.monotonic)
    reserve: float = 0.0  # for what comes after training
    now: Callable[[], float] = time.monotonic
    computed: float = field(default_factory=time.process_time)  # seconds of this process, at the start
    advised: float = 0.0  # the budget that the user was told would be enough
    hurried: bool = False
    busy: float = 1.0  # how many times longer work takes than it computes, because others use the machine

    def elapsed(self) -> float:
        return self.now() - self.start

    def left(self) -> float:
        """Seconds of searching left."""
        return self.time_left() - self.reserve

    def time_left(self) -> float:
        """Seconds left in all."""
        return float("inf") if self.budget is None else self.budget - self.elapsed()

    def watch(self, seconds: float, computed: float) -> None:
        """Learn how busy the machine is: one thread has computed so long in so many seconds.

        Short trials do not show it: they end before other processes get their turn.
        """
        if self.now is time.monotonic and seconds > LEAST_WATCHED:
            self.busy = max(self.busy, min(seconds / max(computed, 1e-9), MOST_BUSY))

    def timed(self, work: Callable[[], object]) -> float:
        """Seconds that some work of this thread takes, or would take if it were longer."""
        begun, computed = self.now(), time.thread_time()
        work()
        seconds = self.now() - begun
        return max(seconds, self.busy * (time.thread_time() - computed)) if self.busy > 1 else seconds

    def hurry(self, seconds: float = SECONDS_AFTER_INTERRUPT) -> None:
        """The user wants the search to end: that is a budget."""
        self.hurried = True
        if seconds < self.time_left():
            self.budget = self.elapsed() + seconds
            self.reserve = seconds


class Decisions:
    """What the clock has decided, in order: first in earlier attempts, then new decisions.

    Everything else in a search follows from its data and options. So a search resumes by doing the same again, with the
    results of the journal in place of training, and with these decisions in place of the clock.
    """

    def __init__(self, journal: Journal | None = None) -> None:
        self._journal = journal
        events = [] if journal is None else journal.events()
        self._earlier = [value for name, value in events if name == DECIDED][::-1]

    def earlier(self, name: str) -> Any:
        """What an earlier attempt has decided at this point; None: nothing."""
        if self._earlier and self._earlier[-1][0] == name:
            return self._earlier.pop()[1]
        return None

    def once(self, name: str, decide: Callable[[], Any]) -> Any:
        """What an earlier attempt has decided at this point, else a new decision."""
        earlier = self.earlier(name)
        return self.note(name, decide()) if earlier is None else earlier

    def note(self, name: str, value: Any) -> Any:
        """A new decision; the value."""
        self._earlier = []
        if self._journal is not None:
            self._journal.note(DECIDED, [name, value])
        return value


def seconds_before(journal: Journal | None) -> float:
    """Seconds that earlier attempts took."""
    events = [] if journal is None else journal.events()
    return max((float(value) for name, value in events if name == ELAPSED), default=0.0)
