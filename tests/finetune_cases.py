"""What tests of fine-tuning share: texts, a tiny model to begin with, and a worker in this process."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from test_finetune import problems

from shoal.finetune import models, rank
from shoal.finetune.settings import Settings, make_plan

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")


ROWS = [f"statement:\n{row['statement'][:60]}\n\nsolution:\n{row['solution'][:60]}" for row in problems()[:17]]


class Line:
    """Where a worker says how it goes; nobody listens."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []
        self.paused = threading.Event()

    def tell(self, kind: str, **content: Any) -> None:
        self.told.append(content)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A model to begin with. Two test processes on two cores would only be in each other's way with more threads."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    rank.quiet()
    models.make_tiny(folder, ROWS, 64, seed=1)
    yield folder
    torch.set_num_threads(before)


def worker(run: Path, start: Path, **changes: Any) -> Line:
    """The whole program of one worker, in this process."""
    settings = Settings(**{"model": str(start), "epochs": 2, "batch_size": 5, "context": 48, "learning_rate": 3e-3,
                           "samples": 0, "device": "cpu", "columns": ("a", "b"), **changes})  # fmt: skip
    folder = run.parent / f"{run.name}-parcel"
    for path in (run, folder):
        path.mkdir(parents=True, exist_ok=True)
    make_plan(settings, run, start, 14).write(folder)
    (folder / rank.TEXTS).write_text(json.dumps({"train": ROWS[:14], "test": ROWS[14:], "prompts": []}))
    line = Line()
    if changes.get("save_every") == 99:  # stop as soon as there is something to save
        line.paused.set()
    rank.work(folder, 0, line)
    return line
