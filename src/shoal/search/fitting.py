"""What goes into a fit beside the estimator's parameters, and what it leaves behind for reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from shoal.search.loop import Search, Watcher
from shoal.search.result import Outcome
from shoal.search.timing import Clock, Effort
from shoal.tables.table import Table


@dataclass(eq=False)
class Hooks:
    """What the command line needs beside scikit-learn's interface."""

    watcher: Watcher | None = None  # told of progress several times a second; may end the search
    keep_on_interrupt: bool = False  # Ctrl-C ends the search and keeps the best so far, instead of raising
    repeat: list[dict[str, Any]] | None = None  # the log of an earlier run, to be done again
    bootstraps: int | None = None  # of its honest score
    repeats: int | None = None  # how often rows are dealt into folds; None: by rows and budget
    clock: Clock | None = None  # that began with the command
    report: bool = False  # files will be written after the fit, within the budget
    effort: Effort | None = None  # of the earlier run
    say: Callable[[str], None] | None = None  # a line for the user


@dataclass(eq=False)
class Run:
    """What happened in a fit, for reports. Not part of saved models or pickles."""

    search: Search
    outcome: Outcome
    cv_name: str
    space: dict[str, str]
    phases: dict[str, float]  # seconds
    seed: int
    repeats: int
    table: Table  # as it was given
    target: str  # its name
    effort: Effort = field(default_factory=Effort)
