"""Waiting for something that another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import pytest

Found = TypeVar("Found")


def wait_until(condition: Callable[[], Found], timeout: float = 60.0) -> Found:
    """Ask until the answer is true, and return it. The time limit only keeps a broken program from hanging a test."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.01)
    return pytest.fail(f"waited {timeout:g} s in vain")
