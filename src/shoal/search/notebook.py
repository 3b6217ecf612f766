"""A search in a notebook: one output that changes while it runs, and an interrupt that keeps the best so far."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from shoal.console.interrupts import holding_interrupts
from shoal.console.notebook import Output, in_notebook
from shoal.report.notebook.progress import SearchDots, progress_card
from shoal.report.shell.words import metric_name, score
from shoal.search.budget.clock import Clock
from shoal.search.events import Progress, RungEnded, Started
from shoal.search.results.result import SearchResult
from shoal.search.screen import SearchScreen

EVERY = 0.5  # seconds between two pictures, at least
REST = 50  # times that a picture takes, until the next one


class SearchOutput:
    """A callback that shows a search as a card, in the place of the bar of a terminal."""

    def __init__(self, metric: str, budget: float | None) -> None:
        self.screen, self.output = SearchScreen(metric, budget, show_bar=False), Output()
        self.dots: dict[int, tuple[float, float, bool]] = {}  # by recipe: seconds, score, whether it continues
        self._next = 0.0

    def started(self, event: Started) -> None:
        self.screen.metric = event.metric
        self._draw(self.screen.words(time.monotonic()), self.screen.share())

    def progress(self, event: Progress) -> None:
        self.screen.watch(event)
        now = time.monotonic()
        if now >= self._next:
            self._draw(self.screen.words(now), self.screen.share())
            self._next = now + max(EVERY, REST * (time.monotonic() - now))

    def step_ended(self, event: RungEnded) -> None:
        seconds, kept = time.monotonic() - self.screen.begun, {one.number for one in event.kept}
        for one in event.trained:
            if one.score > -float("inf"):
                self.dots[one.number] = seconds, one.score, one.number in kept

    def finished(self, result: SearchResult) -> None:
        seconds, honest = time.monotonic() - self.screen.begun, result.outcome.honest
        early = ", ended early" if result.ended == "interrupted" else ""
        expected = (
            ""
            if honest.problem
            else f"; {metric_name(honest.metric)} to expect: {score(honest.corrected, honest.metric)}"
        )
        said = f"{len(result.outcome.board):,} recipes in {seconds:.1f} s{early}{expected}"
        self._draw(said, 1.0, {one.number for one in result.outcome.chosen})

    def _draw(self, said: str, share: float, chosen: set[int] | frozenset[int] = frozenset()) -> None:
        points = {going: [(x, y) for x, y, goes in self.dots.values() if goes is going] for going in (False, True)}
        marked = [self.dots[number][:2] for number in chosen if number in self.dots]
        seconds = max(time.monotonic() - self.screen.begun, 1.0)
        dots = SearchDots(self.screen.metric, seconds, points[False], points[True], marked)
        self.output.show(progress_card(said, share, dots), said)

    def __enter__(self) -> SearchOutput:
        return self

    def __exit__(self, *_: object) -> None:
        """The last picture stays."""


class Begun:
    """A callback that knows whether anything was trained."""

    anything = False

    def progress(self, event: Progress) -> None:
        self.anything = self.anything or event.best is not None


@contextmanager
def interrupt_keeps_best(clock: Clock) -> Iterator[list[Begun]]:
    """In a notebook, interrupting the kernel ends a search with the best so far; a second time it quits.

    Gives callbacks that the search needs for that. Elsewhere, and before anything is trained, Ctrl-C is an error.
    """
    if not in_notebook():
        yield []
        return
    begun = Begun()

    def hurry() -> None:
        if not begun.anything:
            raise KeyboardInterrupt
        clock.hurry()

    with holding_interrupts(hurry) as interrupt:
        yield [begun]
    if interrupt.requested:
        warnings.warn("the search was interrupted: the model is the best so far", stacklevel=4)
