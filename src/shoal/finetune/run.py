"""Fine-tune a language model, from the texts to the saved model: what the launching process does."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from shoal.callbacks import Callbacks
from shoal.finetune import folder, models, texts
from shoal.finetune.checkpoints import check_space, last_checkpoint, write_json
from shoal.finetune.events import Evaluated, FinetuneProgress, FinetuneResult, FinetuneStarted
from shoal.finetune.options import FinetuneOptions
from shoal.finetune.plan import RESULT, TEXTS, FinetunePlan, job_of, make_plan
from shoal.finetune.texts import Texts
from shoal.machine import processor
from shoal.runs.folder import RunFolder
from shoal.runs.kinds import FINETUNE, FINETUNE_FORMAT, SETTINGS, SETTINGS_VERSION, START
from shoal.runs.versions import file_hash
from shoal.version import __version__


def finetune(
    found: Texts, options: FinetuneOptions, out: Path | None = None, fresh: bool = False, callbacks: Any = None
) -> FinetuneResult:
    """Train a model on texts, or resume a run that was stopped. Callbacks receive the events of `finetune.events`.

    out    the run folder; None: shoal-runs/<file>-<model>-<n>
    fresh  start over, even if an earlier run could be resumed
    """
    with open_run(found, options, out, fresh, callbacks) as run:
        return run.train()


@contextmanager
def open_run(
    found: Texts, options: FinetuneOptions, out: Path | None = None, fresh: bool = False, callbacks: Any = None
) -> Iterator[FinetuneRun]:
    """Plan a run and lock its folder; `train` then trains. For callers that show the plan first."""
    from shoal.parallel.data.loader import find_device

    find_device(options.device)
    watchers = Callbacks(callbacks)
    start = None if options.model == models.TINY else models.find(options.model, partial(watchers.notify, "note"))
    marks = fingerprint(options, found, start)
    stem = folder.stem(found.file, options.model)
    with RunFolder(FINETUNE, out, stem, marks, fresh=fresh, again=True, file=found.file) as opened:
        yield FinetuneRun(found, options, start, opened, watchers)


def fingerprint(options: FinetuneOptions, found: Texts, start: Path | None) -> dict[str, Any]:
    """All that determines the weights: options, texts, and the initial model."""
    digest = hashlib.sha256(json.dumps([found.columns, found.rows]).encode()).hexdigest()
    model = _model_fingerprint(start)
    return {**options.fingerprint(), "columns": list(found.columns), "data": digest, "start": model}


def _model_fingerprint(start: Path | None) -> dict[str, Any]:
    """Small files by the hash of their content; weights, which are slow to read, by size and time."""
    if start is None:
        return {}
    small = {path.name: file_hash(path) for pattern in ("*.json", "*.txt") for path in sorted(start.glob(pattern))}
    large = {path.name: [path.stat().st_size, path.stat().st_mtime_ns] for path in sorted(start.glob("*.safetensors"))}
    return small | large


class FinetuneRun:
    """A run that is ready to start or to resume. Checks that need the model itself are left to the workers."""

    def __init__(
        self, found: Texts, options: FinetuneOptions, start: Path | None, opened: RunFolder, callbacks: Callbacks
    ) -> None:
        self.texts, self.callbacks = found, callbacks
        self.path, self.fingerprint, self.resumes = opened.path, opened.fingerprint, opened.resumes
        self.train_rows, self.test_rows = texts.split(len(found.rows), options.test, options.seed)
        self.parameters = models.TINY_PARAMETERS if start is None else models.count_parameters(start)
        self.plan: FinetunePlan = make_plan(
            replace(options, columns=found.columns), self.path, start or self.path / START, len(self.train_rows)
        )
        self._progress = FinetuneProgress()
        self._records: list[dict[str, Any]] = []  # that callbacks have not seen
        self._started = self._stopping = False

    @property
    def step(self) -> int:
        """The step of the last complete checkpoint; 0 without one."""
        checkpoint = last_checkpoint(self.path)
        return int(checkpoint.name.rpartition("-")[2]) if checkpoint else 0

    def train(self) -> FinetuneResult:
        """Run the workers until they finish or a callback stops them."""
        from shoal.parallel.launch.launcher import own_folder, supervise

        check_space(self.path, self.parameters, self.plan.settings.lora)
        self._write_settings()
        with own_folder() as exchange:
            self.plan.write(exchange)
            (exchange / TEXTS).write_text(json.dumps(self._worker_texts()), encoding="utf-8")
            job = job_of(self.plan.settings)
            supervise(job, exchange, self._on_message, "shoal.finetune.rank", pause=self._should_stop)
            ended = json.loads((exchange / RESULT).read_text(encoding="utf-8"))
        self._tell_progress()
        folder.write_report(self.path)
        losses = folder.evaluation_losses(folder.read_log(self.path))
        result = FinetuneResult(self.path, ended["finished"], ended["step"], **losses)
        self.callbacks.notify("finished", result)
        return result

    def _should_stop(self) -> bool:
        self._stopping |= self._tell_progress()
        return self._stopping

    def _tell_progress(self) -> bool:
        records, self._records = self._records, []
        return self.callbacks.notify("progress", replace(self._progress, records=records))

    def _on_message(self, message: dict[str, Any]) -> None:
        """What the first worker sends. After a restart it sends the facts again."""
        if "note" in message:
            self.callbacks.notify("note", message["note"])
        if "facts" in message:
            folder.add_facts(self.path, message["facts"])
            if "data" in message["facts"] and not self._started:
                self._started = True
                data, context = message["facts"]["data"], message["facts"]["run"]["context"]
                count = len(self.train_rows) + len(self.test_rows)
                self.callbacks.notify("started", FinetuneStarted(count, data["tokens"], data["cut"], context))
        if "record" in message:
            self._records.append(message["record"])
        if "eval_loss" in message.get("record", ()):
            record = message["record"]
            folder.write_report(self.path, running=True)
            evaluated = Evaluated(record["step"], record.get("epoch") or 0.0, record["eval_loss"])
            self._stopping |= self.callbacks.notify("step_ended", evaluated)
        if "share" in message:
            self._progress = FinetuneProgress(message["share"], message.get("loss"))

    def _worker_texts(self) -> dict[str, Any]:
        """The texts for the workers: to train on, to test on, and prompts for samples."""
        columns, rows = self.texts.columns, self.texts.rows
        parts = {name: [texts.join(columns, rows[row]) for row in chosen]
                 for name, chosen in (("train", self.train_rows), ("test", self.test_rows))}  # fmt: skip
        whole = [row for row in self.test_rows if rows[row][-1]] or self.test_rows  # whose last column is not empty
        return {**parts, "prompts": [_prompt(columns, rows[row]) for row in whole[: self.plan.settings.samples]]}

    def _write_settings(self) -> None:
        """The settings file, before anything else."""
        earlier = folder.read_settings(self.path) or {}
        before = earlier.get("run")
        resumed = before.get("resumed_at") if isinstance(before, dict) else None
        settings, found = self.plan.settings, self.texts
        write_json(self.path / SETTINGS, {
            "format": FINETUNE_FORMAT, "version": SETTINGS_VERSION, "shoal": __version__,
            "created": earlier.get("created") or time.strftime("%Y-%m-%d %H:%M"),
            "settings": settings.as_dict(), "fingerprint": self.fingerprint,
            "run": {
                "model": settings.model, "parameters": self.parameters, "lora": settings.lora or None,
                "workers": settings.workers, "processor": processor(), "epochs": settings.epochs,
                "batch_size": settings.batch_size, "learning_rate": settings.learning_rate,
                "schedule": settings.schedule, "steps_planned": self.plan.steps, "seed": settings.seed,
                "resumed_at": [*(resumed if isinstance(resumed, list) else []), *([self.step] if self.resumes else [])],
            },
            "data": {
                "file": found.file, "rows": found.read, "train": len(self.train_rows), "test": len(self.test_rows),
                "columns": list(found.columns), "format": texts.shape(found.columns), "notes": found.notes,
            },
        })  # fmt: skip


def _prompt(columns: tuple[str, ...], cells: tuple[str, ...]) -> dict[str, str]:
    """The beginning of a test text, and the rest, which is expected."""
    if len(columns) > 1:
        return {"prompt": texts.prompt(columns, cells[:-1]), "expected": cells[-1]}
    text = cells[0]
    blank = text.find(" ", len(text) // 4)
    start = text[: blank if 0 < blank < len(text) // 2 else max(1, len(text) // 4)]
    return {"prompt": start, "expected": text[len(start) :]}
