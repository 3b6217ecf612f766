"""What a fine-tuning run is: its settings, checked; and what two runs must agree on for one to continue the other."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from shoal.parallel.job import DEVICES, Job, not_negative, one_of, positive, whole

SCHEDULES = ("linear", "cosine", "constant")
EVALUATIONS = 20  # in a run, if it is not said how often
RECORDS = 1000  # of the training loss in a run, at least, if it has so many steps
MARGIN = 8  # a text of fewer tokens is no context


@dataclass(frozen=True)
class Settings:
    """Settings of a run. Those below the line decide who computes and what is looked at, not the weights."""

    columns: tuple[str, ...] = ()
    model: str = "gpt2"
    epochs: int = 3
    batch_size: int = 8
    learning_rate: float = 5e-5
    schedule: str = "linear"
    warmup: float = 0.05
    weight_decay: float = 0.01
    dropout: float | None = None
    context: int | None = None
    lora: int = 0
    test: float = 0.1
    seed: int = 0
    # ---
    workers: int = 1
    device: str = "auto"
    threads: int | None = None
    eval_every: int | None = None
    log_every: int | None = None
    save_every: int | None = None
    samples: int = 3
    tensorboard: bool = False
    restarts: int = 3
    timeout: float = 600.0

    def __post_init__(self) -> None:
        one_of("--schedule", self.schedule, SCHEDULES)
        one_of("--device", self.device, DEVICES)
        for name, least in (("epochs", 1), ("batch_size", 1), ("workers", 1), ("lora", 0), ("seed", 0), ("samples", 0),
                            ("restarts", 0)):  # fmt: skip
            whole(_flag(name), getattr(self, name), least)
        for name in ("threads", "eval_every", "log_every", "save_every"):
            if getattr(self, name) is not None:
                whole(_flag(name), getattr(self, name), 1)
        if self.context is not None:
            whole("--context", self.context, MARGIN)
        positive("--learning-rate", self.learning_rate)
        positive("--timeout", self.timeout)
        not_negative("--weight-decay", self.weight_decay)
        for name in ("warmup", "test", "dropout"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1:
                raise ValueError(f"{_flag(name)} must be a share of at least 0 and below 1; got {value!r}")
        if self.test == 0:
            raise ValueError("--test must be above 0: without test rows nobody knows what was learned")
        if self.seed >= 1 << 32:
            raise ValueError(f"--seed must be below {1 << 32}; got {self.seed}")

    def fingerprint(self) -> dict[str, Any]:
        """What decides the weights."""
        names = [field.name for field in fields(self)]
        return {name: getattr(self, name) for name in names[: names.index("workers")]} | {"columns": [*self.columns]}

    def job(self) -> Job:
        """What the launcher has to know."""
        strategy = "allreduce" if self.workers > 1 else "blas"
        return Job(
            strategy=strategy, workers=self.workers, device=self.device, seed=self.seed, blas_threads=self.threads,
            restarts=self.restarts, timeout=self.timeout, exact=False,
        )  # fmt: skip


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


@dataclass(frozen=True)
class Plan:
    """What a worker has to know: the settings, with nothing left open, and where things are."""

    settings: Settings
    run: str  # the folder of the run
    start: str  # the folder of the model to begin with
    steps: int
    eval_every: int
    log_every: int

    def write(self, folder: Path) -> None:
        (folder / "plan.json").write_text(json.dumps(asdict(self)), encoding="utf-8")

    @staticmethod
    def read(folder: Path) -> Plan:
        content = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
        settings = content.pop("settings")
        return Plan(Settings(**{**settings, "columns": tuple(settings["columns"])}), **content)


def make_plan(settings: Settings, run: Path, start: Path, rows: int) -> Plan:
    """How many steps there are, and how often to look; `rows` are those to train on."""
    steps = settings.epochs * -(-rows // settings.batch_size)
    eval_every = settings.eval_every or max(1, -(-steps // EVALUATIONS))
    log_every = settings.log_every or max(1, steps // RECORDS)
    return Plan(replace(settings), str(run.absolute()), str(start.absolute()), steps, eval_every, log_every)
