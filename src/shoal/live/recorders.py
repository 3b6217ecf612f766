"""Callbacks that record a run for its page: one for each kind of run."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.finetune.folder import read_samples
from shoal.live.recording import Recording
from shoal.live.so_far import RangeSoFar
from shoal.metrics.metric import METRICS
from shoal.parallel.events import EpochEnded, EpochProgress, FoldEnded, TrainingStarted

if TYPE_CHECKING:
    from shoal.finetune.events import FinetuneProgress, FinetuneResult, FinetuneStarted
    from shoal.search.events import Progress, RungEnded, Started
    from shoal.search.results.result import SearchResult
    from shoal.search.rounds.candidates import Candidate

DIGITS = 5  # of a score or a loss
DOTS_AT_A_TIME = 500  # in one event
SAMPLES_SHOWN = 4  # texts of a fine-tuned model


class Recorder:
    """Writes what it is told into the run folder; `with` ends the recording.

    about  facts of the run for the heading of its page: title, target, and what the kind of run knows
    say    is told where nothing can be recorded
    """

    kind = ""

    def __init__(
        self, folder: Path, about: dict[str, Any], say: Callable[[str], None], now: Callable[[], float] = time.monotonic
    ) -> None:
        self.recording = Recording(folder, say, now)
        self.recording.write("begin", kind=self.kind, host=platform.node(), pid=os.getpid(), **about)

    def __enter__(self) -> Any:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.recording.close()

    def note(self, text: str) -> None:
        self.recording.write("note", text=text[:2000])


class SearchRecorder(Recorder):
    """Records a search: a dot for each assessment of a candidate."""

    kind = "search"

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._known = bytearray()  # whether a candidate's recipe was recorded, by its number
        self._so_far = RangeSoFar()

    def started(self, event: Started) -> None:
        metric = METRICS.get(event.metric)
        self._so_far = RangeSoFar() if metric is None else RangeSoFar(metric.least, metric.most)
        where = None if event.workplace is None else event.workplace.describe()
        self.recording.write(
            "started", rows=event.rows, folds=event.folds, metric=event.metric, budget=event.budget, workers=where
        )

    def progress(self, event: Progress) -> None:
        trained = list(event.trained)
        for start in range(0, len(trained), DOTS_AT_A_TIME):
            self._record(event.stage, trained[start : start + DOTS_AT_A_TIME])
        if self.recording.is_due() or trained:
            best, found, status = event.best, self._so_far.interval(), event.workers
            self.recording.write(
                "now", stage=event.stage, share=_rounded(event.share), tried=event.recipes,
                best=None if best is None else [best.number, _rounded(best.score)],
                range=None if found is None else [_rounded(value) for value in found],
                workers=None if status is None else
                [status.workers, status.busy, status.done, status.waiting, status.lost, status.repeated],
            )  # fmt: skip

    def step_ended(self, event: RungEnded) -> None:
        kept: Any = [candidate.number for candidate in event.kept]
        kept = "all" if len(kept) == len(event.trained) else kept
        self.recording.write("rung", stage=event.stage, trained=len(event.trained), kept=kept)

    def finished(self, result: SearchResult) -> None:
        outcome = result.outcome
        shares = {one.number: float(share) for one, share in zip(outcome.chosen, outcome.shares, strict=True)}
        self.recording.write(
            "end", last=True, score=outcome.honest.as_dict(), ended=result.ended,
            ensemble=[[number, _rounded(share)] for number, share in shares.items()], best=outcome.best.number,
            recipes=len(outcome.board), folds=len(result.problem.folds),
        )  # fmt: skip

    def _record(self, stage: str, trained: list[Candidate]) -> None:
        scores = [one.fold_scores for one in trained if len(one.fold_scores)]
        if scores:
            self._so_far.add(np.array(scores, dtype=float))
        self.recording.write("dots", stage=stage, dots=[self._dot(one) for one in trained])

    def _dot(self, candidate: Candidate) -> list[Any]:
        """Number, score and epochs; of one that was not recorded before, also its recipe."""
        number = candidate.number
        dot = [number, _rounded(candidate.score), candidate.epochs]
        if number >= len(self._known):
            self._known.extend(bytes(number + 1024 - len(self._known)))
        if self._known[number]:
            return dot
        self._known[number] = 1
        member = candidate.recipe.member
        return [*dot, "-".join(map(str, member.hidden)), str(member.activation), _rounded(member.learning_rate),
                candidate.recipe.encoding]  # fmt: skip


class TrainingRecorder(Recorder):
    """Records the training of one network."""

    kind = "train"

    def started(self, event: TrainingStarted) -> None:
        self.recording.write("started", **vars(event))

    def progress(self, event: EpochProgress) -> bool:
        if self.recording.is_due():
            self.recording.write("now", share=_rounded(event.share), epoch=event.epoch, loss=_rounded(event.loss))
        return self.recording.stop_requested()

    def step_ended(self, event: EpochEnded | FoldEnded) -> None:
        if isinstance(event, FoldEnded):
            self.recording.write("fold", fold=event.fold, folds=event.folds, metrics=_numbers(event.metrics.items()))
        else:
            losses = [_rounded(loss) for loss in event.worker_losses]
            self.recording.write("epoch", epochs=event.epochs, losses=losses, **_numbers(event.record.items()))

    def finished(self, result: Any) -> None:
        self.recording.write("end", last=True, metrics=_numbers(result.metrics.items()))

    def tested(self, metrics: Mapping[str, Any], waited: float) -> None:
        """The scores on the test rows are known; `waited`: seconds from the start of the workers to their end."""
        self.recording.write("tested", last=True, metrics=_numbers(metrics.items()), waited=_rounded(waited))


class FinetuneRecorder(Recorder):
    """Records a fine-tuning run."""

    kind = "finetune"

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._sampled: set[tuple[str, int]] = set()

    def started(self, event: FinetuneStarted) -> None:
        self.recording.write("started", **vars(event))

    def progress(self, event: FinetuneProgress) -> bool:
        for record in event.records:
            self.recording.write("logged", **_numbers(record.items()))
        if self.recording.is_due():
            self._record_samples()
            self.recording.write("now", share=_rounded(event.share), loss=_rounded(event.loss))
        return self.recording.stop_requested()

    def finished(self, result: FinetuneResult) -> None:
        self._record_samples()
        self.recording.write(
            "end", last=True, finished=result.finished, step=result.step, before=result.loss_before,
            after=result.loss_after,
        )  # fmt: skip

    def _record_samples(self) -> None:
        """What the model writes: before, meanwhile and after."""
        for place, sample in enumerate(read_samples(self.recording.folder)[:SAMPLES_SHOWN]):
            for when, text in _written(sample):
                if (when, place) not in self._sampled:
                    self._sampled.add((when, place))
                    self.recording.write("sample", when=when, prompt=sample["prompt"][:2000], text=text[:2000])


def _written(sample: dict[str, Any]) -> list[tuple[str, str]]:
    """The texts for a prompt in the order of time, and when they were written: "before", "step 12", "after"."""
    during = [(f"step {one['step']:,}", one["text"]) for one in sample.get("meanwhile", [])]
    found = [(when, sample.get(when)) for when in ("before", "after")]
    return [(when, text) for when, text in [found[0], *during, found[1]] if isinstance(text, str)]


def _rounded(value: float | None) -> float | None:
    return None if value is None or not np.isfinite(value) else float(f"{value:.{DIGITS}g}")


def _numbers(items: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Numbers of a record, rounded; anything else is left out."""
    return {
        name: value if isinstance(value, int) else _rounded(float(value))
        for name, value in items
        if isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    }
