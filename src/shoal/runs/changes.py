"""Differences between two runs, in words."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

DATA = "data"  # the checksum of what is learned from
NETWORK = "network"  # a network in words, line by line
FIXED = "fixed values"  # of a network: a checksum of each tensor that no optimiser changes
WEIGHTS = "initial weights"  # of a network from the user's file
TEST = "test rows"  # of a table
HASHES = {
    "start": "the model to start from has changed since",
    "repeat": "it repeats another run, or none",
    WEIGHTS: "the network's initial weights differ (another seed, or another file that they are loaded from)",
    TEST: "the rows to test on differ",
}


def differences(
    before: Mapping[str, Any], now: Mapping[str, Any], file_before: str, file: str, same_file: bool = False
) -> list[str]:
    """What has changed between two fingerprints. Files are named as the user knows them.

    same_file  the file has not changed: if the data have, other rows were taken of it, or encoded in another way

    >>> differences({"data": "a", "recipes": 500, "folds": None}, {"data": "b", "recipes": 600}, "/a/x.csv", "/a/x.csv")
    ['x.csv has changed since (another checksum)', 'recipes was 500 and is 600']
    """
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    return [_words(name, before.get(name), now.get(name), file_before, file, same_file) for name in names]


def _words(name: str, before: Any, now: Any, file_before: str, file: str, same_file: bool) -> str:
    if name == DATA:
        if file and file_before and file != file_before:
            return f"the data were {file_before} and are {file}"
        if same_file:
            return f"other rows of {Path(file).name} to train on (another split, seed or encoding)"
        what = f"{Path(file).name} has" if file else "the data have"
        return f"{what} changed since (another checksum)"
    if name == NETWORK:
        return _first_other_line(before or [], now or [])
    if name == FIXED:
        other = next(name for name in {**(before or {}), **now} if (before or {}).get(name) != now.get(name))
        return f"{other!r} of the network, which is not trained, has other values"
    if name in HASHES and (name != "start" or isinstance(now, dict)):  # of shoal train, "start" is a word
        return HASHES[name]
    return f"{name} was {_shown(before)} and is {_shown(now)}"


def _first_other_line(before: list[str], now: list[str]) -> str:
    """
    >>> _first_other_line(["0: Linear", "1: ReLU"], ["0: Linear", "1: Tanh"])
    "the network had '1: ReLU' and has '1: Tanh'"
    >>> _first_other_line(["code of Net: 12ab"], ["code of Net: 34cd"])
    'the code of Net, or a constant or function that it uses, has changed'
    """
    pairs = itertools.zip_longest(before, now, fillvalue="nothing more")
    was, is_now = next((was, is_now) for was, is_now in pairs if was != is_now)
    code = was.partition(": ")[0]
    if code.startswith("code of ") and is_now.startswith(f"{code}: "):
        return f"the {code}, or a constant or function that it uses, has changed"
    return f"the network had {was!r} and has {is_now!r}"


def _shown(value: Any) -> str:
    if value is None or value == []:
        return "not given"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
