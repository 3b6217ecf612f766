"""Processes that a test has started, and theirs."""

from __future__ import annotations

import psutil


def children_of(process: int, module: str = "") -> list[int]:
    """Processes that a process has started, or of these the ones that run a module."""
    found = []
    for child in psutil.Process(process).children():
        try:
            if any(module in word for word in child.cmdline()):
                found.append(child.pid)
        except psutil.NoSuchProcess:
            continue
    return found


def has_ended(process: int) -> bool:
    """Whether a process is gone, or only waits for its parent to look at it."""
    try:
        return bool(psutil.Process(process).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
