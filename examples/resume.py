"""A search that is killed half-way ends with the same model as one that was not: `python examples/resume.py`."""

from __future__ import annotations

import hashlib
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from sklearn.datasets import load_digits

COMMAND = [sys.executable, "-m", "shoal", "search", "digits.csv", "--target", "target", "--recipes", "12"]


def search(folder: str, out: str, kill: bool = False) -> None:
    process = subprocess.Popen(
        [*COMMAND, "--out", out], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    if kill:
        results = Path(folder, out, "journal")
        while process.poll() is None and not list(results.glob("*.safetensors")):
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)  # no chance to save anything
    process.wait()


def digest(folder: str, out: str) -> str:
    return hashlib.sha256(Path(folder, out, "model", "weights.safetensors").read_bytes()).hexdigest()


with tempfile.TemporaryDirectory() as folder:
    load_digits(as_frame=True).frame[:600].to_csv(Path(folder, "digits.csv"), index=False)
    search(folder, "undisturbed")
    search(folder, "killed", kill=True)
    print("killed; a model is there:", Path(folder, "killed", "model").exists())
    search(folder, "killed")  # the same command resumes
    assert digest(folder, "undisturbed") == digest(folder, "killed")
    print("resumed; the weights of both searches have the same bytes")
