"""One contender on one split: its process is started here, in its environment, and what it predicts is judged here.

A process for each fit: threads are limited for all in the same way, none inherits memory or workers of another, and one
that does not end can be ended. It never sees the targets of the test rows.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil

from benchmarks.harness.child import CHECKOUT
from benchmarks.peers.tabular.child import LAST_LINE
from benchmarks.peers.tabular.contenders import ENTRANTS
from benchmarks.peers.tabular.data import Dataset, split
from benchmarks.peers.tabular.search import log_loss, r_squared
from benchmarks.search.honest import compare, standard_error
from shoal.metrics.metric import METRICS
from shoal.metrics.tasks import Task

OVERRUN = 3.0  # times the seconds: who takes longer has failed
BESIDE = 180.0  # seconds for imports and predictions


def run(python: str, data: Dataset, job: dict[str, Any]) -> dict[str, Any]:
    """The measures of a job (contender, split, seconds, cores), or {"error": why there are none}."""
    train, test = split(data, job["split"])
    kinds = ["str" if kind.kind == "O" else str(kind) for kind in data.X.dtypes]
    described = {"task": data.task, "classes": data.classes, "names": list(data.X), "kinds": kinds}
    with tempfile.TemporaryDirectory(prefix="shoal-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        data.X.iloc[train].to_csv(folder / "train.csv", header=False, index=False)
        data.X.iloc[test].to_csv(folder / "test.csv", header=False, index=False)
        np.save(folder / "y.npy", data.y[train])
        (folder / "job.json").write_text(json.dumps({**job, **described}))
        found = _answer(python, folder, job)
        if found.get("fit_seconds", 0.0) > OVERRUN * job["seconds"]:
            found = {**found, "error": f"took {found['fit_seconds']:.0f} s instead of {job['seconds']:g} s"}
        if "error" not in found:
            found |= scores(data, np.load(folder / "predictions.npy"), test, found["details"].get("honest"))
    return found


def scores(data: Dataset, found: np.ndarray, test: np.ndarray, honest: dict[str, Any] | None) -> dict[str, Any]:
    """Loss (log-loss, or RMSE in standard deviations of the table's target), and score (accuracy, or R squared)."""
    y = data.y[test]
    if not np.isfinite(found).all():
        return {"error": f"{(~np.isfinite(found)).sum()} of {found.size} predictions are not finite"}
    if data.classes:
        judged = {"loss": log_loss(found, y), "score": float((found.argmax(axis=1) == y).mean())}
    else:
        rmse = float(np.sqrt(((found - y) ** 2).mean()))
        judged = {"loss": rmse / float(data.y.std()), "score": r_squared(found, y)}
    judged |= {"test_rows": len(y)}
    return judged | (holds(data, found, y, honest) if honest and np.isfinite(honest["corrected"]) else {})


def holds(data: Dataset, found: np.ndarray, y: np.ndarray, honest: dict[str, Any]) -> dict[str, Any]:
    """Whether the test score is inside the honest interval: as it is, and with its own error allowed for."""
    metric, task = METRICS[honest["metric"]], Task(data.task, data.classes or 1)
    answers, truth = (found, y) if data.classes else (found[:, None], y[:, None])
    rows = metric.rows(task, answers, truth, np.ones(len(y)))
    score = float(rows.mean())
    allowed = compare(SimpleNamespace(**honest), score, standard_error(rows, honest["metric"]))["covered"]
    return {"inside": bool(honest["low"] <= score <= honest["high"]), "covered": bool(allowed)}


def _answer(python: str, folder: Path, job: dict[str, Any]) -> dict[str, Any]:
    threads = "1" if ENTRANTS[job["contender"]].searched else str(job["cores"])  # searches use a process for each core
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "SHOAL_THREADS")
    quiet = {"PYTHONWARNINGS": "ignore", "RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": str(folder)}
    process = subprocess.Popen(
        [python, "-m", "benchmarks.peers.tabular.child", str(folder)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, cwd=CHECKOUT,
        env={**os.environ, **dict.fromkeys(names, threads), **quiet},
    )  # fmt: skip
    patience = OVERRUN * job["seconds"] + BESIDE
    try:
        output, complaints = process.communicate(timeout=patience)
    except subprocess.TimeoutExpired:
        end(process)
        return {"error": f"did not end within {patience:.0f} s"}
    except BaseException:  # Ctrl-C: leave nothing behind
        end(process)
        raise
    lines = [line for line in output.splitlines() if line.startswith(LAST_LINE)]
    if process.returncode or not lines:
        return {"error": (complaints.strip().splitlines() or [f"exit code {process.returncode}"])[-1][:300]}
    result: dict[str, Any] = json.loads(lines[-1].removeprefix(LAST_LINE))
    return result


def end(process: subprocess.Popen[str]) -> None:
    """End a process and all that it started, also what has a group of its own, as the processes of Ray."""
    family = psutil.Process(process.pid).children(recursive=True)
    if hasattr(os, "killpg"):
        os.killpg(process.pid, signal.SIGKILL)  # its group is its own: start_new_session
    else:
        process.kill()
    for one in family:
        with suppress(psutil.NoSuchProcess):
            one.kill()
    process.communicate()
