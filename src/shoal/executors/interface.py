"""What a search hands to workers, and what an executor has to offer.

A search is cut into tasks that never talk to each other. All tasks of a search share a `Job`, which each worker gets
once; a `Task` is a few kilobytes to a few megabytes more. Both are bytes (safetensors and JSON), and so is what comes
back. An executor is a `Workers`: it takes a call, and gives back a future. `dispatch` is the one loop over all of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, eq=False)
class Job:
    """What all tasks of a search share. A worker loads it once and keeps it by its key."""

    key: str  # hash of the content
    content: bytes  # given to `load` in the worker
    load: str  # "module:function" from the content (bytes, or a file mapped into memory) to any object
    work: str  # "module:function" of (that object, payload, threads) -> bytes: does a task
    file: Path | None = None  # holds the content too, for workers that see the same disk


@dataclass(frozen=True, eq=False)
class Task:
    """A piece of work. Doing it twice, or elsewhere, gives the same bytes."""

    name: str  # unique, short: what engines and messages show
    payload: bytes
    cost: float  # in any unit, the same for all tasks of a job: largest first, and how long is too long
    memory: int = 0  # bytes that it will need in the worker, roughly; 0: unknown
    about: Any = None  # of whoever made the task; stays here


@dataclass(frozen=True)
class WorkerInfo:
    """What a worker says of itself."""

    host: str
    pid: int
    cores: int  # that it may run on
    memory: int  # bytes that it may use
    instruction_sets: tuple[str, ...]  # that its kernel can use, the widest last
    versions: dict[str, str] = field(default_factory=dict)  # that bits depend on
    name: str = ""  # address or rank, where the executor has one


@dataclass(frozen=True, eq=False)
class Done:
    """A task that was done: what it gave, and the seconds that it took in the worker."""

    task: Task
    content: bytes
    seconds: float


@dataclass(frozen=True, eq=False)
class SetAside:
    """A task that nobody could do: it ended every worker that tried, or failed each time."""

    task: Task
    reason: str


@dataclass
class Status:
    """How far it is, for whoever watches."""

    workers: int = 0
    busy: int = 0
    done: int = 0
    waiting: int = 0
    lost: int = 0  # times that a worker was lost while it had a task
    repeated: int = 0  # tasks that were given out again
    notes: list[str] = field(default_factory=list)  # sentences that the user should see, once each


class Workers(ABC):
    """Processes that do tasks, wherever they are. Used by one thread."""

    name: str  # as the user gave it, such as "local:4"

    @abstractmethod
    def start(self, job: Job) -> list[WorkerInfo]:
        """Make the job known, and say who is there; UserError in words if nobody can take part."""

    @abstractmethod
    def slots(self) -> int:
        """Tasks that can run at the same time now; 0: nobody is there at the moment."""

    @abstractmethod
    def submit(self, task: Task) -> Future[bytes]:
        """Begin a task. The future may fail with WorkerLost, or with what the task raised."""

    @abstractmethod
    def restart(self) -> None:
        """After WorkerLost: be ready for more tasks, with new workers if need be; UserError if there is no way."""

    @abstractmethod
    def give_up(self, future: Future[bytes]) -> None:
        """The task of this future hangs: keep its worker from getting more, or end it, where that is possible."""

    @abstractmethod
    def close(self) -> None:
        """End what was started here. Tasks that still run are not waited for."""


class WorkerLost(Exception):
    """A worker has ended, or is out of reach, with its task undone."""
