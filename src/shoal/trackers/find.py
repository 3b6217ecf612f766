"""Trackers by name, as `--log` takes them, and several as one callback of a command."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.errors import UserError
from shoal.options import Options, option
from shoal.trackers.jsonlines import JSONLines
from shoal.trackers.mlflow import MLflow
from shoal.trackers.tensorboard import TensorBoard
from shoal.trackers.tracker import Tracker
from shoal.validate import nearest

# What follows the colon of each, and the tracker of that; None: nothing need follow.
KINDS: dict[str, tuple[str, Callable[[str], Tracker]]] = {
    "mlflow": ("URI", MLflow), "tensorboard": ("FOLDER", TensorBoard), "jsonl": ("FILE", JSONLines),
}  # fmt: skip
FORMS = ", ".join(f"{kind}:{what}" for kind, (what, _) in KINDS.items())


def find_tracker(name: str) -> Tracker:
    """
    >>> find_tracker("jsonl:log.jsonl")
    JSONLines(path='log.jsonl')
    """
    kind, _, where = name.partition(":")
    if kind not in KINDS:
        raise UserError(f"--log must be one of {FORMS}; got {name!r}{nearest(kind, list(KINDS))}")
    if not where and kind != "mlflow":
        raise UserError(f"--log {kind} needs a {KINDS[kind][0].lower()}, as in {kind}:{KINDS[kind][0]}")
    return KINDS[kind][1](where) if where else MLflow()


def _check(_: str, value: Any) -> tuple[str, ...]:
    for name in value:
        find_tracker(name)
    return tuple(value)


@dataclass(frozen=True)
class LogOptions(Options):
    """Where a command logs what happens."""

    log: tuple[str, ...] = option(
        (), f"Log to a tracker: {FORMS}; repeatable. (mlflow alone: where MLflow is set to)", metavar="WHERE",
        check=_check, changes_result=False, in_files=False,
    )  # fmt: skip

    def trackers(self, say: Callable[[str], None]) -> Trackers:
        """The trackers as one callback; `say` shows what went wrong with them."""
        found = [find_tracker(name) for name in self.log]
        for tracker in found:
            tracker.say = say
        return Trackers(found)


class Trackers:
    """Several as one callback. A command calls `finish` once the files are written, and `close` however it ends."""

    def __init__(self, trackers: Sequence[Tracker]) -> None:
        self.trackers = trackers

    def started(self, event: Any) -> None:
        for tracker in self.trackers:
            tracker.started(event)

    def step_ended(self, event: Any) -> None:
        for tracker in self.trackers:
            tracker.step_ended(event)

    def finish(self, result: Any, folder: Path | None) -> None:
        """The run is complete, and its files are in a folder."""
        for tracker in self.trackers:
            tracker.finished(result, folder)

    def __enter__(self) -> Trackers:
        return self

    def __exit__(self, *_: object) -> None:
        for tracker in self.trackers:
            tracker.close()
