"""Events that a search passes to callbacks (see `shoal.callbacks`), and `SearchResult` when it has finished.

A callback with a method `note(text)` also receives what would be a warning otherwise: rows that depend on each other,
what the search reduces to save time, and problems with workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shoal.executors.interface import Status
from shoal.runs.journal import Journal
from shoal.search.options import SearchOptions
from shoal.search.remote.workplace import Workplace
from shoal.search.rounds.candidates import Candidate


@dataclass(frozen=True)
class Started:
    """`started`: the table is encoded, and training begins."""

    rows: int  # distinct ones
    folds: int
    metric: str
    budget: float | None  # seconds
    workplace: Workplace | None = None  # the workers, unless this process trains
    options: SearchOptions | None = None
    journal: Journal | None = None  # of the run, where there is one: trackers note there which run of theirs it is


@dataclass(frozen=True)
class Progress:
    """`progress`: how far the search is."""

    stage: str
    share: float  # of the whole search, 0 to 1
    recipes: int  # with a result
    best: Candidate | None
    workers: Status | None = None  # unless this process trains
    trained: Sequence[Candidate] = ()  # those assessed just now, after they were trained


@dataclass(frozen=True, eq=False)
class RungEnded:
    """`step_ended`: candidates were trained to a rung and compared."""

    stage: str
    trained: list[Candidate]
    kept: list[Candidate]  # those that continue, or are finished
