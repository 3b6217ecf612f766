"""Events that the callbacks of `fit` receive, and how workers in other processes send them to their launcher."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Notify = Callable[[str, Any], bool]  # (event, content) -> whether to stop, as `Callbacks.notify`
SECONDS_BETWEEN_PROGRESS = 0.1  # of workers in other processes


@dataclass(frozen=True)
class TrainingStarted:
    """`started`: workers are about to train."""

    strategy: str
    backend: str
    workers: int
    epochs: int
    rows: int
    parameters: int


@dataclass(frozen=True)
class EpochProgress:
    """`progress`: the share of the training that is done, and the mean loss of this epoch so far.

    If a callback returns True, training stops at the end of the epoch.
    """

    share: float
    epoch: int
    loss: float


@dataclass(frozen=True)
class EpochEnded:
    """`step_ended`: `record` is the epoch's entry in `Result.history`; epochs count from 0.

    `worker_losses` are the mean training losses of workers that have one of their own; others are None.
    """

    epoch: int
    epochs: int
    record: Mapping[str, Any]
    worker_losses: Sequence[float | None] = ()


@dataclass(frozen=True)
class FoldEnded:
    """`step_ended` of strategy "kfold". If a callback returns True, no other fold starts."""

    fold: int
    folds: int
    metrics: Mapping[str, Any]


EVENTS = {kind.__name__: kind for kind in (TrainingStarted, EpochProgress, EpochEnded, FoldEnded)}


def silent(event: str, content: Any) -> bool:
    """Nobody watches."""
    return False


def as_message(event: str, content: Any) -> dict[str, Any]:
    """An event as JSON has it."""
    if event == "note":
        return {"note": content}
    return {"event": event, "type": type(content).__name__, "content": dataclasses.asdict(content)}


def pass_on(message: Mapping[str, Any], notify: Notify) -> bool:
    """Notify of the event in a message."""
    if "note" in message:
        return notify("note", message["note"])
    return notify(message["event"], EVENTS[message["type"]](**message["content"]))
