"""Where a search trains: who is there, how quick the link is, and the time that the search will take there."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from shoal.executors.dispatch import Dispatcher
from shoal.executors.find import find_workers
from shoal.executors.interface import RemoteJob, RemoteTask
from shoal.machine import size_text

ECHO = 1 << 21  # bytes that are sent to and fro to learn the speed of the link
LOAD, WORK = "shoal.search.remote.workplace:nothing", "shoal.search.remote.workplace:echo"  # what workers call
_numbers = count()


def nothing(content: Any) -> None:
    """The job of workers that are only looked at."""


def echo(job: None, payload: bytes, threads: int) -> bytes:
    return payload


@dataclass(frozen=True)
class Workplace:
    """Workers that are there."""

    name: str
    workers: int
    hosts: int
    slots: int  # shards that are trained at the same time
    threads: int  # of all these together
    turn_seconds: float = 0.01  # of a task that does nothing, there and back
    bytes_per_second: float = 1e9  # of the link

    @staticmethod
    def of(dispatcher: Dispatcher) -> Workplace:
        """As they are now; the link is measured."""
        infos, team = dispatcher.accepted, dispatcher.settings
        threads = sum(max(1, info.slots) * team.threads_on.get(info.host, team.threads) for info in infos)
        hosts = {info.host for info in infos}
        slots = dispatcher.workers.slots()
        return Workplace(dispatcher.workers.name, len(infos), len(hosts), slots, threads, *measure_link(dispatcher))

    def describe(self) -> str:
        """In a line.

        >>> Workplace("local:2", 2, 1, 2, 2, 0.002, 2e8).describe()
        'local:2: 2 workers on 1 host, 2 shards at a time, 1 thread each; link: 2 ms per message, 200 MB a second'
        """
        each = self.threads / max(self.slots, 1)
        parts = [
            f"{_count(self.workers, 'worker')} on {_count(self.hosts, 'host')}",
            f"{_count(self.slots, 'shard')} at a time",
            f"{each:.2g} thread{'s' * (each != 1)} each",
        ]
        link = f"{1e3 * self.turn_seconds:.2g} ms per message, {size_text(int(self.bytes_per_second))} a second"
        return f"{self.name}: {', '.join(parts)}; link: {link}"

    def times_faster(self, threads: int) -> float:
        """Than this process with so many threads, if a thread there is as quick as one here."""
        return self.threads / max(threads, 1)


def look(executor: Any) -> Workplace:
    """Connect to workers, see who is there, and leave them. UserError in words if nobody can take part."""
    with Dispatcher(find_workers(executor), RemoteJob.of(b"look", LOAD, WORK)) as dispatcher:
        return Workplace.of(dispatcher)


def measure_link(dispatcher: Dispatcher) -> tuple[float, float]:
    """Seconds of a message there and back, and bytes a second: the best of several, as others may be at work."""
    _echo(dispatcher, 1)  # the worker loads the job
    small, large = (min(_echo(dispatcher, size) for _ in range(3)) for size in (1, ECHO))
    dispatcher.status.done = 0
    return small, 2 * ECHO / max(large - small, 0.1 * large)


def _echo(dispatcher: Dispatcher, size: int) -> float:
    """Seconds that a message of that size takes."""
    begun = time.monotonic()
    for _ in dispatcher.run([RemoteTask(f"echo-{next(_numbers)}", bytes(size), 0.0)], _never, _whole):
        pass
    return time.monotonic() - begun


def _never() -> bool:
    return False


def _whole(task: RemoteTask) -> Sequence[RemoteTask]:
    return []


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"
