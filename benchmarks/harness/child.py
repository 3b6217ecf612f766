"""Modules of the benchmarks that run as processes of their own, wherever the benchmark was started."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).parents[2]


def command(module: str, question: Any) -> list[str]:
    """To be run in the folder CHECKOUT; the module finds the question, as JSON, in sys.argv[1]."""
    return [sys.executable, "-m", module, json.dumps(question)]


def ask(module: str, question: Any) -> dict[str, Any]:
    """What the module prints, which is JSON."""
    done = subprocess.run(command(module, question), cwd=CHECKOUT, capture_output=True, text=True, check=False)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise RuntimeError(f"the process of {module} failed: {last[0]}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer
