"""Run as a process of its own, by any version of Shoal: one search, here or on workers. Says what it took."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import shoal
from shoal.search.estimators import ShoalClassifier

FEATURES = 20


def table(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Three classes that can be told apart, but not always."""
    generator = np.random.default_rng(0)
    X = generator.standard_normal((rows, FEATURES)).astype(np.float32)
    found = X[:, :4].sum(axis=1) + X[:, 4] * X[:, 5] + 0.5 * generator.standard_normal(rows)
    return X, np.digitize(found, [-1.0, 1.0])


def processor_seconds() -> tuple[float, float]:
    """Of this process, and of processes that it has started and that have ended."""
    times = os.times()
    return times.user + times.system, times.children_user + times.children_system


def main(settings: dict[str, Any]) -> dict[str, Any]:
    X, y = table(settings["rows"])
    where = {name: settings[name] for name in ("executor", "journal") if settings[name] is not None}
    model = ShoalClassifier(recipes=settings["recipes"], **where)
    begun, before = time.perf_counter(), processor_seconds()
    model.fit(X, y)
    seconds, after = time.perf_counter() - begun, processor_seconds()
    with tempfile.TemporaryDirectory() as place:
        shoal.save(model, Path(place) / "model")
        weights = (Path(place) / "model" / "weights.safetensors").read_bytes()
    return {
        "seconds": seconds, "own_cpu_seconds": after[0] - before[0], "children_cpu_seconds": after[1] - before[1],
        "sha256": hashlib.sha256(weights).hexdigest(), "phases": model.result_.phases,
        "trained_on": getattr(model.result_, "trained_on", {}),
    }  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
