"""The interface of executors, and what a search sends to workers.

A search consists of independent tasks. They share a `RemoteJob`, which each worker gets once; a `RemoteTask` adds a few
kilobytes to a few megabytes. Both are bytes (safetensors and JSON), and so are results. An executor is a `Workers`: it
takes a call and returns a future. `dispatch` is the one loop over all of them.
"""

from __future__ import annotations

import hashlib
import importlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shoal.errors import MissingPackage, UserError
from shoal.validate import shown

INSTALL_REMEDY = "install the same versions there as here"


@dataclass(frozen=True, eq=False)
class RemoteJob:
    """What all tasks of a search share. A worker loads it once and keeps it by its key."""

    key: str  # SHA-256 of the content
    content: bytes  # given to `load` in the worker
    load: str  # "module:function" from the content (bytes, or a file mapped into memory) to any object
    work: str  # "module:function" of (that object, payload, threads) -> bytes: does a task
    file: Path | None = None  # holds the content too, for workers that see the same disk

    @staticmethod
    def of(content: bytes, load: str, work: str, file: Path | None = None) -> RemoteJob:
        return RemoteJob(hashlib.sha256(content).hexdigest(), content, load, work, file)


@dataclass(frozen=True, eq=False)
class RemoteTask:
    """A piece of work. Doing it twice, or elsewhere, gives the same bytes."""

    name: str  # unique, short: what engines and messages show
    payload: bytes | Callable[[], bytes]  # a function is called whenever the task goes out: it holds no memory before
    cost: float  # in any unit, the same for all tasks of a job: largest first, and how long is too long
    memory: int = 0  # bytes that it will need in the worker, roughly; 0: unknown
    about: Any = None  # of whoever made the task; stays here


@dataclass(frozen=True, eq=False)
class Call:
    """A task as it goes to a worker, for `worker.run`. The content of the job comes along where a worker lacks it."""

    task: str  # its name
    payload: bytes
    key: str  # of the job, as load, work and file are
    load: str
    work: str
    file: str | None
    content: bytes | None
    threads: int
    threads_on: dict[str, int]  # hosts with another number of threads
    instruction_set: str
    versions: dict[str, str]  # the worker must have these
    token: str  # a secret of this search: the reply proves that its sender has seen the call
    avoid: tuple[str, ...] = ()  # keys of workers that must not do it: it, or much else, has failed there


def process_key(host: str, pid: int) -> str:
    """How a worker is called in `Call.avoid`."""
    return f"{host}/{pid}"


Reply = dict[str, Any]  # what `worker.run` gives back; `replies.check` says what is in it


@dataclass(frozen=True)
class WorkerInfo:
    """What a worker says of itself."""

    host: str
    pid: int
    cores: int  # that it may run on
    memory: int  # bytes that it may use
    instruction_sets: tuple[str, ...]  # that its kernel can use, the fastest first
    versions: dict[str, str] = field(default_factory=dict)  # that bits depend on
    name: str = ""  # address or rank, where the executor has one
    slots: int = 1  # tasks that it does at the same time
    place: str = ""  # the same for the process that is started when this one has ended, where the executor knows that

    @property
    def key(self) -> str:
        """Its process: no other worker has it, nor the one that takes its place."""
        return process_key(self.host, self.pid)

    @staticmethod
    def of(values: object) -> WorkerInfo:
        """From what `worker.hello` has sent; ValueError where it cannot be that."""
        if not isinstance(values, dict):
            raise ValueError(f"a worker must describe itself by a dict; got {shown(values)}")
        types: dict[str, Any] = {
            "host": str,
            "pid": int,
            "cores": int,
            "memory": int,
            "instruction_sets": (list, tuple),
            "versions": dict,
        }
        for name, kind in types.items():
            if not isinstance(values.get(name), kind):
                raise ValueError(f"a worker's {name} cannot be {shown(values.get(name))}")
        words = [*values["instruction_sets"], *values["versions"], *values["versions"].values()]
        if not all(isinstance(word, str) for word in words) or values["cores"] < 1:
            raise ValueError(f"a worker cannot be {shown(values)}")
        known = {name: values[name] for name in types}
        return WorkerInfo(**known | {"instruction_sets": tuple(values["instruction_sets"])})


@dataclass(frozen=True, eq=False)
class Done:
    """A task that was done: what it gave, and the seconds that it took in the worker."""

    task: RemoteTask
    content: bytes
    seconds: float


@dataclass(frozen=True, eq=False)
class Skipped:
    """A task that nobody could do: it ended every worker that tried, or failed each time."""

    task: RemoteTask
    reason: str
    environment: bool = False  # the reason lies outside of the task, as far as is known: a full disk, a missing library


@dataclass
class Status:
    """How far it is, for whoever watches."""

    workers: int = 0
    busy: int = 0
    done: int = 0
    waiting: int = 0
    found: int = 0  # results of an earlier attempt
    lost: int = 0  # times that a worker was lost while it had a task
    repeated: int = 0  # tasks that were given out again
    notes: list[str] = field(default_factory=list)  # sentences that the user should see, once each


class Workers(ABC):
    """Processes that do tasks, wherever they are. Used by one thread."""

    name: str  # as the user gave it, such as "local:4"
    ahead: int = 2  # calls that may be submitted beyond `slots`, so that no worker waits for the next one
    notes: Sequence[str] = ()  # sentences for the user: taken into `Status.notes`

    def check(self) -> None:  # noqa: B027, most need not ask anybody
        """UserError in words if it is known already that nobody can be there: asked before data are read."""

    def prepare(self) -> None:  # noqa: B027, most have nothing to do before they know the job
        """Begin what takes time at the start, and do not wait for it: `start` does, or `close` ends it."""

    @abstractmethod
    def start(self, job: RemoteJob) -> list[WorkerInfo]:
        """Say who is there; UserError in words if nobody can take part."""

    @abstractmethod
    def slots(self) -> int:
        """Tasks that can run at the same time now; 0: nobody is there at the moment. Asked often."""

    @abstractmethod
    def submit(self, call: Call) -> Future[Reply]:
        """Have a worker do `worker.run(call)`. This, or the future, may fail with LostWorker or a BrokenExecutor."""

    def restart(self) -> None:  # noqa: B027, most need not do anything
        """After LostWorker, or where all hang: be ready for more, with new workers if need be.

        Tasks in healthy workers continue. UserError if there is no way.
        """

    def give_up(self, future: Future[Reply]) -> None:  # noqa: B027, not everybody can
        """The task of this future hangs: keep its worker from getting more, or end it, where that is possible."""

    def close(self) -> None:  # noqa: B027, not everybody starts something
        """End what was started here. Tasks that still run are not waited for."""

    def forget(self, future: Future[Reply]) -> None:
        """Nobody waits for this future any more: cancel it, or free its worker where that costs nothing."""
        future.cancel()

    def refuse(self, worker: WorkerInfo) -> bool:
        """This worker cannot take part: give it no more tasks. False: that cannot be done here."""
        return False

    def exclude(self, worker: WorkerInfo) -> bool:
        """It fails tasks which others complete: replace it, or give it no more. False: only `Call.avoid` helps."""
        return self.refuse(worker)

    def present(self) -> list[WorkerInfo] | None:
        """Who is there now, where that may change; None: the same as at the start."""
        return None


def parse_address(name: str, usual_port: int) -> tuple[str, int]:
    """kind://host:port -> host, port."""
    kind = name.partition(":")[0]
    found = re.fullmatch(r"\w+://([^/:@\s]+|\[[0-9a-fA-F:.]+\]):(\d{1,5})/?", name)
    if found is None or not 1 <= int(found[2]) <= 65535:
        usual = f"{kind}://scheduler:{usual_port}"
        raise UserError(f"{kind}://host:port needs a host and a port, such as {usual}; got {name!r}")
    return found[1], int(found[2])


def library(module: str, executor: str, extra: str) -> Any:
    """A library that only this executor needs."""
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise MissingPackage(
            f"--cluster {executor} needs {package}: pip install 'shoal-ml[{extra}]'", name=package
        ) from None
    except RuntimeError as error:  # mpi4py is there, and the library that it calls is not
        reason = str(error).partition("\n")[0]
        raise UserError(
            f"--cluster {executor}: {reason}; pip install 'shoal-ml[{extra}]' installs what it needs"
        ) from None


class LostWorker(Exception):
    """A worker has ended, or is out of reach, with its task undone. `place`: see `WorkerInfo`."""

    def __init__(self, text: str, place: str = "") -> None:
        super().__init__(text)
        self.place = place


class FailedOn(Exception):
    """An error on a worker, outside of `worker.run`, which answers with a reply."""

    def __init__(self, worker: WorkerInfo | None, error: BaseException) -> None:
        super().__init__(f"{type(error).__name__}: {error}")
        self.worker, self.error = worker, error
