"""What tests of fine-tuning share: texts, a tiny model to begin with, and a worker in this process."""

from __future__ import annotations

import csv
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from shoal.finetune import rank, texts
from shoal.finetune.options import FinetuneOptions
from shoal.finetune.plan import make_plan

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")


PROBLEMS = Path(texts.__file__).with_name("problems.csv")


def problems() -> list[dict[str, str]]:
    with PROBLEMS.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


ROWS = [f"statement:\n{row['statement'][:60]}\n\nsolution:\n{row['solution'][:60]}" for row in problems()[:17]]


class Heartbeat:
    """Where a worker says how it goes; nobody listens."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []
        self.paused = threading.Event()

    def send(self, kind: str, **content: Any) -> None:
        self.told.append(content)


def worker(run: Path, start: Path, **changes: Any) -> Heartbeat:
    """The whole program of one worker, in this process."""
    usual: dict[str, Any] = {"model": str(start), "epochs": 2, "batch_size": 5, "context": 48, "learning_rate": 3e-3,
                             "samples": 0, "device": "cpu", "columns": ("a", "b")}  # fmt: skip
    settings = FinetuneOptions(**{**usual, **changes})
    folder = run.parent / f"{run.name}-payload"
    for path in (run, folder):
        path.mkdir(parents=True, exist_ok=True)
    make_plan(settings, run, start, 14).write(folder)
    (folder / rank.TEXTS).write_text(json.dumps({"train": ROWS[:14], "test": ROWS[14:], "prompts": []}))
    heartbeat = Heartbeat()
    if changes.get("save_every") == 99:  # stop as soon as there is something to save
        heartbeat.paused.set()
    rank.work(folder, 0, heartbeat)
    return heartbeat


def write(path: Path, *rows: tuple[str, ...]) -> Path:
    """A CSV file of these rows."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)
    return path
