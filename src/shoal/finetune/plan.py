"""What a worker has to know of a run, and what the launcher has to know."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.finetune.options import FinetuneOptions
from shoal.parallel.job import Job

EVALUATIONS = 20  # in a run, if it is not said how often
RECORDS = 1000  # of the training loss in a run, at least, if it has so many steps


@dataclass(frozen=True)
class Plan:
    """The options of a run, with nothing left open, and where things are."""

    settings: FinetuneOptions
    run: str  # the folder of the run
    start: str  # the folder of the model to begin with
    steps: int
    eval_every: int
    log_every: int

    def write(self, folder: Path) -> None:
        content: dict[str, Any] = {**vars(self), "settings": self.settings.as_dict()}
        (folder / "plan.json").write_text(json.dumps(content), encoding="utf-8")

    @staticmethod
    def read(folder: Path) -> Plan:
        content = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
        return Plan(FinetuneOptions.from_dict(content.pop("settings")), **content)


def make_plan(settings: FinetuneOptions, run: Path, start: Path, rows: int) -> Plan:
    """How many steps there are, and how often to look; `rows` are those to train on."""
    steps = settings.epochs * -(-rows // settings.batch_size)
    eval_every = settings.eval_every or max(1, -(-steps // EVALUATIONS))
    log_every = settings.log_every or max(1, steps // RECORDS)
    return Plan(settings, str(run.absolute()), str(start.absolute()), steps, eval_every, log_every)


def job_of(settings: FinetuneOptions) -> Job:
    """What the launcher has to know."""
    strategy = "allreduce" if settings.workers > 1 else "blas"
    return Job(
        strategy=strategy, workers=settings.workers, device=settings.device, seed=settings.seed,
        blas_threads=settings.threads, restarts=settings.restarts, timeout=settings.timeout, exact=False,
    )  # fmt: skip
