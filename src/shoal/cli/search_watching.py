"""What `shoal search` is told while it works."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shoal.interrupts import Interrupt

if TYPE_CHECKING:
    from shoal.cli.search_plan import Plan
    from shoal.runs.folder import RunFolder
    from shoal.search.callbacks import Started
    from shoal.search.screen import SearchScreen


class Watching:
    """Tells screen and folder how far the search is, and ends it when the user has asked for that."""

    def __init__(self, screen: SearchScreen, folder: RunFolder, stop: Interrupt, plan: Plan | None) -> None:
        self.screen, self.folder, self.stop, self.note, self.plan = screen, folder, stop, screen.say, plan

    def started(self, started: Started) -> None:
        for line in [] if self.plan is None else self.plan.there(started.workplace):
            self.screen.say(line)

    def progress(self, progress: Any) -> bool:
        self.screen.watch(progress)
        self.folder.progress(
            self.screen.share(), recipes=progress.candidates, metric=self.screen.metric,
            best=None if progress.best is None else progress.best.score,
        )  # fmt: skip
        return bool(self.stop.requested)
