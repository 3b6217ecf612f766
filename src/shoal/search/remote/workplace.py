"""The workers of a search, and how much faster they are than this process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shoal.executors.dispatch import Dispatcher
from shoal.executors.find import find_workers
from shoal.executors.interface import RemoteJob

NOTHING = "shoal.search.remote.workplace:nothing"  # what workers would call


def nothing(content: Any) -> None:
    """The job of workers that are only looked at."""


@dataclass(frozen=True)
class Workplace:
    """Workers that are there."""

    name: str
    workers: int
    hosts: int
    slots: int  # shards that are trained at the same time
    threads: int  # of all these together

    @staticmethod
    def of(dispatcher: Dispatcher) -> Workplace:
        """As they are now."""
        infos, team = dispatcher.accepted, dispatcher.settings
        threads = sum(max(1, info.slots) * team.threads_on.get(info.host, team.threads) for info in infos)
        hosts = {info.host for info in infos}
        slots = dispatcher.workers.slots()
        return Workplace(dispatcher.workers.name, len(infos), len(hosts), slots, threads)

    def describe(self) -> str:
        """In a line.

        >>> Workplace("local:2", 2, 1, 2, 2).describe()
        'local:2: 2 workers on 1 host, 2 shards at a time, 1 thread each'
        """
        each = self.threads / max(self.slots, 1)
        parts = [
            f"{_count(self.workers, 'worker')} on {_count(self.hosts, 'host')}",
            f"{_count(self.slots, 'shard')} at a time",
            f"{each:.2g} thread{'s' * (each != 1)} each",
        ]
        return f"{self.name}: {', '.join(parts)}"

    def times_faster(self, threads: int) -> float:
        """Than this process with so many threads, if a thread there is as quick as one here."""
        return self.threads / max(threads, 1)


def look(executor: Any) -> Workplace:
    """Connect to workers, see who is there, and leave them. UserError in words if nobody can take part."""
    with Dispatcher(find_workers(executor), RemoteJob.of(b"look", NOTHING, NOTHING)) as dispatcher:
        return Workplace.of(dispatcher)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"
