"""Liveness for processes that somebody else has started: torchrun or mpiexec. The first rank is the hub for all."""

from __future__ import annotations

import itertools
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from shoal.parallel.devices import find_device
from shoal.parallel.environment import launcher, world
from shoal.parallel.groups import Distributed, Group, Mpi
from shoal.parallel.job import MODEL, Job
from shoal.parallel.lifeline import Hub, Line, end_now
from shoal.parallel.randomness import torch_as_it_was

FIRST_WORD = 60.0  # seconds for all ranks to come up
LAST_WORD = 10.0  # seconds for the others to be done when the first rank is
RUNS = itertools.count()  # of this process; all ranks make the same ones in the same order


class Watched:
    """Around the work of one rank: lost ranks end all, an error of one is shown once."""

    def __init__(self, kind: str, checkpoint: str | None = None) -> None:
        self.kind, self.checkpoint = kind, checkpoint
        self.verdict: Any = None  # of torchrun's store: why it is of no use to start this run again
        self.rank, self.size = world()
        self.hub: Hub | None = None
        self.line: Line | None = None

    def __enter__(self) -> Watched:
        return self

    def store(self) -> Any:
        """Where processes find each other: torchrun's store, or one of the first rank, its address told by MPI.

        Torchrun's outlives its restarts. Without a prefix for each attempt, ranks would find addresses of dead ones.
        """
        import torch.distributed as dist

        if self.kind == "torchrun":
            serves = self.rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
            host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
            store = dist.TCPStore(host, port, self.size, serves)
            attempt, run = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"), next(RUNS)
            self.verdict = dist.PrefixStore(f"shoal/verdict/run-{run}", store)
            if self._has_diverged():
                if self.rank == 0:
                    print("error: not started again, for training has diverged", file=sys.stderr, flush=True)
                os._exit(1)
            return dist.PrefixStore(f"shoal/attempt-{attempt}/run-{run}", store)
        server = None
        if self.rank == 0:
            server = dist.TCPStore(_own_address(self.size), 0, is_master=True, wait_for_workers=False)
        host, port = Mpi(FIRST_WORD).first_object((server.host, server.port) if server else None)
        return server or dist.TCPStore(host, port, is_master=False)

    def _has_diverged(self) -> bool:
        """In an earlier attempt: torchrun starts again after any error, and this one would come again."""
        return bool(self.verdict.check(["diverged"]))

    def _judge(self, error: BaseException) -> None:
        from shoal.parallel.divergence import Diverged

        if self.verdict is not None and isinstance(error, Diverged):
            self.verdict.set("diverged", str(error))

    def join(self, group: Group) -> None:
        """All ranks have a line to the first."""
        if self.rank == 0:
            self.hub = Hub(_own_address(self.size))
            threading.Thread(target=self._watch, name="shoal-first", daemon=True).start()
        address = group.first_object(self.hub.address if self.hub else None)
        self.line = Line(address, self.rank, self._alone)

    def _watch(self) -> None:
        """In the first rank: react to what the hub hears."""
        assert self.hub is not None
        while True:
            event = self.hub.events.get()
            if event.kind == "error" and event.content["mendable"] and "shoal" in sys.argv[0]:
                print(f"error: {event.content['message']}", file=sys.stderr, flush=True)
            elif event.kind == "error":
                print(event.content["traceback"].rstrip(), file=sys.stderr)
                print(f"error: worker {event.rank} of {self.size} failed: {event.content['type']}: "
                      f"{event.content['message']}", file=sys.stderr, flush=True)  # fmt: skip
            elif event.kind == "lost":
                print(f"error: worker {event.rank} {event.content['reason']}; all others end; {self._what_next()}",
                      file=sys.stderr, flush=True)  # fmt: skip
            else:
                continue
            self.hub.stop()
            os._exit(1)

    def _alone(self, reason: str) -> None:
        if reason and self.rank == 1:  # the first one is gone: one of the others says so
            print(f"error: worker 0 is gone ({reason}); all others end; {self._what_next()}",
                  file=sys.stderr, flush=True)  # fmt: skip
        end_now(reason)

    def _what_next(self) -> str:
        """After a loss: whether the launcher starts again, and from where."""
        again, most = (os.environ.get(f"TORCHELASTIC_{name}", "0") for name in ("RESTART_COUNT", "MAX_RESTARTS"))
        if self.kind == "torchrun" and again.isdecimal() and most.isdecimal() and int(again) < int(most):
            place = "the last checkpoint" if self.checkpoint else "the beginning, since no checkpoint folder was given"
            return f"torchrun starts them again (restart {int(again) + 1} of {most}), from {place}"
        hint = "; torchrun --max-restarts 3 does so by itself" if self.kind == "torchrun" else ""
        if not self.checkpoint:
            return f"a run with a checkpoint folder could go on from there{hint}"
        return f"the same command goes on from the last checkpoint in {self.checkpoint}{hint}"

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self.line is None:
            return
        if error is None or isinstance(error, KeyboardInterrupt):
            self.line.tell("done")
            if self.hub is not None and error is None:
                self._wait_for_all()
            self.line.close()
            if self.hub is not None:
                self.hub.close()
            return
        self._tell(error)

    def _wait_for_all(self) -> None:
        """A rank that is a little later must not find its line broken: it would take itself for the one that failed."""
        assert self.hub is not None
        deadline = time.monotonic() + LAST_WORD
        while len(self.hub.ended) < self.size and time.monotonic() < deadline:
            time.sleep(0.01)

    def _tell(self, error: BaseException) -> None:
        """Say what happened, and wait to be ended: the first rank shows it once for all."""
        from shoal.parallel.groups import Lost
        from shoal.parallel.rank import NETWORK, describe

        assert self.line is not None
        if not isinstance(error, Lost) and not (isinstance(error, RuntimeError) and NETWORK.search(str(error))):
            self._judge(error)
            self.line.tell("error", **describe(error))
        time.sleep(10)  # an end is put to this by the hub
        os._exit(1)


def _own_address(size: int) -> str:
    """Of the first rank's machine, as the others see it."""
    local = os.environ.get("LOCAL_WORLD_SIZE") or os.environ.get("MPI_LOCALNRANKS")
    if local and int(local) == size:
        return "127.0.0.1"
    if "MASTER_ADDR" in os.environ:  # of torchrun: the machine of the first rank
        return os.environ["MASTER_ADDR"]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing: only asks which of our addresses leads outside
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


@contextmanager
def own_group(job: Job) -> Iterator[Group]:
    """The group of all processes that torchrun or mpiexec has started, each watched by the first."""
    kind = launcher()
    assert kind is not None
    rank, size = world()
    with torch_as_it_was(), Watched(kind, job.checkpoint) as watched:
        group: Group
        if kind == "mpi" and job.strategy not in MODEL:
            group = Mpi(job.timeout)
        else:
            local = int(os.environ.get("LOCAL_RANK", rank))
            group = Distributed(watched.store(), rank, size, job.timeout, find_device(job.device, local))
        watched.join(group)
        yield group
        group.close()
