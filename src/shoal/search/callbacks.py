"""What users may watch of a search, and end. The command line and the tests use the same door."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.errors import UserError
from shoal.executors.interface import Status
from shoal.search.candidates import Candidate
from shoal.search.workplace import Workplace

if TYPE_CHECKING:
    from shoal.search.result import SearchResult


@dataclass(frozen=True)
class Started:
    """The table is encoded, and training begins."""

    rows: int  # distinct ones
    folds: int
    metric: str
    budget: float | None  # seconds
    workplace: Workplace | None = None  # the workers, where others do the training


@dataclass(frozen=True)
class Progress:
    """How far a search is, several times a second."""

    stage: str
    share: float  # of the whole search, 0 to 1
    candidates: int  # with a result
    best: Candidate | None
    workers: Status | None = None  # of the workers, where others do the training


@dataclass(frozen=True, eq=False)
class RungEnded:
    """Candidates were trained as far as they had to be compared."""

    stage: str
    trained: list[Candidate]
    kept: list[Candidate]  # those that go on, or are trained to the end


class Callback:
    """Watches a search: `ShoalClassifier(callbacks=[MyCallback()])`. Override what you need.

    `progress` and `rung_ended` may return True: the search ends, and the best so far is kept. `progress` is called in
    the thread that trains, several times a second, so it should be quick. One that also has a method `note(text)` is
    told what would be a warning otherwise: rows that depend on each other, and what the search leaves out for want of
    time.
    """

    def started(self, started: Started) -> None:
        """The table is encoded, and training begins."""

    def progress(self, progress: Progress) -> bool | None:
        """Several times a second, while networks train."""

    def rung_ended(self, rung: RungEnded) -> bool | None:
        """Candidates were trained, assessed and compared."""

    def finished(self, result: SearchResult) -> None:
        """Ensemble and honest score are there."""


EVENTS = ("started", "progress", "rung_ended", "note", "finished")


class Callbacks:
    """Several callbacks as one. Any object that has some of the methods will do."""

    def __init__(self, callbacks: Any = None) -> None:
        given = [] if callbacks is None else callbacks
        if not isinstance(given, Sequence) or isinstance(given, str):
            raise UserError(f"callbacks must be a list of callbacks, or None; got {callbacks!r}: put it into a list")
        for callback in given:
            if isinstance(callback, type):
                raise UserError(f"a callback must be an object, such as {callback.__name__}(); got {callback!r}")
            if not any(hasattr(callback, event) for event in EVENTS):
                raise UserError(f"a callback has at least one of the methods {', '.join(EVENTS)}; got {callback!r}")
        self.callbacks = list(given)

    def tell(self, event: str, content: Any) -> bool:
        """Call all who listen; whether one of them wants the search to end."""
        try:
            answers = [getattr(callback, event)(content) for callback in self.callbacks if hasattr(callback, event)]
        except SystemExit as error:  # it would end Python as if all had gone well
            raise UserError(
                f"a callback called sys.exit({'' if error.code is None else repr(error.code)}) in {event}; to end the "
                "search early, return True"
            ) from error
        return any(isinstance(answer, (bool, np.bool_)) and bool(answer) for answer in answers)

    def hear(self, event: str) -> bool:
        """Whether anybody listens."""
        return any(hasattr(callback, event) for callback in self.callbacks)
