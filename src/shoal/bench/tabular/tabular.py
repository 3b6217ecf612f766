"""How good the search is on real tables: against what people use, given the same time, cores and outer folds."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from shoal import atomic
from shoal.bench.harness.machine import describe, require, version
from shoal.bench.harness.measure import progress_bar
from shoal.bench.harness.report import Result
from shoal.bench.tabular import data as tabular_data
from shoal.bench.tabular import fit as tabular_fit
from shoal.bench.tabular import peers as tabular_peers
from shoal.bench.tabular.report import build_result
from shoal.errors import MissingFile
from shoal.machine import thread_count

JOURNAL = "tabular.jsonl"
SAME = ("seconds", "folds", "seed", "threads")  # a line of the journal counts only if these are what is asked for


@dataclass(frozen=True)
class Settings:
    only: Sequence[str] = tuple(tabular_data.SOURCES)
    contenders: Sequence[str] = tabular_peers.CONTENDERS
    seconds: float = 60.0  # for each fit
    folds: int = 3  # outer ones
    first: int | None = None  # of these folds, measure only so many
    seed: int = 0
    again: Sequence[str] = ()  # contenders to measure anew, whatever the journal holds


QUICK = Settings(only=("iris", "breast-cancer", "diabetes"), seconds=5.0, folds=2)


def run(settings: Settings, folder: Path) -> Result:
    """Every contender on every fold of every table; what the journal in the folder holds already is not run again."""
    require("matplotlib")
    begun, machine = time.perf_counter(), describe()
    machine["versions"].update({name: version(name) for name in ("scikit-learn", "pytabkit")})
    contenders, absent = _present(settings.contenders)
    tables, lacking = _tables(settings.only)
    _present(settings.again)  # a name that does not exist is refused before hours have passed
    common = {"seconds": settings.seconds, "folds": settings.folds, "seed": settings.seed, "threads": thread_count()}
    journal = Journal(folder / JOURNAL, common)
    journal.forget(settings.again)
    jobs = [
        {"data": table["name"], "fold": fold, "contender": contender}
        for table in tables for fold in range(settings.folds)[: settings.first] for contender in contenders
    ]  # fmt: skip
    with progress_bar("tabular", len(jobs)) as tick:
        for job in jobs:
            tick(f"{job['data']}, fold {job['fold'] + 1}: {job['contender']}")
            if not journal.has(job):
                # A refit, an import or a slow machine may take its time; what takes ten times as long never ends.
                journal.add(job, tabular_fit.run({**job, **common}, patience=10 * settings.seconds + 300))
    entries = [journal.entry(job) for job in jobs]
    notes = [f"{name} did not take part: {why}." for name, why in {**absent, **lacking}.items()]
    result = build_result(machine, {**asdict(settings), **common}, tables, list(contenders), entries, notes)
    result.seconds = time.perf_counter() - begun
    return result


def _present(names: Iterable[str]) -> tuple[list[str], dict[str, str]]:
    """Contenders that can take part, and why the others cannot."""
    reasons = {name: tabular_peers.missing(name) for name in dict.fromkeys(names)}
    absent = {name: why for name, why in reasons.items() if why}
    return [name for name in reasons if name not in absent], absent


def _tables(names: Iterable[str]) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """What each table is, and why some are not here."""
    found, lacking = [], {}
    for name in dict.fromkeys(names):
        try:
            data = tabular_data.load(name)
        except FileNotFoundError:
            lacking[name] = "its file was not found; set SHOAL_DATA to the folder that holds it"
            continue
        found.append({
            "name": name, "task": data.task, "rows": len(data.y), "columns": data.X.shape[1],
            "categories": data.categories, "missing": data.missing,
            "classes": len(set(data.y.tolist())) if data.task == "classification" else None,
        })  # fmt: skip
    if not found:
        raise MissingFile(f"none of the tables asked for is here: {'; '.join(lacking)}")
    return found, lacking


class Journal:
    """One line of JSON for each fit that has ended, written at once: a run that was killed goes on from there."""

    def __init__(self, path: Path, common: dict[str, Any]) -> None:
        self.path, self.common = path, common
        path.parent.mkdir(parents=True, exist_ok=True)
        self.entries: dict[tuple[Any, ...], dict[str, Any]] = {}
        for line in path.read_text().splitlines() if path.exists() else []:
            entry = _parsed(line)
            # What failed is tried again.
            if entry and "error" not in entry and all(entry.get(name) == common[name] for name in SAME):
                self.entries[_key(entry)] = entry

    def has(self, job: dict[str, Any]) -> bool:
        return _key(job) in self.entries

    def entry(self, job: dict[str, Any]) -> dict[str, Any]:
        return self.entries[_key(job)]

    def add(self, job: dict[str, Any], measures: dict[str, Any]) -> None:
        entry = {**job, **self.common, **measures}
        self.entries[_key(job)] = entry
        cut_short = self.path.exists() and self.path.stat().st_size and not self.path.read_bytes().endswith(b"\n")
        with self.path.open("a") as file:
            file.write(("\n" if cut_short else "") + json.dumps(entry) + "\n")

    def forget(self, contenders: Sequence[str]) -> None:
        """Drop what some contenders did under these settings: they have changed since."""
        if not contenders or not self.path.exists():
            return
        kept = []
        for line in self.path.read_text().splitlines():
            entry = _parsed(line)
            gone = entry and entry["contender"] in contenders and all(entry[name] == self.common[name] for name in SAME)
            if entry and not gone:
                kept.append(line)
        atomic.write_text(self.path, "".join(f"{line}\n" for line in kept))
        self.entries = {key: entry for key, entry in self.entries.items() if entry["contender"] not in contenders}


def _key(job: dict[str, Any]) -> tuple[Any, ...]:
    return job["data"], job["fold"], job["contender"]


def _parsed(line: str) -> dict[str, Any] | None:
    """None for a line that a killed run left half written."""
    try:
        entry: dict[str, Any] = json.loads(line)
    except ValueError:
        return None
    return entry
