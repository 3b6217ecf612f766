"""Checkpoints: model, optimiser, position in the data, history. Each replaces the one before in a single rename.

A checkpoint is a file of `torch.save`, which is a zip archive. Its comment has a sha256 of all bytes before it.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any

from shoal.errors import CannotWrite, UserError
from shoal.files.atomic import new_file
from shoal.files.plain_files import open_file, read_bytes
from shoal.parallel.lazy import torch
from shoal.runs.changes import FIXED, differences

NAME = "checkpoint.pt"
TEMPORARY = "shoal-run-"  # temporary folders of launchers begin so; then comes the process number
MARK = ".passing"  # marks a temporary checkpoint folder, which its launcher removes
VERSION = 2
NOTE = b"shoal sha256 "  # before the checksum
LENGTH = len(NOTE) + 64


def save(folder: str | os.PathLike[str], content: dict[str, Any]) -> None:
    """Replace the checkpoint in a folder."""
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    try:
        with new_file(place / NAME) as partial, open(partial, "wb") as file:
            torch.save({"version": VERSION, **content}, file)
            file.flush()
            _add_checksum(partial)
    except (OSError, RuntimeError) as error:
        raise CannotWrite(f"the checkpoint cannot be written to {place}: {_first_line(error)}; {kept(place)}") from None


def peek(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """The fingerprint of a checkpoint; empty if there is none or it is damaged, which `load` will say."""
    try:
        os.close(open_file(Path(folder) / NAME))  # a FIFO would be waited for
        found = torch.load(Path(folder) / NAME, map_location="cpu", weights_only=True, mmap=True)
        return dict(found["fingerprint"])
    except Exception:
        return {}


def kept(folder: str | os.PathLike[str] | None) -> str:
    """For errors: where the last checkpoint is, or that there is none."""
    if folder is None or is_temporary(folder):
        return "no checkpoint is kept, since no folder was given for it"
    if not (Path(folder) / NAME).exists():
        return f"there is no checkpoint in {folder} yet"
    return f"the last good checkpoint is {Path(folder) / NAME}"


def temporary_place(folder: Path) -> str:
    """A folder for checkpoints that the user has not asked for: restarts need them, and the launcher removes them."""
    folder.mkdir()
    (folder / MARK).touch()
    return str(folder)


def is_temporary(folder: str | os.PathLike[str]) -> bool:
    """Whether the launcher has made the folder for itself."""
    return (Path(folder) / MARK).exists()


def make_place(folder: str | os.PathLike[str]) -> None:
    """Make the folder, and find out before training whether it can be written."""
    place = Path(folder)
    if place.exists() and not place.is_dir():
        raise UserError(f"{place} is a file; a checkpoint needs a folder")
    try:
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        raise UserError(f"a checkpoint cannot be written to {place}: {error.strerror or error}") from None


def load(
    folder: str | os.PathLike[str], fingerprint: dict[str, Any], data: str = "", checksum: str = "", epochs: int = 0
) -> dict[str, Any] | None:
    """The checkpoint in a folder, or None if there is none. One of another run is refused, and one of more epochs.

    data, checksum  what the data are called, and the checksum of their file, for the error
    """
    path = Path(folder) / NAME
    if not path.exists():
        return None
    try:
        if not _is_whole(path):
            raise UserError("its checksum differs")
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise UserError(
            f"{path} is damaged and cannot be resumed ({_first_line(error)}). Delete it to start over, or restore it "
            "from a copy"
        ) from None
    if content.get("version") != VERSION:
        raise UserError(f"{path} is of version {content.get('version')!r}, this program reads {VERSION}; delete it")
    before, now = (_without_changing(one, content["unchanged"]) for one in (content["fingerprint"], fingerprint))
    file_before, checksum_before = content["file"]
    same_file = bool(data) and checksum == checksum_before
    changes = differences(before, now, file_before, data, same_file)
    if changes:
        raise UserError(
            f"{path} holds a run that differs: {'; '.join(changes)}. Give another folder, or delete it to start over"
        )
    begun = content["epoch"] + (content["position"] > 0)
    if epochs and begun > epochs:
        raise UserError(
            f"{path} has begun {begun} epochs, more than the {epochs} asked for. Ask for at least {begun}, give "
            "another folder, or delete it to start over"
        )
    return dict(content)


def _without_changing(fingerprint: dict[str, Any], unchanged: list[str]) -> dict[str, Any]:
    """Without the buffers that training has changed, such as running means: a model at hand may have either values."""
    values = fingerprint.get(FIXED, {})
    return fingerprint | {FIXED: {name: values.get(name) for name in unchanged}}


def _add_checksum(path: Path) -> None:
    """Write it into the comment at the end of a zip archive, which has none yet; its length stands before it."""
    with open(path, "rb+") as file:
        file.seek(-2, os.SEEK_END)
        file.write(LENGTH.to_bytes(2, "little"))
        file.seek(0)
        checksum = hashlib.file_digest(file, "sha256").hexdigest()
        file.write(NOTE + checksum.encode())


def _is_whole(path: Path) -> bool:
    """Whether every byte is as it was written."""
    content = read_bytes(path, None)
    end = len(content) - LENGTH
    return end > 0 and content[end:] == NOTE + hashlib.sha256(memoryview(content)[:end]).hexdigest().encode()


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
