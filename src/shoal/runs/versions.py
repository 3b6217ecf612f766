"""Everything that the bits of a result depend on: versions of libraries, and the file that was read."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
from pathlib import Path
from typing import Any

from shoal.machine import instruction_set
from shoal.version import __version__

LIBRARIES = ("numpy", "scikit-learn")


def file_hash(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def value_hash(value: Any) -> str:
    """Of a value that fits into JSON."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def versions_for_bits() -> dict[str, str]:
    """What the bits of trained networks depend on, beside the instruction set. Scores may be those of scikit-learn."""
    return {name: version for name, version in versions().items() if name not in ("python", "instruction set")}


def versions() -> dict[str, str]:
    """What the bits of a result depend on, beside the settings."""
    found = {"shoal": __version__} | {name: importlib.metadata.version(name) for name in LIBRARIES}
    machine = f"{platform.system()} {platform.machine()}"
    return found | {
        "python": platform.python_version(), "machine": machine, "instruction set": instruction_set()
    }  # fmt: skip


def different_versions(earlier: dict[str, str]) -> list[str]:
    """What has changed since a run, in words; empty where the same bits can be promised."""
    now = versions()
    return [
        f"{name} is {now[name]} here and was {earlier[name]}"
        for name in now
        if name in earlier and earlier[name] != now[name] and name != "python"
    ]
