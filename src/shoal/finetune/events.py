"""Events that the callbacks of a fine-tuning run receive (see `shoal.callbacks`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class FinetuneStarted:
    """`started`: the texts are tokenized, and the workers load the model."""

    texts: int
    tokens: int
    cut: int  # texts that were longer than the context
    context: int


@dataclass(frozen=True)
class FinetuneProgress:
    """`progress`: sent several times a second. If a callback returns True, a checkpoint is saved and the run stops."""

    share: float = 0.0  # of the steps
    loss: float | None = None  # the last one logged
    records: Sequence[Mapping[str, Any]] = ()  # those logged just now, as in metrics.jsonl


@dataclass(frozen=True)
class Evaluated:
    """`step_ended`: the loss on the test texts. If a callback returns True, the run stops as for `progress`."""

    step: int
    epoch: float
    loss: float


@dataclass(frozen=True)
class FinetuneResult:
    """`finished`, and what `finetune` returns. Losses are those on the test texts; None if not measured."""

    folder: Path
    finished: bool  # False: a callback stopped the run, which can be resumed
    step: int
    loss_before: float | None = None
    loss_after: float | None = None
    loss_lowest: float | None = None
    step_lowest: int | None = None
