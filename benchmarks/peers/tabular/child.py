"""Run as a process of its own, in the contender's environment: fits one split of one table and predicts its test rows.

It finds a folder with `train.csv`, `test.csv` (without targets), `y.npy` and `job.json`, and writes `predictions.npy`.
It prints one line of JSON at the end. Nothing here imports Shoal, unless Shoal is the contender.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.tabular.contenders import ENTRANTS, OURS

LAST_LINE = "result: "  # libraries may print what they like before it


def fit(folder: Path) -> dict[str, Any]:
    """Read, fit, predict."""
    job = json.loads((folder / "job.json").read_text())
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: job["cores"]])
    train, test = read(folder, job["names"], job["kinds"])
    if job["contender"] != OURS:
        train, test = with_categories(train, test)
    y = np.load(folder / "y.npy")
    entrant = ENTRANTS[job["contender"]].make(job["task"], job["seconds"], job["cores"], job["split"])
    os.chdir(folder)  # for libraries that write where they are
    entrant.warm_up()
    begun = time.perf_counter()
    entrant.fit(train, y)
    fitted = time.perf_counter()
    found = entrant.predict(test, job["classes"])
    ended = time.perf_counter()
    np.save(folder / "predictions.npy", np.asarray(found, dtype=float))
    return {"fit_seconds": fitted - begun, "predict_seconds": ended - fitted, "details": entrant.details_}


def read(folder: Path, names: list[str], kinds: list[str]) -> list[Any]:
    """Rows to train on and to test on, as numbers and words."""
    import pandas as pd

    numbers = {name: kind for name, kind in zip(names, kinds, strict=True) if kind != "str"}
    parts = []
    for name in ("train.csv", "test.csv"):
        part = pd.read_csv(folder / name, header=None, names=range(len(names)), dtype=str, skip_blank_lines=False)
        parts.append(part.set_axis(names, axis=1).astype(numbers))  # not by read_csv, which may miss the last bit
    return parts


def with_categories(*parts: Any) -> list[Any]:
    """Words as categories, and columns without names: some libraries want the one, some refuse the other."""
    import pandas as pd

    parts = tuple(part.set_axis([f"column{k}" for k in range(part.shape[1])], axis=1) for part in parts)
    kinds = {}
    for name in parts[0].select_dtypes(exclude="number"):
        kinds[name] = pd.CategoricalDtype(sorted({word for part in parts for word in part[name].dropna()}))
    return [part.astype(kinds) for part in parts]


def end_with_parent() -> None:
    """End this process and all that it started when the benchmark is no more, however that ended."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os.killpg(os.getpgid(0), signal.SIGKILL)

    if hasattr(os, "killpg"):
        threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    end_with_parent()
    print(LAST_LINE + json.dumps(fit(Path(sys.argv[1]))))
