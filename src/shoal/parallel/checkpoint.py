"""Checkpoints: model, optimiser, position in the data, history. Each replaces the one before in a single rename."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import torch

from shoal.atomic import new_file
from shoal.errors import CannotWrite, UserError

NAME = "checkpoint.pt"
TEMPORARY = "shoal-run-"  # temporary folders of launchers begin so; then comes the process number
MARK = ".passing"  # marks a temporary checkpoint folder, which its launcher removes
VERSION = 1


def save(folder: str | os.PathLike[str], content: dict[str, Any]) -> None:
    """Replace the checkpoint in a folder."""
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    try:
        with new_file(place / NAME) as partial, open(partial, "wb") as file:
            torch.save({"version": VERSION, **content}, file)
    except (OSError, RuntimeError) as error:  # torch raises RuntimeError for a full disk
        raise CannotWrite(f"the checkpoint cannot be written to {place}: {_first_line(error)}") from None


def peek(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """The fingerprint of a checkpoint; empty if there is none or it is damaged, which `load` will say."""
    try:
        found = torch.load(Path(folder) / NAME, map_location="cpu", weights_only=True, mmap=True)
        return dict(found["fingerprint"])
    except Exception:
        return {}


def kept(folder: str | os.PathLike[str] | None) -> str:
    """For errors: where the last checkpoint is, or that there is none."""
    if folder is None or (Path(folder) / MARK).exists():
        return "no checkpoint is kept, since no folder was given for it"
    if not (Path(folder) / NAME).exists():
        return f"there is no checkpoint in {folder} yet"
    return f"the last good checkpoint is {Path(folder) / NAME}"


def temporary_place(folder: Path) -> str:
    """A folder for checkpoints that the user has not asked for: restarts need them, and the launcher removes them."""
    folder.mkdir()
    (folder / MARK).touch()
    return str(folder)


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


def load(folder: str | os.PathLike[str], fingerprint: dict[str, Any]) -> dict[str, Any] | None:
    """The checkpoint in a folder, or None if there is none. One of another run is refused."""
    path = Path(folder) / NAME
    if not path.exists():
        return None
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise UserError(f"{path} is damaged and cannot be resumed ({_first_line(error)}); delete it") from None
    if content.get("version") != VERSION:
        raise UserError(f"{path} is of version {content.get('version')!r}, this program reads {VERSION}; delete it")
    before = content["fingerprint"]
    for name in (*fingerprint, *(name for name in before if name not in fingerprint)):
        found, value = before.get(name), fingerprint.get(name)  # newer options are only there if they were given
        if found != value:
            raise UserError(
                f"{path} is of another run: {name} was {found!r} and is now {value!r}; "
                "give another folder, or delete it"
            )
    return dict(content)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:100]
