"""What the clock has decided: written down as it happens, and decided alike when a search that was ended goes on.

Everything else in a search follows from its data and settings. So a search goes on by doing the same again, with what
is in the journal in place of training, and with these decisions in place of the clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shoal.runs.journal import Journal

DECIDED, ELAPSED = "decided", "elapsed"  # events of the journal


class Decisions:
    """Decisions in their order: first those of earlier attempts, then new ones."""

    def __init__(self, journal: Journal | None = None) -> None:
        self._journal = journal
        events = [] if journal is None else journal.events()
        self._earlier = [value for name, value in events if name == DECIDED][::-1]

    def earlier(self, name: str) -> Any:
        """What was decided at this point by an earlier attempt; None: nothing."""
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
