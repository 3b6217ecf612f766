"""Processes that torchrun or mpiexec has started: each is monitored by the first rank."""

from __future__ import annotations

import hashlib
import itertools
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from shoal.parallel.divergence import Diverged
from shoal.parallel.exact.randomness import torch_as_it_was
from shoal.parallel.groups import Group, Mpi, connect
from shoal.parallel.launch.environment import launcher, world
from shoal.parallel.launch.failures import describe, is_peer_lost
from shoal.parallel.launch.heartbeat import Event, Heartbeat, HeartbeatMonitor, end_process, end_worker
from shoal.parallel.launch.launcher import local_store
from shoal.parallel.lazy import torch
from shoal.runs.lock import machine

if TYPE_CHECKING:
    from shoal.parallel.job import Job

SECONDS_TO_CONNECT = 60.0
SECONDS_TO_END = 10.0  # the first rank waits so long for the others at the end, and others for being ended by it
RUNS = itertools.count()  # runs of this process; all ranks have the same ones in the same order


@contextmanager
def own_group(job: Job) -> Iterator[Group]:
    """The group of all processes that the launcher has started. A lost rank ends all; an error is shown once."""
    kind = launcher()
    assert kind is not None
    with torch_as_it_was():
        member = ExternalRank(kind, job.checkpoint)
        local = int(os.environ.get("LOCAL_RANK", member.rank))
        try:
            group = connect(job, member.rank, member.size, local, kind == "mpi", member.store)
            member.join(group)
            yield group
            group.close()
        except BaseException as error:
            member.fail(error)
            raise
        member.finish()


class ExternalRank:
    """This process among those of the launcher."""

    def __init__(self, kind: str, checkpoint: str | None = None) -> None:
        self.kind, self.checkpoint = kind, checkpoint
        self.across_restarts: Any = None  # torchrun's store, in which restarts find that this run has diverged
        self.rank, self.size = world()
        self.monitor: HeartbeatMonitor | None = None
        self.heartbeat: Heartbeat | None = None

    # ---- connecting ----

    def store(self) -> Any:
        """Where processes find each other: torchrun's store, or one of rank 0, whose address MPI sends to the others.

        Torchrun's outlives restarts, so each attempt has a prefix: without it ranks would find addresses of dead ones.
        """
        import torch.distributed as dist

        if self.kind == "torchrun":
            serves = self.rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
            host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
            store = dist.TCPStore(host, port, self.size, serves)
            attempt, run = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"), next(RUNS)
            self.across_restarts = dist.PrefixStore(f"shoal/verdict/run-{run}", store)
            self._refuse_diverged()
            return dist.PrefixStore(f"shoal/attempt-{attempt}/run-{run}", store)
        server, ranks = None, Mpi(SECONDS_TO_CONNECT)
        here = _all_here(ranks)
        if self.rank == 0:
            server = local_store() if here else _open_store()
        host, port = ranks.first_object((server.host, server.port) if server else None)
        return server or dist.TCPStore(host, port, is_master=False)

    def _refuse_diverged(self) -> None:
        """Torchrun restarts after any error; a run that has diverged would diverge again."""
        if self.has_diverged():
            if self.rank == 0:
                print("error: not restarted, since training has diverged", file=sys.stderr, flush=True)
            raise SystemExit(1)

    def has_diverged(self) -> bool:
        """In an earlier attempt of torchrun."""
        return bool(self.across_restarts.check(["diverged"]))

    def join(self, group: Group) -> None:
        """Connect to the monitor, which runs in rank 0."""
        here = _all_here(group)
        if self.rank == 0:
            self.monitor = HeartbeatMonitor("127.0.0.1" if here else _own_address())
            threading.Thread(target=self._watch, args=(self.monitor,), name="shoal-rank-0", daemon=True).start()
        address = group.first_object(self.monitor.address if self.monitor else None)
        self.heartbeat = Heartbeat(address, self.rank, self._on_lost)

    # ---- while it runs ----

    def _watch(self, monitor: HeartbeatMonitor) -> None:
        """In rank 0: the first error or loss is shown, and ends all ranks."""
        while True:
            event = monitor.events.get()
            if event.kind in ("error", "lost"):
                print(self._message(event), file=sys.stderr, flush=True)
                monitor.stop()
                end_process(1)

    def _message(self, event: Event) -> str:
        content = event.content
        if event.kind == "lost":
            return f"error: worker {event.rank} {content['reason']}; all others end; {self.next_step()}"
        if content["user_error"] and "shoal" in sys.argv[0]:
            return f"error: {content['message']}"
        summary = f"error: worker {event.rank} of {self.size} failed: {content['type']}: {content['message']}"
        return f"{content['traceback'].rstrip()}\n{summary}"

    def _on_lost(self, reason: str) -> None:
        if reason and self.rank == 1:  # rank 0 is gone: one of the others says so
            print(f"error: worker 0 is gone ({reason}); all others end; {self.next_step()}",
                  file=sys.stderr, flush=True)  # fmt: skip
        end_worker(reason)

    def next_step(self) -> str:
        """After a loss: whether the launcher restarts, and from where."""
        again, most = (os.environ.get(f"TORCHELASTIC_{name}", "0") for name in ("RESTART_COUNT", "MAX_RESTARTS"))
        if self.kind == "torchrun" and again.isdecimal() and most.isdecimal() and int(again) < int(most):
            place = "the last checkpoint" if self.checkpoint else "the beginning, since no checkpoint folder was given"
            return f"torchrun restarts them (restart {int(again) + 1} of {most}) from {place}"
        hint = "; torchrun --max-restarts 3 does so by itself" if self.kind == "torchrun" else ""
        if not self.checkpoint:
            return f"a run with a checkpoint folder could be resumed{hint}"
        return f"the same command resumes from the last checkpoint in {self.checkpoint}{hint}"

    # ---- the end ----

    def finish(self) -> None:
        """Say that this rank is done; rank 0 waits for the others, which must not find the monitor gone."""
        if self.heartbeat is not None:
            self.heartbeat.done()
        deadline = time.monotonic() + SECONDS_TO_END
        while self.monitor is not None and len(self.monitor.ended) < self.size and time.monotonic() < deadline:
            time.sleep(0.01)
        self._disconnect()

    def fail(self, error: BaseException) -> None:
        """Report an error to rank 0, which shows it once and ends all ranks. Ctrl-C only disconnects."""
        if self.heartbeat is None:
            return
        if isinstance(error, KeyboardInterrupt):
            self.heartbeat.done()
            self._disconnect()
            return
        if not is_peer_lost(error):
            self.remember(error)
            self.heartbeat.send("error", **describe(error))
        time.sleep(SECONDS_TO_END)  # the monitor ends this process
        end_process(1)

    def remember(self, error: BaseException) -> None:
        """For restarts of torchrun."""
        if self.across_restarts is not None and isinstance(error, Diverged):
            self.across_restarts.set("diverged", str(error))

    def _disconnect(self) -> None:
        if self.heartbeat is not None:
            self.heartbeat.close()
        if self.monitor is not None:
            self.monitor.close()


def _all_here(group: Group) -> bool:
    """Whether all ranks reach each other by the loopback interface: then nothing has to listen on a network."""
    try:
        network = os.readlink("/proc/self/ns/net")  # containers may have networks of their own
    except OSError:
        network = ""
    name = hashlib.sha256(f"{machine()} {network}".encode()).digest()
    places = group.all_gather(torch.tensor([int.from_bytes(name[:7], "big")], dtype=torch.int64))
    return bool((places == places[0]).all())


def _open_store() -> Any:
    import torch.distributed as dist

    return dist.TCPStore(_own_address(), 0, is_master=True, wait_for_workers=False)


def _own_address() -> str:
    """The address of rank 0's machine, as the others see it."""
    if "MASTER_ADDR" in os.environ:  # torchrun: the machine of rank 0
        return os.environ["MASTER_ADDR"]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing; shows which of our addresses is used for other machines
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
