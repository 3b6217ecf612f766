"""A Ray cluster: `ray://host:10001`, or `ray://` for one that is started on this machine. A small adapter.

Ray replaces processes that have ended by itself. It must not run tasks again by itself: that is decided by `dispatch`.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import sys
import warnings
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from shoal.errors import UserError
from shoal.executors import replies, worker
from shoal.executors.interface import (
    INSTALL_REMEDY,
    Call,
    LostWorker,
    RemoteJob,
    Reply,
    WorkerInfo,
    Workers,
    library,
    parse_address,
)
from shoal.machine import thread_count

PORT = 10001
CONNECTING_SECONDS = 4.0
GREETING_SECONDS = 120.0  # in which the nodes must have answered: Ray starts processes for it
LOST = (
    "WorkerCrashedError",
    "NodeDiedError",
    "OwnerDiedError",
    "ObjectLostError",
    "OutOfMemoryError",
    "TaskCancelledError",
)


class RayWorkers(Workers):
    def __init__(self, name: str) -> None:
        self.name = name
        self._address = None if name == "ray://" else parse_address(name, PORT)  # None: Ray is started here
        self._ours = False  # Ray was started, or connected to, by us
        self._content: Any = None  # of the job, in Ray's store
        self._run: Any = None
        self._slots = 0
        self._references: dict[Future[Reply], Any] = {}

    def start(self, job: RemoteJob) -> list[WorkerInfo]:
        if not self._address:
            _keep_others_out()
        ray = _ray()
        if not ray.is_initialized():
            self._connect(ray)
            self._ours = True
        self._content = ray.put(job.content)
        self._run = ray.remote(num_cpus=1, max_retries=0)(_run)
        infos = self._greet(ray)
        self._slots = sum(info.slots for info in infos)
        return infos

    def _connect(self, ray: Any) -> None:
        quiet = {"logging_level": "ERROR", "log_to_driver": False}
        if not self._address:
            ray.init(num_cpus=thread_count(), include_dashboard=False, **quiet)
            return
        host, port = self._address
        try:
            socket.create_connection((host.strip("[]"), port), timeout=CONNECTING_SECONDS).close()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the error that follows says the same
                ray.init(self.name.rstrip("/"), **quiet)
        except (OSError, RuntimeError, ValueError) as error:
            text = str(getattr(error, "strerror", None) or error).splitlines()[0]
            raise UserError(
                f"{self.name}: no Ray cluster answers there ({text}); start one with `ray start --head "
                f"--ray-client-server-port {port}`, with the same versions of Ray and Python, and give its token here "
                "too, if it has one (RAY_AUTH_MODE=token RAY_AUTH_TOKEN=...)"
            ) from None

    def _greet(self, ray: Any) -> list[WorkerInfo]:
        """Ask a process of each node what it is."""
        nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]
        if not nodes:
            raise UserError(f"{self.name}: the cluster has no node with a CPU; add one with `ray start --address ...`")
        hello = ray.remote(num_cpus=1, max_retries=0)(worker.hello)
        calls = [hello.options(scheduling_strategy=_on(node["NodeID"])).remote() for node in nodes]
        try:
            answers = ray.get(calls, timeout=GREETING_SECONDS)
        except Exception as error:
            reason = str(error).strip().splitlines()[-1]
            raise UserError(f"{self.name}: a node could not take part ({reason}); {INSTALL_REMEDY}") from None
        pairs = zip(nodes, answers, strict=True)
        return [
            replace(WorkerInfo.of(answer), slots=int(node["Resources"]["CPU"]), name=node["NodeManagerAddress"])
            for node, answer in pairs
        ]

    def slots(self) -> int:
        return self._slots

    def submit(self, call: Call) -> Future[Reply]:
        self._check()
        future: Future[Reply] = Future()
        reference = self._run.remote(replace(call, content=None), [self._content])
        self._references[future] = reference
        reference.future().add_done_callback(lambda done: self._ended(future, done))
        return future

    def _ended(self, future: Future[Reply], done: Future[Reply]) -> None:
        """Called by a thread of Ray's."""
        self._references.pop(future, None)
        with contextlib.suppress(Exception):  # it was cancelled meanwhile
            error = done.exception()
            if error is None:
                future.set_result(done.result())
            elif any(kind.__name__ in LOST for kind in type(error).__mro__):
                future.set_exception(LostWorker(str(error).splitlines()[0]))
            else:
                future.set_exception(error)

    def restart(self) -> None:
        self._check()

    def _check(self) -> None:
        if not _ray().is_initialized():
            raise UserError(f"{self.name}: the connection to Ray is gone; start it again, then run the same command")

    def give_up(self, future: Future[Reply]) -> None:
        """Its process is ended; Ray starts another."""
        reference = self._references.get(future)
        if reference is not None:
            with contextlib.suppress(Exception):
                _ray().cancel(reference, force=True)

    def forget(self, future: Future[Reply]) -> None:
        self.give_up(future)
        future.cancel()

    def close(self) -> None:
        for future in list(self._references):
            self.forget(future)
        self._content = self._run = None
        if self._ours:
            _ray().shutdown()
            self._ours = False


def _run(call: Call, content: list[Any]) -> Reply:
    """In a worker. The job is fetched where it is missing; in a list, Ray does not fetch it each time."""
    reply = worker.run(call)
    if reply["status"] == replies.MISSING:
        reply = worker.run(replace(call, content=_ray().get(content[0])))
    return reply


def _on(node: str) -> Any:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node, soft=False)


def _keep_others_out() -> None:
    """Ray listens on all networks of this machine, and runs what it is sent. So it asks for a token that nobody knows.

    Ray reads these variables when it is imported. The other one: it tells its makers of each start.
    """
    if "ray" not in sys.modules and "RAY_AUTH_MODE" not in os.environ:
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")


def _ray() -> Any:
    return library("ray", "ray://...", "ray")
