"""Disks of a test's own, where this user may mount them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, options: str = "size=1m") -> Iterator[Path]:
    """A disk in a new folder, with options of mount."""
    folder.mkdir()
    try:
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "shoal", folder], capture_output=True)
    except FileNotFoundError:
        pytest.skip("needs the command mount")
    if mounted.returncode:
        pytest.skip("needs the right to mount a disk")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)
