"""What differs between two runs, in words."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

DATA = "data"  # the checksum of what is learned from
HASHES = {"start": "the model to start from has changed since", "repeat": "it repeats another run, or none"}


def differences(before: Mapping[str, Any], now: Mapping[str, Any], file_before: str, file: str) -> list[str]:
    """What has changed between two fingerprints. Files are named as the user knows them.

    >>> differences({"data": "a", "recipes": 500, "folds": None}, {"data": "b", "recipes": 600}, "/a/x.csv", "/a/x.csv")
    ['x.csv has changed since (another checksum)', 'recipes was 500 and is 600']
    """
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    return [_words(name, before.get(name), now.get(name), file_before, file) for name in names]


def _words(name: str, before: Any, now: Any, file_before: str, file: str) -> str:
    if name == DATA:
        if file and file_before and file != file_before:
            return f"the data were {file_before} and are {file}"
        return f"{Path(file).name or 'the file'} has changed since (another checksum)"
    if name in HASHES:
        return HASHES[name]
    return f"{name} was {_shown(before)} and is {_shown(now)}"


def _shown(value: Any) -> str:
    if value is None or value == []:
        return "not given"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
