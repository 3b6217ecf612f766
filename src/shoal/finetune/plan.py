"""Everything that the workers and the launcher need to know about a run."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.finetune.options import FinetuneOptions
from shoal.parallel.job import Job

TEXTS, RESULT = "texts.json", "result.json"  # files from the launcher to its workers, and back
DEFAULT_EVALUATIONS = 20  # per run
MIN_LOG_RECORDS = 1000  # per run, if it has so many steps


@dataclass(frozen=True)
class FinetunePlan:
    """The options of a run, with defaults resolved, and its folders."""

    settings: FinetuneOptions
    run: str  # the folder of the run
    start: str  # the folder of the initial model
    steps: int
    eval_every: int
    log_every: int

    def write(self, folder: Path) -> None:
        content: dict[str, Any] = {**vars(self), "settings": self.settings.as_dict()}
        (folder / "plan.json").write_text(json.dumps(content), encoding="utf-8")

    @staticmethod
    def read(folder: Path) -> FinetunePlan:
        content = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
        return FinetunePlan(FinetuneOptions.from_dict(content.pop("settings")), **content)


def make_plan(settings: FinetuneOptions, run: Path, start: Path, rows: int) -> FinetunePlan:
    """The number of steps, and how often to evaluate and log; `rows` is the number of training rows."""
    steps = settings.epochs * -(-rows // settings.batch_size)
    eval_every = settings.eval_every or max(1, -(-steps // DEFAULT_EVALUATIONS))
    log_every = settings.log_every or max(1, steps // MIN_LOG_RECORDS)
    return FinetunePlan(settings, str(run.absolute()), str(start.absolute()), steps, eval_every, log_every)


def job_of(settings: FinetuneOptions) -> Job:
    """The options of the launcher."""
    strategy = "allreduce" if settings.workers > 1 else "blas"
    return Job(
        strategy=strategy, workers=settings.workers, device=settings.device, seed=settings.seed,
        blas_threads=settings.threads, restarts=settings.restarts, timeout=settings.timeout, exact=False,
    )  # fmt: skip
