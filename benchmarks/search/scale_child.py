"""Run as a process of its own: a search over many small recipes, with its files. Says what it took."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from shoal.machine import peak_memory
from shoal.runs.kinds import JOURNAL
from shoal.search.estimators import ShoalClassifier

FEATURES, FOLDS, EPOCHS = 5, 2, 2
WIDTHS = (1, 2, 3, 4)


def table(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Two classes that can be told apart, but not always."""
    generator = np.random.default_rng(0)
    X = generator.standard_normal((rows, FEATURES)).astype(np.float32)
    noise = generator.standard_normal(rows)
    return X, (X[:, 0] + 0.5 * X[:, 1] ** 2 + 0.7 * noise > 0.3).astype(int)


def estimator(recipes: int, journal: Path) -> ShoalClassifier:
    """Networks of at most 4 neurons, in 2 folds, for 2 epochs: what is left is what a recipe costs anyway."""
    from scipy.stats import loguniform

    space = {
        "hidden": list(WIDTHS), "activation": ["relu", "tanh"], "learning_rate": loguniform(1e-3, 1e-1),
        "batch_size": [64], "epochs": [EPOCHS],
    }  # fmt: skip
    return ShoalClassifier(space, strategy="random", recipes=recipes, cv=FOLDS, seeds=1, journal=journal)


def save(fitted: ShoalClassifier, folder: Path) -> None:
    """The files that `shoal search` writes."""
    from shoal.models.saving import save as save_model
    from shoal.runs.kinds import BOARD, MODEL, REPORT
    from shoal.search.results.run_files import write_settings

    save_model(fitted, folder / MODEL)
    fitted.board_.to_csv(folder / BOARD)
    fitted.report(folder / REPORT)
    write_settings(folder, {"log": fitted.result_.log})


def main(settings: dict[str, int]) -> dict[str, Any]:
    imported = peak_memory()
    X, y = table(settings["rows"])
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        model = estimator(settings["recipes"], folder / JOURNAL)
        begun, cpu = time.perf_counter(), time.process_time()
        model.fit(X, y)
        save(model, folder)
        seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
        journal = [file.stat().st_size for file in (folder / JOURNAL).rglob("*") if file.is_file()]
        files = {
            file.name: file.stat().st_size
            for file in folder.rglob("*")
            if file.is_file() and JOURNAL not in file.relative_to(folder).parts
        }
    samples = model.result_.search.samples
    return {
        "recipes": len(model.board_), "seconds": seconds, "cpu_seconds": cpu, "phases": model.result_.phases,
        "imports_bytes": imported, "peak_bytes": peak_memory(), "files": files,
        "journal_bytes": sum(journal), "journal_files": len(journal),
        "sample_bytes": 4 * int(np.prod(samples.shape)) * settings["recipes"], "samples_in_memory": samples.in_memory,
    }  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
