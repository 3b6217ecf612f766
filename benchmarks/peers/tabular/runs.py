"""All fits of a benchmark: those that the journal has, and those to do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.benchmark import commit
from benchmarks.harness.machine import load_average
from benchmarks.harness.measure import progress_bar
from benchmarks.peers.tabular import fit as tabular_fit
from benchmarks.peers.tabular.contenders import ENTRANTS, OURS
from benchmarks.peers.tabular.data import Dataset
from benchmarks.peers.tabular.environments import Environments
from benchmarks.peers.tabular.journal import FAILED, Journal
from shoal.validate import one_of

JOURNAL = "tabular.jsonl"
CORES = 2  # for each fit


@dataclass(frozen=True)
class Run:
    """What is measured, and where it is written down."""

    environments: Environments
    splits: int
    out: Path

    def measure(
        self, title: str, tables: Sequence[Dataset], seconds: Iterable[float], again: Iterable[str]
    ) -> list[dict[str, Any]]:
        """Entries of all fits. Contenders take turns within a split of a table."""
        journal = Journal(self.out / JOURNAL)
        jobs = [
            (data, self._job(data.name, split, contender, each))
            for data in tables for split in range(self.splits) for each in seconds
            for contender in self.environments.present
        ]  # fmt: skip
        journal.forget((job for _, job in jobs), again)
        now = commit()
        with progress_bar(title, len(jobs)) as tick:
            for data, job in jobs:
                tick(f"{job['table']}, split {job['split']}: {job['contender']}, {job['seconds']:g} s")
                if not journal.has(job):
                    load = load_average()[:1]
                    found = tabular_fit.run(self.environments.present[job["contender"]].python, data, job)
                    journal.add(job, {"commit": now, "load": load, **found})
        return [journal.entry(job) for _, job in jobs]

    def notes(self, entries: Iterable[dict[str, Any]]) -> list[str]:
        """Who is absent, and by which code Shoal's results were made."""
        commits = sorted({str(entry["commit"]) for entry in entries if entry["contender"] == OURS})
        return [
            *(f"{name} did not take part: {why}." for name, why in self.environments.absent.items()),
            *([f"Shoal's fits were made at {' and '.join(commits)}."] if commits else []),
        ]

    def _job(self, table: str, split: int, contender: str, seconds: float) -> dict[str, Any]:
        return {
            "table": table, "split": split, "contender": contender, "seconds": seconds, "cores": CORES,
            "versions": self.environments.versions(contender),
        }  # fmt: skip


def check_again(names: Iterable[str]) -> None:
    """Refuse what does not exist before hours have passed."""
    for name in names:
        one_of("--again", name, [*ENTRANTS, FAILED])
