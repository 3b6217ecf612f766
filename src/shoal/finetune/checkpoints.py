"""What a run writes: checkpoints that count when they are whole, and errors of writing in one sentence."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

from shoal import atomic
from shoal.finetune.place import CHECKPOINTS
from shoal.machine import size_text

COMPLETE = "complete.json"  # written last into a checkpoint: the sizes of its files


def check_space(path: Path, parameters: int, lora: int) -> None:
    """Room for the model and two checkpoints, one being written while the other is kept: found out before training."""
    there = next(parent for parent in (path.absolute(), *path.absolute().parents) if parent.exists())
    whole = 4 * parameters
    needed = whole + (2 * whole // 10 if lora else 2 * 3 * whole) + (1 << 20)
    free = shutil.disk_usage(there).free
    if free < needed:
        raise OSError(
            f"a run of this model needs about {size_text(needed)} in {path} (the model and two checkpoints), and "
            f"{size_text(free)} are free; make room, or give a folder on another disk with --out"
        )


def checkpoints(folder: Path) -> list[Path]:
    """The latest last, complete or not."""
    found = [path for path in folder.glob("checkpoint-*") if path.name.removeprefix("checkpoint-").isdecimal()]
    return sorted(found, key=lambda path: int(path.name.removeprefix("checkpoint-")))


def last_checkpoint(run: Path) -> Path | None:
    """The latest that is complete."""
    whole = [path for path in checkpoints(run / CHECKPOINTS) if _is_whole(path)]
    return whole[-1] if whole else None


def _is_whole(path: Path) -> bool:
    """Whether all files are there in their sizes: a power failure may leave them shorter."""
    try:
        sizes = json.loads((path / COMPLETE).read_text(encoding="utf-8"))
        return all((path / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, AttributeError):
        return False


def complete(path: Path) -> None:
    """Say that a checkpoint is whole, once it is on the disk."""
    files = [file for file in path.iterdir() if file.is_file() and file.name != COMPLETE]
    atomic.sync_tree(path)
    write_json(path / COMPLETE, {file.name: file.stat().st_size for file in files})


def write_json(path: Path, content: Any) -> None:
    """Whole or not at all."""
    try:
        atomic.write_text(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    except OSError as error:
        raise cannot_write(path.parent, error) from None


class CannotWriteError(OSError):
    """Said in one sentence, with the place and what to do."""


def cannot_write(place: Path, error: Exception) -> Exception:
    """An error of writing in one sentence, whichever library had its own words for a full disk; others unchanged."""
    text = (str(error).splitlines() or ["?"])[0][:100]
    torn = re.search(r"inline_container|iostream error|PytorchStreamWriter", str(error)) is not None  # words of torch
    ours = isinstance(error, OSError) or torn or type(error).__name__ == "SafetensorError"
    if not ours or isinstance(error, CannotWriteError):
        return error
    there = next(parent for parent in (place, *place.parents) if parent.exists())
    full = re.search(r"No space left|StorageFull|os error 28", str(error)) or shutil.disk_usage(there).free < 1 << 20
    if full:
        return CannotWriteError(
            f"no space is left in {place}; make some, and the same command goes on from the last checkpoint"
        )
    return CannotWriteError(f"{place} cannot be written to: {text}")
