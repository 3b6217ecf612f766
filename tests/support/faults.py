"""Searches that tests disturb: small ones, which are killed when they have got so far, not after so many seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.clusters import CLUSTERS, Cluster
from benchmarks.harness.searches import Attempt, Story, search_words
from support.waiting import wait_until

RECIPES, ROWS = 12, 300
LIMIT = 150.0  # seconds; only keeps a broken search from hanging a test


@dataclass(frozen=True)
class Scene:
    """A search and where it runs."""

    story: Story
    cluster: Cluster

    def start(self, when: Callable[[], object] | None = None) -> Attempt:
        """Start it, and wait until something has happened, which must be before its end."""
        attempt = self.story.start()
        if when is not None:
            wait_until(lambda: when() or not attempt.running, LIMIT)
            assert attempt.running, f"it ended before: {attempt.said()}"
        return attempt

    def start_and_kill(self, shards: int) -> None:
        """kill -9 as soon as its journal has so many shards more than before."""
        before = self.story.shards
        self.start(lambda: self.story.shards >= before + shards).kill()

    def finish(self, attempt: Attempt | None = None, starts: int = 1) -> str:
        """Wait for its end; what the last attempt said."""
        finished = self.story.finish(LIMIT, attempt, starts)
        said = self.story.attempts[-1].said()
        assert finished, said
        assert "Traceback" not in said
        return said


@contextmanager
def scene(table: Path, folder: Path, recipes: int, cluster: str = "serial") -> Iterator[Scene]:
    """A search that has not begun. At the end nothing of it may be left, and nothing is."""
    folder.mkdir(exist_ok=True)
    place = CLUSTERS[cluster](folder)
    story = Story(place.command(search_words(table, "target", recipes, place.address)), folder)
    try:
        place.start()
        yield Scene(story, place)
    finally:
        story.end()
        place.end()
    assert story.left_behind == 0, "processes outlive their search"
