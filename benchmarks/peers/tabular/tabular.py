"""How good the search is on real tables: against what people use, given the same time, cores and outer folds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.measure import progress_bar
from benchmarks.harness.report import Result
from benchmarks.peers.tabular import data as tabular_data
from benchmarks.peers.tabular import fit as tabular_fit
from benchmarks.peers.tabular import peers as tabular_peers
from benchmarks.peers.tabular.report import build_result
from shoal.errors import MissingFile
from shoal.files import atomic
from shoal.machine import thread_count

JOURNAL = "tabular.jsonl"
SAME = ("seconds", "folds", "seed", "threads")  # a line of the journal counts only if these are what is asked for


@benchmark(quick={"only": ("iris", "breast-cancer", "diabetes"), "seconds": 5.0, "folds": 2})
def tabular(
    *,
    only: tuple[str, ...] = tuple(tabular_data.SOURCES),
    contenders: tuple[str, ...] = tabular_peers.CONTENDERS,
    seconds: float = 60.0,
    folds: int = 3,
    first: int | None = None,
    seed: int = 0,
    again: tuple[str, ...] = (),
    out: Path,
) -> Result:
    """Real tables: how good the search is against random searches, forests, boosting and RealMLP in the same time.

    Takes hours. Every fit is written down when it ends, in tabular.jsonl: a run that was stopped goes on from there.

    only: Tables.
    contenders: shoal, mlp, forest, boosting, linear, realmlp.
    seconds: Seconds for each fit.
    folds: Outer folds.
    first: Measure only the first of these folds.
    seed: Seed of the outer folds.
    again: Contenders to measure anew, though an earlier run has done so.
    """
    present, absent = _present(contenders)
    tables, lacking = _tables(only)
    _present(again)  # a name that does not exist is refused before hours have passed
    common = {"seconds": seconds, "folds": folds, "seed": seed, "threads": thread_count()}
    journal = Journal(out / JOURNAL, common)
    journal.forget(again)
    jobs = [
        {"data": table["name"], "fold": fold, "contender": contender}
        for table in tables for fold in range(folds)[:first] for contender in present
    ]  # fmt: skip
    with progress_bar("tabular", len(jobs)) as tick:
        for job in jobs:
            tick(f"{job['data']}, fold {job['fold'] + 1}: {job['contender']}")
            if not journal.has(job):
                # A refit, an import or a slow machine may take its time; what takes ten times as long never ends.
                journal.add(job, tabular_fit.run({**job, **common}, patience=10 * seconds + 300))
    entries = [journal.entry(job) for job in jobs]
    notes = [f"{name} did not take part: {why}." for name, why in {**absent, **lacking}.items()]
    return build_result(common, tables, present, entries, notes)


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
