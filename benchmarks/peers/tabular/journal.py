"""One line of JSON for each fit that has ended, written at once: a run that was stopped goes on from there."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from shoal.files import atomic

KEY = ("table", "split", "contender", "seconds", "cores", "versions")
FAILED = "failed"


class Journal:
    """What was measured, by `KEY`. Failures count too; they are measured again when that is asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text().splitlines() if path.exists() else []
        self.entries = {_key(entry): entry for entry in map(_parsed, lines) if entry}

    def has(self, job: dict[str, Any]) -> bool:
        return _key(job) in self.entries

    def entry(self, job: dict[str, Any]) -> dict[str, Any]:
        return self.entries[_key(job)]

    def add(self, job: dict[str, Any], measures: dict[str, Any]) -> None:
        entry = {**job, **measures}
        self.entries[_key(job)] = entry
        cut_short = self.path.exists() and self.path.stat().st_size and not self.path.read_bytes().endswith(b"\n")
        with self.path.open("a") as file:
            file.write(("\n" if cut_short else "") + json.dumps(entry) + "\n")

    def forget(self, jobs: Iterable[dict[str, Any]], again: Iterable[str]) -> None:
        """Drop those of these jobs that some contenders did, or that failed."""
        again = set(again)
        gone = set()
        for job in jobs:
            entry = self.entries.get(_key(job), {})
            if entry and (job["contender"] in again or (FAILED in again and "error" in entry)):
                gone.add(_key(job))
        if gone:
            self.entries = {key: entry for key, entry in self.entries.items() if key not in gone}
            atomic.write_text(self.path, "".join(f"{json.dumps(entry)}\n" for entry in self.entries.values()))


def _key(job: dict[str, Any]) -> tuple[str, ...]:
    return tuple(json.dumps(job.get(name), sort_keys=True) for name in KEY)


def _parsed(line: str) -> dict[str, Any] | None:
    """None for a line that a killed run left half written."""
    try:
        entry: dict[str, Any] = json.loads(line)
    except ValueError:
        return None
    return entry
