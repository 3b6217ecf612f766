"""The command line as tests use it: in a new process, or in this one where the process is not the point."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "shoal", *map(str, arguments)]


def run(folder: Path, *arguments: object, code: int = 0, **options: Any) -> subprocess.CompletedProcess[str]:
    options = {"cwd": folder, "capture_output": True, "text": True, "timeout": 120, **options}
    result = subprocess.run(command(*arguments), **options)
    assert result.returncode == code, result.stdout + result.stderr
    assert "Traceback" not in result.stderr
    return result


def start(folder: Path, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(command(*arguments), cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(process: subprocess.Popen[str], words: str) -> None:
    """Read what the process says until it says this: no guess at how long that takes."""
    assert process.stderr is not None
    for line in process.stderr:
        if re.search(words, line):
            return
    pytest.fail(f"the process ended without saying {words!r}: {process.communicate()}")
