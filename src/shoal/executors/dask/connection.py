"""A connection to a Dask scheduler: which workers are there, who does what, and who was lost.

Everything here runs in the event loop of the Dask client, so nothing needs a lock; `DaskWorkers` calls in from outside.
Each call goes to one worker that is chosen here. So it is known who has it, and Dask cannot run it again by itself
somewhere else (as it would, up to `allowed-failures` times) after it has ended its worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import platform
import uuid
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future, InvalidStateError
from dataclasses import dataclass, field, fields, replace
from typing import Any

from shoal.executors import replies
from shoal.executors.dask import remote as dask_remote
from shoal.executors.interface import INSTALL_REMEDY, Call, FailedOn, LostWorker, RemoteJob, Reply, WorkerInfo

PIECE_BYTES = 4_000_000  # of a job, which is sent in pieces so that the scheduler keeps nothing
GREETING_SECONDS = 60.0  # seconds in which a worker must say what it is; it may have to load libraries first
LOOKING_SECONDS = 1.0  # between two looks at the workers; more where there are many
SILENT_SECONDS = 20.0  # without a heartbeat: Dask itself waits for 5 minutes
RESTARTING_SECONDS = 5.0  # in which a nanny tries to end a worker kindly, before it kills it
UNREACHABLE_SECONDS = 30.0  # without an answer of the scheduler
USABLE_MEMORY = 0.7  # share of its limit that a worker may use: Dask pauses it at 80% and ends it at 95%


@dataclass(eq=False)
class DaskWorker:
    address: str
    place: str = ""  # its nanny, which starts it again
    threads: int = 1
    limit: int = 0  # bytes that Dask lets it use; 0: no limit
    running: bool = True  # Dask gives it tasks; not where its memory is nearly full, or it is about to leave
    info: WorkerInfo | None = None  # once it has said what it is
    refused: str = ""  # why it gets nothing
    last_seen: float = 0.0  # by the scheduler's clock
    quiet: float = 0.0  # seconds since then
    silent: bool = False
    restarted: bool = False  # its nanny was asked to
    doing: list[DaskCall] = field(default_factory=list)  # it has begun as many as it has threads, the first ones
    deliveries: int = 0  # of the job
    delivery: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def usable(self) -> bool:
        hangs = any(entry.given_up for entry in self.doing)
        return self.running and self.info is not None and not self.refused and not self.silent and not hangs

    @property
    def slots(self) -> int:
        """Tasks that it can do for us now. One that nobody waits for any more still has its thread."""
        return max(0, self.threads - sum(entry.future.done() for entry in self.doing)) if self.usable else 0

    def without(self, entry: DaskCall) -> None:
        if entry in self.doing:
            self.doing.remove(entry)


@dataclass(eq=False)
class DaskCall:
    call: Call
    future: Future[Reply]
    worker: DaskWorker | None = None
    theirs: Any = None  # Dask's future
    given_up: bool = False

    def end(self, reply: Any = None, error: BaseException | None = None) -> None:
        """Unless it has ended: it may be cancelled by the thread of the search at any time."""
        with contextlib.suppress(InvalidStateError):
            if error is None:
                self.future.set_result(reply)
            else:
                self.future.set_exception(error)


class DaskConnection:
    def __init__(self, client: Any, job: RemoteJob, note: Callable[[str], None]) -> None:
        self.client, self.job, self.note = client, job, note
        self.loop: asyncio.AbstractEventLoop = client.loop.asyncio_loop
        self.workers: dict[str, DaskWorker] = {}
        self.lost = ""  # why the scheduler is out of reach
        self.looked = False  # at the workers, at least once
        self.slots = self.ahead = self._submitted = self._refused = 0
        self._queue: deque[DaskCall] = deque()
        self._entries: dict[Future[Reply], DaskCall] = {}
        self._background: set[asyncio.Task[Any]] = set()
        self._wake = asyncio.Event()

    # --- called from outside of the event loop

    def open(self) -> None:
        self.loop.call_soon_threadsafe(self._open)

    def submit(self, call: Call) -> Future[Reply]:
        """The content of the job does not go with it: `_deliver` brings it to a worker that lacks it."""
        entry = DaskCall(replace(call, content=None) if call.key == self.job.key else call, Future())
        self.loop.call_soon_threadsafe(self._enter, entry)
        return entry.future

    def give_up(self, future: Future[Reply]) -> None:
        self.loop.call_soon_threadsafe(self._give_up, future)

    def forget(self) -> None:
        """A future was cancelled."""
        self.loop.call_soon_threadsafe(self._count)

    def refuse(self, worker: WorkerInfo) -> bool:
        for known in list(self.workers.values()):
            info = known.info
            if info is not None and (worker.name == info.name or (worker.host, worker.pid) == (info.host, info.pid)):
                known.refused = "it cannot take part"
                self.loop.call_soon_threadsafe(self._count)
                return True
        return False

    def present(self) -> list[WorkerInfo]:
        """Memory is that of the host, as for other executors: what its workers may use together."""
        known = [(worker.info, worker.limit) for worker in list(self.workers.values()) if not worker.refused]
        infos = [(info, limit) for info, limit in known if info is not None]
        together = Counter(info.host for info, _ in infos)
        return [
            replace(info, memory=min(info.memory, int(limit * USABLE_MEMORY) * together[info.host])) if limit else info
            for info, limit in infos
        ]

    def ask(self, work: Coroutine[Any, Any, Any], timeout: float) -> Any:
        return asyncio.run_coroutine_threadsafe(asyncio.wait_for(work, timeout), self.loop).result()

    async def close(self) -> None:
        """Cancel what runs, and free the job in all workers."""
        for task in list(self._background):
            task.cancel()
        for entry in self._entries.values():
            entry.end(error=LostWorker("the search has ended"))
            if entry.theirs is not None:
                entry.theirs.release()
        if not self.lost:
            await self.client.run(dask_remote.make_forget(), self.job.key, on_error="return")

    # --- who is there

    def _open(self) -> None:
        self.client.subscribe_topic("all", self._event)
        self._start(self._watch())

    def _start(self, work: Coroutine[Any, Any, Any]) -> None:
        task = self.loop.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        """What it raised is of no interest here, but asyncio would print it if nobody asked."""
        self._background.discard(task)
        if not task.cancelled():
            task.exception()

    def _event(self, event: tuple[float, Any]) -> None:
        """The scheduler tells at once who has come and gone."""
        message = event[1] if isinstance(event[1], dict) else {}
        if message.get("action") == "remove-worker":
            self._gone(message.get("worker", ""), "has ended, or left the cluster")
        elif message.get("action") == "add-worker":
            self._wake.set()

    async def _watch(self) -> None:
        """Dask's client connects anew by itself, but without its tasks, and perhaps to another scheduler."""
        connection = self.client.scheduler_comm
        unanswered, looked = 0.0, self.loop.time()
        while not self.lost:
            try:
                if self.client.status != "running" or self.client.scheduler_comm is not connection:
                    self._cut_off()
                    return
                found = await asyncio.wait_for(self._identity(), UNREACHABLE_SECONDS / 3)
                unanswered, pause = 0.0, max(LOOKING_SECONDS, len(found["workers"]) / 100)
                self._see(found["workers"], min(self.loop.time() - looked, 2 * pause))
                looked = self.loop.time()
            except (OSError, asyncio.TimeoutError):
                unanswered, pause = unanswered + UNREACHABLE_SECONDS / 3, LOOKING_SECONDS
                if unanswered >= UNREACHABLE_SECONDS:
                    self._cut_off()
            try:
                await asyncio.wait_for(self._wake.wait(), pause)
            except asyncio.TimeoutError:
                continue
            self._wake.clear()

    async def _identity(self) -> dict[str, Any]:
        """What the scheduler says of itself and all workers; before 2025 it takes no number of them."""
        try:
            found: dict[str, Any] = await self.client.scheduler.identity(n_workers=-1)
        except TypeError:
            found = await self.client.scheduler.identity()
        return found

    def _see(self, found: dict[str, Any], elapsed: float) -> None:
        limit = SILENT_SECONDS + len(found) / 20  # among many, heartbeats are rarer: each second + number / 200
        for address in set(self.workers) - set(found):
            self._gone(address, "has left the cluster")
        for address, state in found.items():
            worker = self.workers.get(address)
            if worker is None:
                worker = self.workers[address] = DaskWorker(address, state.get("nanny") or address)
                self._start(self._greet(worker))
            worker.limit = int(state.get("memory_limit") or 0)
            worker.threads, worker.running = int(state["nthreads"]), state["status"] == "running"
            worker.quiet = 0.0 if state["last_seen"] != worker.last_seen else worker.quiet + elapsed
            worker.last_seen, worker.silent = state["last_seen"], worker.quiet >= limit
            if worker.silent:
                self._lose(worker, f"has been silent for {limit:.0f} s")
            if worker.quiet >= 3 * limit and state.get("nanny") and not worker.restarted:
                worker.restarted = True
                self._start(self.client.restart_workers([address], timeout=RESTARTING_SECONDS, raise_for_error=False))
        self.looked = True
        self._count()

    async def _greet(self, worker: DaskWorker) -> None:
        try:
            answer = await asyncio.wait_for(self._hello(worker), GREETING_SECONDS)
            if "refused" in answer:
                worker.refused = str(answer["refused"])
            else:
                info = WorkerInfo.of(answer.get("hello"))
                worker.info = replace(info, name=worker.address, slots=worker.threads, place=worker.place)
        except asyncio.TimeoutError:
            worker.refused = f"it did not answer within {GREETING_SECONDS:.0f} s"
        except OSError:  # it is gone, or is asked again
            if self.workers.get(worker.address) is worker:
                del self.workers[worker.address]
        except Exception as error:
            words = str(error) if isinstance(error, FailedOn) else f"{type(error).__name__}: {error}"
            worker.refused = f"it gave no valid answer ({words})"
        if worker.refused:
            self._refused += 1
            text = f"worker {worker.address} cannot take part: {worker.refused}; {INSTALL_REMEDY}"
            self.note(text if self._refused <= 3 else f"{self.client.scheduler.address}: more workers cannot take part")
        self._count()

    async def _hello(self, worker: DaskWorker) -> dict[str, Any]:
        """Code is sent by value, which needs the same version of Python: that is asked first, without any."""
        message = {"op": "versions"}
        found = await self.client.scheduler.broadcast(msg=message, workers=[worker.address], on_error="return_pickle")
        there, here = python_there(found.get(worker.address)), python_here()
        if there and there != here:
            return {"refused": f"it has Python {there}, and the search has Python {here}"}
        answer: dict[str, Any] = await self._on(worker, dask_remote.make_greet())
        return answer

    async def _on(self, worker: DaskWorker, function: Any, *arguments: Any) -> Any:
        """Run a function in the event loop of a worker, not as a task."""
        found = await self.client.run(function, *arguments, workers=[worker.address], on_error="return")
        if worker.address not in found:
            raise OSError("the worker is gone")
        answer = found[worker.address]
        if _is_link(answer):
            raise answer
        if isinstance(answer, Exception):
            raise FailedOn(worker.info, answer)
        return answer

    def _gone(self, address: str, how: str) -> None:
        worker = self.workers.pop(address, None)
        if worker is not None:
            self._lose(worker, how)
            for entry in self._of(worker):
                self._release(entry)
            self._count()

    def _cut_off(self) -> None:
        """Whoever holds this session then makes a new one."""
        self.lost = "the scheduler is out of reach"
        for entry in self._entries.values():
            entry.end(error=LostWorker(self.lost))
        self._entries.clear()
        self._queue.clear()
        self.workers.clear()
        self._count()

    # --- who does what

    def _enter(self, entry: DaskCall) -> None:
        if self.lost:
            entry.end(error=LostWorker(self.lost))
            return
        self._entries[entry.future] = entry
        self._queue.append(entry)
        self._assign()

    def _assign(self) -> None:
        """Calls that wait go to workers with a free thread, and then one more to each, so that it need not wait."""
        for entry in list(self._queue):
            if entry.future.done():
                self._queue.remove(entry)
                self._entries.pop(entry.future, None)
                continue
            usable = [one for one in self.workers.values() if one.usable]
            allowed = [one for one in usable if one.info is not None and one.info.key not in entry.call.avoid] or usable
            free = [one for one in allowed if len(one.doing) <= one.threads]
            if free:
                self._queue.remove(entry)
                entry.worker = worker = min(free, key=lambda one: len(one.doing) / one.threads)
                worker.doing.append(entry)
                self._start(self._do(entry, worker))

    async def _do(self, entry: DaskCall, worker: DaskWorker) -> None:
        """It may end up elsewhere: then this is of no use any more."""
        try:
            before = worker.deliveries
            reply = await self._have_done(entry, worker)
            if isinstance(reply, dict) and reply.get("status") == replies.MISSING and entry.call.key == self.job.key:
                await self._deliver(worker, before)
                reply = await self._have_done(entry, worker)
            if entry.worker is worker:
                entry.end(reply)
        except (CancelledError, asyncio.CancelledError, asyncio.TimeoutError, OSError) as error:
            if getattr(error, "reason", "") == "scheduler-connection-lost":
                self._cut_off()
            if entry.worker is worker:
                entry.end(error=LostWorker(self.lost or f"worker {worker.address} is out of reach", worker.place))
        except Exception as error:
            killed = type(error).__name__ == "KilledWorker"
            failed = error if isinstance(error, FailedOn) else FailedOn(worker.info, error)
            entry.end(error=LostWorker(f"worker {worker.address} has ended", worker.place) if killed else failed)
        finally:
            if entry.worker is worker:
                self._release(entry)
            self._count()

    async def _have_done(self, entry: DaskCall, worker: DaskWorker) -> Any:
        """The reply. The thread counts as free as soon as it is, before the reply is fetched."""
        call = {name.name: getattr(entry.call, name.name) for name in fields(Call)}
        self._submitted += 1
        entry.theirs = theirs = self.client.submit(
            dask_remote.make_run(), call, key=f"shoal-{entry.call.task}-{uuid.uuid4().hex}", priority=-self._submitted,
            workers=[worker.address], allow_other_workers=False, pure=False, retries=0,
        )  # fmt: skip
        await theirs.exception()
        worker.without(entry)
        self._count()
        return None if entry.future.done() else await theirs.result()

    async def _deliver(self, worker: DaskWorker, before: int) -> None:
        """Send the job in pieces, which keeps the scheduler's memory flat, and load it there. Once for all who wait."""
        content, receive = self.job.content, dask_remote.make_receive()
        async with worker.delivery:
            if worker.deliveries > before:
                return
            for begin in range(0, len(content), PIECE_BYTES):
                piece = content[begin : begin + PIECE_BYTES]
                await self._on(worker, receive, self.job.key, self.job.load, begin, piece, len(content))
            worker.deliveries += 1

    def _lose(self, worker: DaskWorker, why: str) -> None:
        """What it was doing is lost; what it had not begun yet goes elsewhere."""
        for entry in self._of(worker):
            if entry in worker.doing[worker.threads :]:
                self._put_back(entry)
            else:
                entry.end(error=LostWorker(f"worker {worker.address} {why}", worker.place))

    def _put_back(self, entry: DaskCall) -> None:
        self._release(entry)
        entry.worker = entry.theirs = None
        self._entries[entry.future] = entry
        self._queue.appendleft(entry)

    def _release(self, entry: DaskCall) -> None:
        """Dask cancels the task, or forgets its result."""
        self._entries.pop(entry.future, None)
        if entry.worker is not None:
            entry.worker.without(entry)
        if entry.theirs is not None:
            entry.theirs.release()

    def _give_up(self, future: Future[Reply]) -> None:
        """Its worker gets no more until this task has ended after all."""
        entry = self._entries.get(future)
        if entry is not None and entry.worker is None:
            future.cancel()
        elif entry is not None and entry.worker is not None:
            entry.given_up = True
            for waiting in entry.worker.doing[entry.worker.threads :]:
                self._put_back(waiting)
        self._count()

    def _of(self, worker: DaskWorker) -> list[DaskCall]:
        return [entry for entry in self._entries.values() if entry.worker is worker]

    def _count(self) -> None:
        """After any change: who has room?"""
        self.slots = sum(worker.slots for worker in self.workers.values())
        self.ahead = sum(worker.usable for worker in self.workers.values())
        self._assign()


def _is_link(answer: Any) -> bool:
    """Whether an error is one of the link to a worker. Those of its files have a number; Dask's own have none."""
    return isinstance(answer, ConnectionError) or (isinstance(answer, OSError) and answer.errno is None)


def python_here() -> str:
    return ".".join(platform.python_version_tuple()[:2])


def python_there(found: Any) -> str:
    """From what Dask tells of the versions of another process; empty where it does not."""
    try:
        return ".".join(found["host"]["python"].split(".")[:2])
    except (KeyError, TypeError, AttributeError):
        return ""
