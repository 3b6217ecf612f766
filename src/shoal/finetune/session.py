"""One run from the data file to the saved model: everything that the launching process does."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shoal.finetune import models, place, texts
from shoal.finetune.checkpoints import last_checkpoint, write_json
from shoal.finetune.options import FinetuneOptions
from shoal.finetune.place import METRICS, MODEL, SAMPLES, START
from shoal.finetune.plan import Plan, job_of, make_plan
from shoal.finetune.rank import RESULT, TEXTS
from shoal.finetune.texts import Texts
from shoal.runs.kinds import SETTINGS
from shoal.runs.versions import file_hash

Say = Callable[[str], None]


@dataclass
class Ready:
    """A run that is ready to start or to resume."""

    plan: Plan
    texts: Texts
    train: list[int]
    test: list[int]
    parameters: int
    resumes: bool

    @property
    def run(self) -> Path:
        return Path(self.plan.run)

    @property
    def step(self) -> int:
        """The step of the last complete checkpoint; 0 without one."""
        checkpoint = last_checkpoint(self.run)
        return int(checkpoint.name.rpartition("-")[2]) if checkpoint else 0

    def worker_texts(self) -> dict[str, Any]:
        """The texts for the workers: to train on, to test on, and prompts for samples."""
        columns, rows = self.texts.columns, self.texts.rows
        parts = {name: [texts.join(columns, rows[row]) for row in chosen]
                 for name, chosen in (("train", self.train), ("test", self.test))}  # fmt: skip
        whole = [row for row in self.test if rows[row][-1]] or self.test  # rows whose last column is not empty
        return {**parts, "prompts": _prompts(self.texts, whole[: self.plan.settings.samples])}


def fingerprint(settings: FinetuneOptions, found: Texts, start: Path | None) -> dict[str, Any]:
    """All that determines the weights: settings, texts, and the initial model."""
    digest = hashlib.sha256(json.dumps([found.columns, found.rows]).encode()).hexdigest()
    model = _model_fingerprint(start)
    whole = {**settings.fingerprint(), "columns": list(found.columns), "data": digest, "start": model}
    return json.loads(json.dumps(whole))


def _model_fingerprint(start: Path | None) -> dict[str, Any]:
    """Small files by the hash of their content; weights, which are slow to read, by size and time."""
    if start is None:
        return {}
    small = {path.name: file_hash(path) for pattern in ("*.json", "*.txt") for path in sorted(start.glob(pattern))}
    large = {path.name: [path.stat().st_size, path.stat().st_mtime_ns] for path in sorted(start.glob("*.safetensors"))}
    return small | large


def find_start(settings: FinetuneOptions, say: Say) -> Path | None:
    """The folder of the initial model; None for the tiny one, which is made in the folder of the run."""
    return None if settings.model == models.TINY else models.find(settings.model, say)


def prepare(settings: FinetuneOptions, found: Texts, start: Path | None, run: Path, resumes: bool) -> Ready:
    """Split the rows and make a plan. Checks that need the model itself are left to the workers."""
    train, test = texts.split(len(found.rows), settings.test, settings.seed)
    parameters = models.TINY_PARAMETERS if start is None else models.count_parameters(start)
    plan = make_plan(replace(settings, columns=found.columns), run, start or run / START, len(train))
    return Ready(plan, found, train, test, parameters, resumes)


def _prompts(found: Texts, rows: list[int]) -> list[dict[str, str]]:
    """For a few test rows, the prompt and the expected text."""
    if len(found.columns) > 1:
        return [{"prompt": texts.prompt(found.columns, found.rows[row][:-1]), "expected": found.rows[row][-1]}
                for row in rows]  # fmt: skip
    prompts = []
    for row in rows:
        text = found.rows[row][0]
        place = text.find(" ", len(text) // 4)
        start = text[: place if 0 < place < len(text) // 2 else max(1, len(text) // 4)]
        prompts.append({"prompt": start, "expected": text[len(start) :]})
    return prompts


def begin(ready: Ready, marks: dict[str, Any]) -> None:
    """Write the settings file of the run before anything else."""
    from shoal.machine import processor
    from shoal.version import __version__

    earlier = place.read(ready.run) or {}
    settings = ready.plan.settings
    write_json(ready.run / SETTINGS, {
        "format": place.FORMAT, "version": place.VERSION, "shoal": __version__,
        "created": earlier.get("created") or time.strftime("%Y-%m-%d %H:%M"),
        "settings": settings.as_dict(), "fingerprint": marks,
        "run": {
            "model": settings.model, "parameters": ready.parameters, "lora": settings.lora or None,
            "workers": settings.workers, "processor": processor(), "epochs": settings.epochs,
            "batch_size": settings.batch_size, "learning_rate": settings.learning_rate, "schedule": settings.schedule,
            "steps_planned": ready.plan.steps, "seed": settings.seed,
            "resumed_at": [*earlier.get("run", {}).get("resumed_at", []), *([ready.step] if ready.resumes else [])],
        },
        "data": {
            "file": ready.texts.file, "rows": ready.texts.read, "train": len(ready.train), "test": len(ready.test),
            "columns": list(ready.texts.columns), "format": texts.shape(ready.texts.columns),
            "notes": ready.texts.notes,
        },
    })  # fmt: skip


def train(ready: Ready, tell: Callable[[dict[str, Any]], None], pause: Callable[[], bool]) -> dict[str, Any]:
    """Run the workers until they finish or `pause()` is true; returns their result."""
    from shoal.parallel.launch import own_folder, supervise

    with own_folder() as folder:
        ready.plan.write(folder)
        (folder / TEXTS).write_text(json.dumps(ready.worker_texts()), encoding="utf-8")
        supervise(job_of(ready.plan.settings), folder, tell, "shoal.finetune.rank", pause=pause)
        return dict(json.loads((folder / RESULT).read_text(encoding="utf-8")))


def records(run: Path) -> list[dict[str, Any]]:
    """The records in the log of a run; an incomplete last line is ignored."""
    found = []
    path = run / METRICS
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else []:
        try:
            found.append(json.loads(line))
        except ValueError:
            break
    return found


def page_data(run: Path, running: bool = False) -> dict[str, Any]:
    """The data for the page of a run, from the files in its folder."""
    content = place.read(run)
    assert content is not None
    log = records(run)
    tested = [(record["eval_loss"], record["step"]) for record in log if record.get("eval_loss") is not None]
    result: dict[str, Any] = {}
    if tested:
        lowest, step = min(tested)
        result = {
            "loss_before": tested[0][0] if tested[0][1] == 0 else None, "loss_after": tested[-1][0],
            "loss_lowest": lowest, "step_lowest": step,
        }  # fmt: skip
    steps = max((record["step"] for record in log), default=0)
    samples = json.loads((run / SAMPLES).read_text(encoding="utf-8")) if (run / SAMPLES).is_file() else []
    about = content["run"] | {
        "steps": steps, "seconds": max((record.get("seconds") or 0.0 for record in log), default=None),
        "interrupted": not running and not (run / MODEL).is_dir(),
    }  # fmt: skip
    return {
        "title": content["data"]["file"], "created": content["created"], "version": content["shoal"], "run": about,
        "data": content["data"], "result": result, "log": log, "samples": samples,
    }  # fmt: skip


def note(run: Path, begun: dict[str, dict[str, Any]]) -> None:
    """Add facts that the workers found to the settings file."""
    content = place.read(run)
    if content is not None:
        for part, values in begun.items():
            content[part] |= values
        write_json(run / SETTINGS, content)


def perplexity(loss: float | None) -> str:
    """
    >>> perplexity(2.0), perplexity(None)
    ('7.39', '?')
    """
    return "?" if loss is None or loss > 50 else f"{math.exp(loss):.3g}"
