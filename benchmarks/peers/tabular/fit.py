"""Run as a process of its own: one contender fits one fold of one table, and says how good it is on the other rows.

A process for each fit: threads are limited for all in the same way, none inherits memory or workers of another, and one
that does not end can be ended.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np

from benchmarks.harness import child
from benchmarks.peers.tabular.search import log_loss, r_squared

THREADED = ("shoal", "realmlp")  # the others use a process for each core, and a thread in each
LAST_LINE = "result: "  # libraries may print what they like before it


def run(job: dict[str, Any], patience: float) -> dict[str, Any]:
    """The measures of a job, or {"error": why not}; it is given `patience` seconds, then ended with all it started."""
    command = child.command("benchmarks.peers.tabular.fit", job)
    threads = job["threads"] if job["contender"] in THREADED else 1
    environment = {**os.environ, **thread_variables(threads), "PYTHONWARNINGS": "ignore"}
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
        cwd=child.CHECKOUT,
    )
    try:
        output, complaints = process.communicate(timeout=patience)
    except subprocess.TimeoutExpired:
        _end(process)
        return {"error": f"did not end within {patience:.0f} s"}
    except BaseException:  # Ctrl-C: leave nothing behind
        _end(process)
        raise
    lines = [line for line in output.splitlines() if line.startswith(LAST_LINE)]
    if process.returncode or not lines:
        return {"error": (complaints.strip().splitlines() or [f"exit code {process.returncode}"])[-1][:300]}
    result: dict[str, Any] = json.loads(lines[-1].removeprefix(LAST_LINE))
    return result


def thread_variables(threads: int) -> dict[str, str]:
    """Variables of the environment that hold every library to so many threads."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "SHOAL_THREADS")
    return dict.fromkeys(names, str(threads))


def _end(process: subprocess.Popen[str]) -> None:
    if hasattr(os, "killpg"):
        os.killpg(process.pid, signal.SIGKILL)  # its group is its own: start_new_session
    else:
        process.kill()
    process.communicate()


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Load, split, fit, predict, score."""
    from benchmarks.peers.tabular import data as tabular_data
    from benchmarks.peers.tabular import peers as tabular_peers

    data = tabular_data.load(job["data"])
    train, test = tabular_data.folds(data.task, data.y, job["folds"], job["seed"])[job["fold"]]
    classes = np.unique(data.y) if data.task == "classification" else None
    peer = tabular_peers.make(job["contender"], data.task, job["seconds"], job["threads"], job["seed"] + job["fold"])
    peer.warm_up()
    begun = time.perf_counter()
    peer.fit(data.X.iloc[train], data.y[train])
    fitted = time.perf_counter()
    found = peer.predict(data.X.iloc[test], classes)
    ended = time.perf_counter()
    return {
        **scores(found, data.y[test], classes), "fit_seconds": fitted - begun, "predict_seconds": ended - fitted,
        "test_rows": len(test), "details": peer.details_,
    }  # fmt: skip


def scores(found: np.ndarray, y: np.ndarray, classes: np.ndarray | None) -> dict[str, float]:
    """Log-loss and accuracy of probabilities, R squared of values."""
    if not np.isfinite(found).all():
        raise ValueError(f"{(~np.isfinite(found)).sum()} of {found.size} predictions are not finite")
    if classes is None:
        return {"r2": r_squared(found, y)}
    accuracy = float((classes[found.argmax(axis=1)] == y).mean())
    return {"log_loss": log_loss(found, y, classes), "accuracy": accuracy}


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
    print(LAST_LINE + json.dumps(measure(json.loads(sys.argv[1]))))
