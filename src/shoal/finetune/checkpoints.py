"""Checkpoints, which are valid only when complete, and errors in writing as one sentence."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shoal.errors import UserError
from shoal.files import atomic
from shoal.files.plain_files import read_text
from shoal.machine import size_text
from shoal.runs.journal import writing
from shoal.runs.kinds import CHECKPOINTS
from shoal.runs.versions import file_hash

COMPLETE = "complete.json"  # written last into a checkpoint: the sizes and checksums of its files


def check_space(path: Path, parameters: int, lora: int) -> None:
    """Check before training that the disk has space for the model and two checkpoints (the old is kept meanwhile)."""
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
    """All checkpoints, complete or not, the latest last."""
    found = [path for path in folder.glob("checkpoint-*") if path.name.removeprefix("checkpoint-").isdecimal()]
    return sorted(found, key=lambda path: int(path.name.removeprefix("checkpoint-")))


def last_checkpoint(run: Path) -> Path | None:
    """The latest complete checkpoint. If one of its bits has changed since, that is an error."""
    whole = [path for path in checkpoints(run / CHECKPOINTS) if is_complete(path)]
    damaged = damaged_files(whole[-1]) if whole else []
    if damaged:
        raise UserError(
            f"{damaged[0]} is damaged (its checksum differs), so this run cannot be resumed from it. Restore it from a "
            f"copy, or delete {whole[-1]} to resume from an earlier checkpoint or, without one, the start"
        )
    return whole[-1] if whole else None


def _recorded(path: Path) -> dict[str, tuple[int, str]]:
    """Size and checksum of each file of a checkpoint."""
    content = json.loads(read_text(path / COMPLETE))
    return {str(name): (int(size), str(checksum)) for name, (size, checksum) in content.items()}


def is_complete(path: Path) -> bool:
    """Whether all files have their recorded sizes: a power failure may leave them shorter."""
    try:
        found = {path / name: size for name, (size, _) in _recorded(path).items()}
        return all(file.is_file() and file.stat().st_size == size for file, size in found.items())
    except (OSError, ValueError, AttributeError, TypeError, RecursionError):
        return False


def damaged_files(path: Path) -> list[Path]:
    """Files of a complete checkpoint that have changed since."""
    return [path / name for name, (_, checksum) in _recorded(path).items() if file_hash(path / name) != checksum]


def complete(path: Path) -> None:
    """Mark a checkpoint, or an initial model, as complete, after its files have been flushed to the disk."""
    files = [file for file in path.iterdir() if file.is_file() and file.name != COMPLETE]
    atomic.sync_tree(path)
    write_json(path / COMPLETE, {file.name: [file.stat().st_size, file_hash(file)] for file in files})


def write_json(path: Path, content: Any) -> None:
    """Whole or not at all."""
    with writing_run(path.parent):
        atomic.write_text(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


@contextmanager
def writing_run(run: Path) -> Iterator[None]:
    """Errors in writing to a run folder as one sentence, also errors of PyTorch and safetensors."""
    with writing(run, what="the run"):
        try:
            yield
        except Exception as error:
            by_torch = re.search(r"inline_container|iostream error|PytorchStreamWriter", str(error)) is not None
            if not by_torch and type(error).__name__ != "SafetensorError":
                raise
            full = (
                re.search(r"No space left|StorageFull|os error 28", str(error)) or shutil.disk_usage(run).free < 1 << 20
            )
            code = errno.ENOSPC if full else errno.EIO
            raise OSError(code, os.strerror(code)) from error
