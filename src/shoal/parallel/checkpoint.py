"""Checkpoints: model, optimiser, place in the data, history. Written beside, then renamed: one is always whole."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

NAME = "checkpoint.pt"
VERSION = 1


def save(folder: str | os.PathLike[str], content: dict[str, Any]) -> None:
    """Replace the checkpoint in a folder."""
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    partial = place / f".{NAME}.{os.getpid()}.part"
    try:
        with open(partial, "wb") as file:
            torch.save({"version": VERSION, **content}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, place / NAME)
    finally:
        partial.unlink(missing_ok=True)


def load(folder: str | os.PathLike[str], fingerprint: dict[str, Any]) -> dict[str, Any] | None:
    """The checkpoint in a folder, or None if there is none. One of another run is refused."""
    path = Path(folder) / NAME
    if not path.exists():
        return None
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise ValueError(f"{path} is damaged and cannot be continued ({_first_line(error)}); delete it") from None
    if content.get("version") != VERSION:
        raise ValueError(f"{path} is of version {content.get('version')!r}, this program reads {VERSION}; delete it")
    for name, value in fingerprint.items():
        found = content["fingerprint"].get(name)
        if found != value:
            raise ValueError(
                f"{path} is of another run: {name} was {found!r} and is now {value!r}; "
                "give another folder, or delete it"
            )
    return dict(content)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:100]
