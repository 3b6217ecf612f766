"""A callback that keeps what it was told."""

from __future__ import annotations

from typing import Any


class Seen:
    """The notes, the steps that have ended, and everything else of a run; asks to stop after so many steps."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.stop_after = stop_after
        self.notes: list[str] = []
        self.steps: list[Any] = []
        self.beginnings: list[Any] = []
        self.results: list[Any] = []
        self.shares: list[float] = []

    @property
    def text(self) -> str:
        return "\n".join(self.notes)

    def started(self, event: Any) -> None:
        self.beginnings.append(event)

    def progress(self, event: Any) -> None:
        self.shares.append(event.share)

    def step_ended(self, event: Any) -> bool:
        self.steps.append(event)
        return len(self.steps) == self.stop_after

    def note(self, text: str) -> None:
        self.notes.append(text)

    def finished(self, result: Any) -> None:
        self.results.append(result)
