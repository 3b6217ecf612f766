"""A round of tasks: who gets what, and what is done when a task or its worker does not come back."""

from __future__ import annotations

import heapq
import itertools
import queue
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shoal.errors import UserError
from shoal.executors import replies
from shoal.executors.blame import Failure
from shoal.executors.interface import Call, Done, FailedOn, Reply, SetAside, Task, WorkerInfo, WorkerLost
from shoal.executors.team import REMEDY, who
from shoal.machine import size_text

if TYPE_CHECKING:
    from shoal.executors.dispatch import Dispatcher

ASKED = 0.1  # seconds between two questions to `stop`
SETTLING = 0.2  # seconds in which the other tasks of a broken pool fail too
ENDED = 3  # workers in a row that a task may end
SURELY = 2  # of these, while nothing else could have ended them
TRIES = 2  # times that a task may raise an exception
WORKERS = 2  # that a task must fail on, if there are so many, to be at fault itself
WORKERS_OUTSIDE = 5  # the same where the reason is none of the task's: several disks may be full
HANGS = 3
ABSENT = 10.0  # seconds without any worker: worth a word
REFUSALS = 20  # of one task, or failures
RESTARTS = 5  # in a row, with nothing done in between
AVOIDED = 300.0  # seconds at most in which a task comes back from the worker that must not do it, and nothing is done
ALIKE = 3  # tasks that fail before anything was done: then all will
WORTH_CUTTING = 4.0  # seconds of work, at the end, when workers would have nothing to do

LOST = (WorkerLost, BrokenExecutor, CancelledError)
LOST_BY_NAME = {"KilledWorker", "CommClosedError", "WorkerLost", "ManagerLost"}  # of Dask, of Parsl


@dataclass(eq=False)
class Entry:
    """A task of this round, and what has happened to it so far."""

    task: Task
    urgent: bool = False  # before the others, whatever it costs
    alone: bool = False  # only while nothing else runs: so that it is known who ends a worker
    suspect: bool = False  # it, or the task that it was cut from, has ended a worker or failed
    with_content: bool = False  # the worker lacked the job
    losses: int = 0  # of workers while it was in flight, in a row
    ended: int = 0  # of these, those that it ended for sure
    lost_at: set[str] = field(default_factory=set)  # places of workers that were lost with it
    failures: dict[str, Failure] = field(default_factory=dict)  # by worker
    failed: int = 0  # times
    anywhere: bool = False  # also where it has failed, since nobody else takes it
    hangs: int = 0
    refusals: int = 0
    finished: bool = False


@dataclass(eq=False)
class Flight:
    """A call that was submitted."""

    entry: Entry
    call: Call
    future: Future[Reply]
    started: float | None = None  # when it probably began to run
    given_up: bool = False  # it hangs: another copy was given out


@dataclass
class Waiting:
    """Tasks that wait: urgent ones first, then by cost."""

    heap: list[tuple[bool, float, int, Entry]] = field(default_factory=list)
    count: Iterator[int] = field(default_factory=itertools.count)

    def push(self, entry: Entry) -> None:
        heapq.heappush(self.heap, (not entry.urgent, -entry.task.cost, next(self.count), entry))

    def pop(self) -> Entry:
        return heapq.heappop(self.heap)[-1]

    def first(self) -> Entry:
        return self.heap[0][-1]

    def __len__(self) -> int:
        return len(self.heap)


class Round:
    def __init__(
        self, owner: Dispatcher, tasks: Sequence[Task], stop: Callable[[], bool], cut: Callable[[Task], Sequence[Task]]
    ) -> None:
        self.owner, self.workers, self.status, self.pace = owner, owner.workers, owner.status, owner.pace
        self.stop, self.cut = stop, cut
        self.waiting = Waiting()
        self.flights: dict[Future[Reply], Flight] = {}
        self.finished: queue.SimpleQueue[Future[Reply]] = queue.SimpleQueue()
        self.undecided: list[SetAside] = []  # failed before anything was done: is it these tasks, or everything?
        self.restarts = 0
        self.nobody_since: float | None = None
        self.looked = 0.0  # for tasks that hang
        self.done_at = time.monotonic()  # when a task was done last
        for task in tasks:
            self.waiting.push(Entry(task))

    # --- the loop

    def results(self) -> Iterator[Done | SetAside]:
        while (self.waiting or self.flights) and not self.stop():
            self._fill()
            yield from self._collect()
            yield from self._hanging()
        if any(one.environment for one in self.undecided) and not self.stop():
            self._stop_search()
        yield from (one for one in self.undecided if not one.environment)

    def abandon(self) -> None:
        """Nobody wants the rest any more."""
        for flight in list(self.flights.values()):
            self._forget(flight)

    def _forget(self, flight: Flight) -> None:
        """Workers do not count the slot of a task that was given up; that of others is taken until they end."""
        del self.flights[flight.future]
        self.workers.forget(flight.future)
        if not flight.future.done() and not flight.given_up:
            self.owner.left.append(flight.future)

    def _forget_copies(self, entry: Entry) -> None:
        for flight in [flight for flight in self.flights.values() if flight.entry is entry]:
            self._forget(flight)

    def _fill(self) -> None:
        """Submit as much as the workers can do, and a little more."""
        slots = self.workers.slots()
        self.status.workers = slots
        for text in self.workers.notes:
            self.owner.note(text)
        if slots == 0 and any(flight.given_up for flight in self.flights.values()):
            self._restart("all workers hang")
            slots = self.workers.slots()
        self._note_absence(slots)
        limit = slots + self.workers.ahead if slots else 0
        flying = self._flying()
        count, alone = len(flying), any(flight.entry.alone for flight in flying)
        while self.waiting and count < limit and not alone and not (self.waiting.first().alone and count):
            entry = self.waiting.pop()
            if entry.finished or self._cut_beforehand(entry, slots - count):
                continue
            if not self._submit(entry):
                break
            count, alone = count + 1, entry.alone
        self._note_starts(slots)
        self.status.busy = min(count, slots)
        self.status.waiting = len(self.waiting)

    def _note_absence(self, slots: int) -> None:
        if slots:
            self.nobody_since = None
        elif self.nobody_since is None:
            self.nobody_since = time.monotonic()
        elif time.monotonic() - self.nobody_since > ABSENT:
            self.owner.note(f"{self.workers.name}: no worker is there at the moment; the search goes on when one comes")

    def _flying(self) -> list[Flight]:
        return [flight for flight in self.flights.values() if not flight.given_up]

    def _note_starts(self, slots: int) -> None:
        """Executors do not say when a task begins: they are taken to go in order of submission."""
        left = sum(not future.done() for future in self.owner.left)
        now = time.monotonic()
        for flight in self._flying()[: max(0, slots - left)]:
            if flight.started is None:
                flight.started = now

    def _cut_beforehand(self, entry: Entry, idle: int) -> bool:
        """Cut what needs more memory than a worker has, and what is left at the end when others have nothing to do."""
        memory = self.owner.team.memory
        if memory and entry.task.memory > memory:
            if self._cut(entry):
                self.owner.note(
                    f"a task would need {size_text(entry.task.memory)}, and a worker has {size_text(memory)} for each "
                    "task: it was cut into smaller ones"
                )
                return True
            self.owner.note(
                f"a task may need {size_text(entry.task.memory)}, more than the {size_text(memory)} that a worker has "
                "for each task, and cannot be made smaller"
            )
        if len(self.waiting) + 1 < idle and entry.task.cost * self.pace.slowest() > WORTH_CUTTING:
            return self._cut(entry)
        return False

    def _submit(self, entry: Entry) -> bool:
        avoid = () if entry.anywhere else {*entry.failures, *self.owner.blame.at(entry.lost_at)}
        call = self.owner.call(entry.task, entry.with_content, avoid)
        try:
            future = self.workers.submit(call)
        except LOST as error:
            self.waiting.push(entry)
            self._restart(_words(error))
            return False
        except RuntimeError as error:
            if "shutdown" not in str(error):
                raise
            raise UserError(
                f"{self.workers.name}: the executor was shut down during the search; start a new one"
            ) from None
        self.flights[future] = Flight(entry, call, future)
        future.add_done_callback(self.finished.put)
        return True

    # --- what comes back

    def _collect(self) -> Iterator[Done | SetAside]:
        """Wait a moment for calls that end, and act on each."""
        lost: list[tuple[Flight, str]] = []
        wait = ASKED
        while True:
            try:
                future = self.finished.get(timeout=wait) if wait else self.finished.get_nowait()
            except queue.Empty:
                break
            flight = self.flights.pop(future, None)
            if flight is not None and not flight.entry.finished:
                error = _error(future)
                if error is not None and _is_loss(error):
                    if not flight.given_up:
                        lost.append((flight, _words(error)))
                        flight.entry.lost_at |= {place for place in [getattr(error, "place", "")] if place}
                else:
                    yield from self._returned(flight, error)
            wait = SETTLING if lost else 0.0
        if lost:
            yield from self._lost(lost)

    def _returned(self, flight: Flight, error: BaseException | None) -> Iterator[Done | SetAside]:
        entry, worker = flight.entry, None
        if isinstance(error, FailedOn):
            worker, error = error.worker, error.error
        if isinstance(error, MemoryError):
            yield from self._no_memory(entry, "MemoryError", worker)
            return
        if error is not None:
            outside = isinstance(error, (OSError, ImportError))
            yield from self._failed(entry, _words(error), worker, environment=outside)
            return
        try:
            reply = replies.check(flight.call, flight.future.result())
        except ValueError as wrong:
            yield from self._failed(entry, str(wrong), None, may_cut=False)
            return
        if reply.status == replies.DONE:
            yield from self._done(entry, reply)
        elif reply.status == replies.MISSING:
            entry.with_content = entry.urgent = True
            self.waiting.push(entry)
        elif reply.status == replies.REFUSED:
            self._refused(entry, reply)
        elif reply.status == replies.AVOIDED:
            self._avoided(entry, reply)
        elif reply.status == replies.MEMORY:
            yield from self._no_memory(entry, _last_line(reply.text), reply.worker)
        else:
            outside = reply.status == replies.ENVIRONMENT
            yield from self._failed(entry, reply.text, reply.worker, environment=outside)

    def _done(self, entry: Entry, reply: replies.Checked) -> Iterator[Done | SetAside]:
        entry.finished = True
        self.restarts, self.done_at = 0, time.monotonic()
        self.status.done += 1
        self.owner.blame.completed(entry.task.name, reply.worker, entry.failures.values())
        self.pace.saw(entry.task.cost, reply.seconds, reply.loading)
        if entry.hangs:
            self._forget_copies(entry)
        yield from self._decided()
        yield Done(entry.task, reply.content, reply.seconds)

    def _refused(self, entry: Entry, reply: replies.Checked) -> None:
        """The worker will refuse whatever it gets, at once, so it must not get more."""
        text = f"{who(reply.worker)} cannot take part: {reply.text}; {REMEDY}"
        entry.refusals += 1
        refused = self.workers.refuse(reply.worker)
        if self.workers.present() == [] if refused else entry.refusals >= REFUSALS:  # nobody is left
            raise UserError(f"{self.workers.name}: {text}")
        self.owner.note(text)
        self._again(entry)

    def _avoided(self, entry: Entry, reply: replies.Checked) -> None:
        """Executors that choose the worker themselves may give a task to the very one that must not have it."""
        costs = [flight.entry.task.cost for flight in self._flying()]
        if time.monotonic() - self.done_at > min(self.pace.limit(max([entry.task.cost, *costs])), AVOIDED):
            if reply.worker.key in self.owner.blame.excluded:
                raise UserError(
                    f"{self.workers.name}: {who(reply.worker)} fails tasks which others complete, and this executor "
                    f"gives them to nobody else. The first failure: {self.owner.blame.first}; end that worker, and run "
                    "the same command again"
                )
            entry.anywhere = True
        entry.urgent = True
        self.waiting.push(entry)

    def _again(self, entry: Entry) -> None:
        self.status.repeated += 1
        entry.urgent = True
        self.waiting.push(entry)

    # --- what does not

    def _lost(self, lost: list[tuple[Flight, str]]) -> Iterator[SetAside]:
        """Workers have ended. Which of several tasks in flight was guilty is not known."""
        self.status.lost += 1
        for flight, reason in lost:
            entry = flight.entry
            entry.losses += 1
            if len(lost) == 1:
                entry.ended += 1
            if entry.losses < 2 and not entry.suspect:
                self._again(entry)
            elif not entry.ended:
                entry.alone = entry.suspect = True
                self._again(entry)
            elif self._cut(entry, suspect=True):
                self.status.repeated += 1
            elif entry.losses < ENDED or entry.ended < SURELY or self._only_here(entry):
                entry.suspect = True
                self._again(entry)
            else:
                yield from self._set_aside(entry, f"it ended {entry.losses} workers in a row ({reason})")
        self._restart(lost[0][1], suspected=all(flight.entry.suspect for flight, _ in lost))

    def _only_here(self, entry: Entry) -> bool:
        """Whether all workers that a task has ended were in one place, and there are others: it may be the place."""
        return len(entry.lost_at) == 1 and self.owner.blame.elsewhere(entry.lost_at)

    def _restart(self, reason: str, suspected: bool = False) -> None:
        """New workers. Those that a suspect ends, while it is found out which part of it is guilty, do not count."""
        self.restarts += not suspected
        if self.restarts > RESTARTS + 2 * ENDED * len(self.undecided):
            raise UserError(
                f"{self.workers.name}: workers end as soon as they get a task ({reason}); see what they print"
            )
        self.workers.restart()
        for flight in [flight for flight in self.flights.values() if flight.given_up]:
            self._forget(flight)

    def _no_memory(self, entry: Entry, reason: str, worker: WorkerInfo | None) -> Iterator[SetAside]:
        self.owner.note("a worker had too little memory for a task: it is cut into smaller ones where it can be")
        if self._elsewhere(entry, reason, worker, WORKERS):
            self._again(entry)
        elif self._cut(entry):
            self.status.repeated += 1
        elif not entry.alone:
            entry.alone = True
            self._again(entry)
        else:
            yield from self._set_aside(entry, f"there was too little memory for it ({reason})")

    def _elsewhere(self, entry: Entry, reason: str, worker: WorkerInfo | None, workers: int) -> bool:
        """After a failure: whether another worker should try, as it may be the fault of this one."""
        entry.failed += 1
        failure = self.owner.blame.failure(worker, reason)
        entry.failures[f"unknown {entry.failed}" if worker is None else worker.key] = failure
        trusted = entry.failures.keys() - self.owner.blame.excluded
        if entry.anywhere or entry.failed >= REFUSALS:
            return False
        return len(trusted) < workers and self.owner.blame.others(entry.failures)

    def _failed(
        self, entry: Entry, text: str, worker: WorkerInfo | None = None, may_cut: bool = True, environment: bool = False
    ) -> Iterator[SetAside]:
        if self.stop():
            self.waiting.push(entry)
            return
        if self._elsewhere(entry, _last_line(text), worker, WORKERS_OUTSIDE if environment else WORKERS):
            self._again(entry)
            return
        tries = entry.failed - len(entry.failures.keys() & self.owner.blame.excluded)
        if tries < TRIES and not entry.suspect:
            self._again(entry)
        elif may_cut and not environment and self._cut(entry, suspect=True):
            self.status.repeated += 1
        elif tries < TRIES:
            self._again(entry)
        else:
            what = "a reason outside of it" if environment else "an error of its own"
            reason = f"it failed on {_workers(len(entry.failures))}, for {what} ({_last_line(text)})"
            yield from self._set_aside(entry, reason, text, environment)

    def _set_aside(self, entry: Entry, reason: str, text: str = "", environment: bool = False) -> Iterator[SetAside]:
        entry.finished = True
        environment = environment and not self.owner.blame.works(entry.failures.values())
        self.undecided.append(SetAside(entry.task, reason, environment))
        outside = sum(one.environment for one in self.undecided)
        if outside >= ALIKE:
            self._stop_search()
        elif (self.status.done or self.status.found) and not outside:
            yield from self._decided()
        elif len(self.undecided) >= ALIKE and not self.status.done:
            first = self.owner.blame.first
            where = "" if first is None else f" The first failure: {first}."
            raise RuntimeError(
                f"{self.workers.name}: every task has failed so far.{where} The last one: {text or reason}"
            )

    def _stop_search(self) -> None:
        """Workers fail whatever they get, for a reason that is none of the recipes': to skip these would be wrong."""
        first = self.owner.blame.first
        assert first is not None
        raise UserError(
            f"{self.workers.name}: workers fail every task, for a reason outside of the recipes. The first failure: "
            f"{first}; {first.remedy}, and run the same command again"
        )

    def _decided(self) -> Iterator[SetAside]:
        yield from self.undecided
        self.undecided.clear()

    def _cut(self, entry: Entry, suspect: bool = False) -> bool:
        """Smaller tasks in the place of this one. Those of a suspect run before the others, to find the guilty one."""
        pieces = self.cut(entry.task)
        for piece in pieces:
            self.waiting.push(Entry(piece, urgent=suspect or entry.urgent, alone=entry.alone, suspect=suspect))
        entry.finished = bool(pieces)
        return bool(pieces)

    def _hanging(self) -> Iterator[SetAside]:
        """Give out a second copy of what takes much longer than the others did. The first result wins."""
        now = time.monotonic()
        if now < self.looked + ASKED:
            return
        self.looked = now
        for flight in self._flying():
            entry = flight.entry
            limit = self.pace.limit(entry.task.cost) * 2**entry.hangs
            if flight.started is None or now - flight.started <= limit or flight.future.done():
                continue
            entry.hangs += 1
            flight.given_up = True
            self.owner.note(f"a task took more than {limit:.0f} s, far longer than the others: it was given out again")
            if entry.hangs < HANGS:
                self._again(entry)
            elif not self._cut(entry, suspect=True):
                yield from self._set_aside(
                    entry, f"it did not end within {limit:.0f} s, nor in {HANGS - 1} tries before"
                )
            self.workers.give_up(flight.future)
            if entry.finished:  # cut or set aside: nobody waits for its copies, which may never end
                self._forget_copies(entry)


def _workers(count: int) -> str:
    return "the only worker" if count == 1 else f"{count} workers"


def _error(future: Future[Reply]) -> BaseException | None:
    return CancelledError() if future.cancelled() else future.exception()


def _is_loss(error: BaseException) -> bool:
    return isinstance(error, LOST) or type(error).__name__ in LOST_BY_NAME


def _words(error: BaseException) -> str:
    text = _last_line(str(error))
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
