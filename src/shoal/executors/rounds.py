"""A round of tasks: which worker gets which task, and what happens when a task or its worker fails."""

from __future__ import annotations

import heapq
import itertools
import queue
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shoal.errors import UserError
from shoal.executors import replies
from shoal.executors.compatibility import who
from shoal.executors.failures import LOST, TaskState, is_cancelled, is_loss, last_line, one_line
from shoal.executors.interface import INSTALL_REMEDY, Call, Done, FailedOn, RemoteTask, Reply, Skipped, WorkerInfo
from shoal.machine import size_text

if TYPE_CHECKING:
    from shoal.executors.dispatch import Dispatcher

Cut = Callable[[RemoteTask], Sequence[RemoteTask]]  # into smaller ones


@dataclass(eq=False)
class SubmittedCall:
    state: TaskState
    call: Call
    future: Future[Reply]
    started: float | None = None  # when it probably began to run
    given_up: bool = False  # it hangs, and the task was submitted again


class TaskRound:
    def __init__(
        self,
        owner: Dispatcher,
        tasks: Sequence[RemoteTask],
        stop: Callable[[], bool],
        cut: Cut,
    ) -> None:
        self.owner, self.workers, self.status, self.pace = owner, owner.workers, owner.status, owner.pace
        self.limits, self.failures = owner.limits, owner.failures
        self.stop, self.cut = stop, cut
        self.waiting: list[tuple[bool, float, int, TaskState]] = []  # a heap: urgent tasks first, then by cost
        self.pushed = itertools.count()
        self.in_flight: dict[Future[Reply], SubmittedCall] = {}
        self.finished: queue.SimpleQueue[Future[Reply]] = queue.SimpleQueue()
        self.undecided: list[Skipped] = []  # failed before anything was done: is it these tasks, or everything?
        self.restarts = 0
        self.nobody_since: float | None = None
        self.looked = 0.0  # for tasks that hang
        self.done_at = time.monotonic()  # when a task was done last
        for task in tasks:
            self._wait(TaskState(task))

    # --- the loop

    def results(self) -> Iterator[Done | Skipped]:
        while (self.waiting or self.in_flight) and not self.stop():
            self._fill()
            yield from self._collect()
            yield from self._hanging()
        if any(one.environment for one in self.undecided) and not self.stop():
            self._stop_search()
        yield from (one for one in self.undecided if not one.environment)

    def _wait(self, state: TaskState) -> None:
        heapq.heappush(self.waiting, (not state.urgent, -state.task.cost, next(self.pushed), state))

    def abandon(self) -> None:
        """Nobody wants the rest any more."""
        for submitted in list(self.in_flight.values()):
            self._forget(submitted)

    def _forget(self, submitted: SubmittedCall) -> None:
        """Workers do not count the slot of a task that was given up; that of others is taken until they end."""
        del self.in_flight[submitted.future]
        self.workers.forget(submitted.future)
        if not submitted.future.done() and not submitted.given_up:
            self.owner.left.append(submitted.future)

    def _forget_copies(self, state: TaskState) -> None:
        for submitted in [submitted for submitted in self.in_flight.values() if submitted.state is state]:
            self._forget(submitted)

    def _fill(self) -> None:
        """Submit as much as the workers can do, and a little more."""
        slots = self.workers.slots()
        self.status.workers = slots
        for text in self.workers.notes:
            self.owner.note(text)
        if slots == 0 and any(submitted.given_up for submitted in self.in_flight.values()):
            self._restart("all workers hang")
            slots = self.workers.slots()
        self._note_absence(slots)
        limit = slots + self.workers.ahead if slots else 0
        awaited = self._awaited()
        count, alone = len(awaited), any(submitted.state.alone for submitted in awaited)
        while self.waiting and count < limit and not alone and not (self.waiting[0][-1].alone and count):
            state = heapq.heappop(self.waiting)[-1]
            if state.finished or self._cut_beforehand(state, slots - count):
                continue
            if not self._submit(state):
                break
            count, alone = count + 1, state.alone
        self._note_starts(slots)
        self.status.busy = min(count, slots)
        self.status.waiting = len(self.waiting)

    def _note_absence(self, slots: int) -> None:
        if slots:
            self.nobody_since = None
        elif self.nobody_since is None:
            self.nobody_since = time.monotonic()
        elif time.monotonic() - self.nobody_since > self.limits.absence_seconds:
            self.owner.note(f"{self.workers.name}: no worker is available; the search continues when one joins")

    def _awaited(self) -> list[SubmittedCall]:
        return [submitted for submitted in self.in_flight.values() if not submitted.given_up]

    def _note_starts(self, slots: int) -> None:
        """Executors do not say when a task begins: they are taken to go in order of submission."""
        left = sum(not future.done() for future in self.owner.left)
        now = time.monotonic()
        for submitted in self._awaited()[: max(0, slots - left)]:
            if submitted.started is None:
                submitted.started = now

    def _cut_beforehand(self, state: TaskState, idle: int) -> bool:
        """Cut what needs more memory than a worker has, and what is left at the end when others have nothing to do."""
        memory = self.owner.settings.memory
        if memory and state.task.memory > memory:
            if self._cut(state):
                self.owner.note(
                    f"a task would need {size_text(state.task.memory)}, and a worker has {size_text(memory)} for each "
                    "task: Shoal cut it into smaller ones"
                )
                return True
            self.owner.note(
                f"a task may need {size_text(state.task.memory)}, more than the {size_text(memory)} that a worker has "
                "for each task, and cannot be made smaller"
            )
        if len(self.waiting) + 1 < idle and state.task.cost * self.pace.slowest() > self.limits.worth_cutting_seconds:
            return self._cut(state)
        return False

    def _submit(self, state: TaskState) -> bool:
        avoid = () if state.anywhere else state.failed_on | self.failures.at(state.lost_at)
        call = self.owner.call(state.task, state.with_content, avoid)
        try:
            future = self.workers.submit(call)
        except LOST as error:
            self._wait(state)
            self._restart(one_line(error))
            return False
        if future in self.in_flight:
            raise UserError(f"{self.workers.name}: submit() must return a new Future for each call, not an earlier one")
        self.in_flight[future] = SubmittedCall(state, call, future)
        future.add_done_callback(self.finished.put)
        return True

    # --- what comes back

    def _collect(self) -> Iterator[Done | Skipped]:
        """Wait a moment for calls that end, and act on each."""
        lost: list[tuple[SubmittedCall, str]] = []
        wait = self.limits.poll_seconds
        while True:
            try:
                future = self.finished.get(timeout=wait) if wait else self.finished.get_nowait()
            except queue.Empty:
                break
            submitted = self.in_flight.pop(future, None)
            if submitted is not None and not submitted.state.finished:
                error = None if is_cancelled(future) else future.exception()
                if is_cancelled(future):
                    self._unanswered(submitted, "was cancelled, but not by Shoal")
                elif error is not None and is_loss(error):
                    if not submitted.given_up:
                        lost.append((submitted, one_line(error)))
                        submitted.state.lost_at |= {place for place in [getattr(error, "place", "")] if place}
                else:
                    yield from self._returned(submitted, error)
            wait = self.limits.settling_seconds if lost else 0.0
        if lost:
            yield from self._lost(lost)

    def _returned(self, submitted: SubmittedCall, error: BaseException | None) -> Iterator[Done | Skipped]:
        state, worker = submitted.state, None
        if isinstance(error, FailedOn):
            worker, error = error.worker, error.error
        if isinstance(error, MemoryError):
            yield from self._no_memory(state, "MemoryError", worker)
            return
        if error is not None:
            outside = isinstance(error, (OSError, ImportError))
            yield from self._failed(state, one_line(error), worker, environment=outside)
            return
        try:
            reply = replies.check(submitted.call, submitted.future.result())
        except ValueError as wrong:
            self._unanswered(submitted, f"returned something other than a worker's reply ({wrong})")
            return
        if reply.status == replies.DONE:
            yield from self._done(state, reply)
        elif reply.status == replies.MISSING and submitted.call.content is not None:
            self._unanswered(submitted, "returned the reply of an earlier call")
        elif reply.status == replies.MISSING:
            state.with_content = state.urgent = True
            self._wait(state)
        elif reply.status == replies.REFUSED:
            self._refused(state, reply)
        elif reply.status == replies.AVOIDED:
            self._avoided(state, reply)
        elif reply.status == replies.MEMORY:
            yield from self._no_memory(state, last_line(reply.text), reply.worker)
        else:
            outside = reply.status == replies.ENVIRONMENT
            yield from self._failed(state, reply.text, reply.worker, environment=outside)

    def _done(self, state: TaskState, reply: replies.CheckedReply) -> Iterator[Done | Skipped]:
        state.finished = True
        self.restarts, self.done_at = 0, time.monotonic()
        self.status.done += 1
        self.failures.completed(state.task.name, reply.worker, state.failures)
        self.pace.saw(state.task.cost, reply.seconds, reply.loading)
        if state.hangs:
            self._forget_copies(state)
        yield from self._decided()
        yield Done(state.task, reply.content, reply.seconds)

    def _refused(self, state: TaskState, reply: replies.CheckedReply) -> None:
        """The worker will refuse whatever it gets, at once, so it must not get more."""
        text = f"{who(reply.worker)} cannot take part: {reply.text}; {INSTALL_REMEDY}"
        state.without_result += 1
        refused = self.workers.refuse(reply.worker)
        nobody_left = self.workers.present() == [] if refused else self._asked_too_often(state)
        if nobody_left:
            raise UserError(f"{self.workers.name}: {text}")
        self.owner.note(text)
        self._again(state)

    def _unanswered(self, submitted: SubmittedCall, what: str) -> None:
        """No worker has reported on the task, so the task is not to be skipped for this."""
        if submitted.given_up:
            return
        submitted.state.without_result += 1
        if self._asked_too_often(submitted.state):
            raise UserError(
                f"{self.workers.name}: a call {what}, {submitted.state.without_result} times for one task; check "
                "what the executor does with its calls, and search again"
            )
        self._again(submitted.state)

    def _asked_too_often(self, state: TaskState) -> bool:
        return state.without_result >= self.limits.max_without_result

    def _avoided(self, state: TaskState, reply: replies.CheckedReply) -> None:
        """Executors that choose the worker themselves may give a task to the very one that must not have it."""
        costs = [submitted.state.task.cost for submitted in self._awaited()]
        if time.monotonic() - self.done_at > min(
            self.pace.limit(max([state.task.cost, *costs])), self.limits.max_avoided_seconds
        ):
            if reply.worker.key in self.failures.excluded:
                raise UserError(
                    f"{self.workers.name}: {who(reply.worker)} fails tasks which others complete, and this executor "
                    f"gives them to nobody else. The first failure: {self.failures.first}; end that worker, and run "
                    "the same command again"
                )
            state.anywhere = True
        state.urgent = True
        self._wait(state)

    def _again(self, state: TaskState) -> None:
        self.status.repeated += 1
        state.urgent = True
        self._wait(state)

    # --- what does not

    def _lost(self, lost: list[tuple[SubmittedCall, str]]) -> Iterator[Skipped]:
        """Workers have ended. If several tasks were running, any of them may have ended its worker."""
        self.status.lost += 1
        for submitted, reason in lost:
            state = submitted.state
            state.lost += 1
            if len(lost) == 1:
                state.lost_alone += 1
            if state.lost < 2 and not state.suspect:
                self._again(state)
            elif not state.lost_alone:
                state.alone = state.suspect = True
                self._again(state)
            elif self._cut(state, suspect=True):
                self.status.repeated += 1
            elif (
                state.lost < self.limits.max_lost_workers
                or state.lost_alone < self.limits.min_lost_while_alone
                or self._only_here(state)
            ):
                state.suspect = True
                self._again(state)
            else:
                yield from self._skip(state, f"it ended {state.lost} workers in a row ({reason})")
        self._restart(lost[0][1], suspected=all(submitted.state.suspect for submitted, _ in lost))

    def _only_here(self, state: TaskState) -> bool:
        """Whether all workers that a task has ended were in one place, and there are others: it may be the place."""
        return len(state.lost_at) == 1 and self.failures.elsewhere(state.lost_at)

    def _restart(self, reason: str, suspected: bool = False) -> None:
        """Start new workers. Those that a suspect ends, while its failing part is searched for, do not count."""
        self.restarts += not suspected
        if self.restarts > self.limits.max_restarts + 2 * self.limits.max_lost_workers * len(self.undecided):
            raise UserError(
                f"{self.workers.name}: workers end as soon as they get a task ({reason}); check their output"
            )
        self.workers.restart()
        for submitted in [submitted for submitted in self.in_flight.values() if submitted.given_up]:
            self._forget(submitted)

    def _no_memory(self, state: TaskState, reason: str, worker: WorkerInfo | None) -> Iterator[Skipped]:
        self.owner.note("a worker had too little memory for a task: Shoal cuts it into smaller ones if possible")
        if self._should_try_elsewhere(state, reason, worker, self.limits.workers_to_confirm_error):
            self._again(state)
        elif self._cut(state):
            self.status.repeated += 1
        elif not state.alone:
            state.alone = True
            self._again(state)
        else:
            yield from self._skip(state, f"there was too little memory for it ({reason})")

    def _should_try_elsewhere(self, state: TaskState, reason: str, worker: WorkerInfo | None, workers: int) -> bool:
        """After a failure: whether another worker should try, as it may be the fault of this one."""
        state.failures.append(self.failures.add(worker, reason))
        if state.anywhere or len(state.failures) >= self.limits.max_without_result:
            return False
        return len(state.failed_on - self.failures.excluded) < workers and self.failures.others(state.failed_on)

    def _failed(
        self, state: TaskState, text: str, worker: WorkerInfo | None, environment: bool = False
    ) -> Iterator[Skipped]:
        if self.stop():
            self._wait(state)
            return
        if self._should_try_elsewhere(
            state,
            last_line(text),
            worker,
            self.limits.workers_to_confirm_environment_error if environment else self.limits.workers_to_confirm_error,
        ):
            self._again(state)
            return
        tries = len(state.failures) - len(state.failed_on & self.failures.excluded)
        if tries < self.limits.max_errors and not state.suspect:
            self._again(state)
        elif not environment and self._cut(state, suspect=True):
            self.status.repeated += 1
        elif tries < self.limits.max_errors:
            self._again(state)
        else:
            what = "a reason outside of it" if environment else "an error of its own"
            reason = f"it failed on {_workers(len(state.failed_on))}, for {what} ({last_line(text)})"
            yield from self._skip(state, reason, text, environment)

    def _skip(self, state: TaskState, reason: str, text: str = "", environment: bool = False) -> Iterator[Skipped]:
        state.finished = True
        environment = environment and not self.failures.works(state.failures)
        self.undecided.append(Skipped(state.task, reason, environment))
        outside = sum(one.environment for one in self.undecided)
        if outside >= self.limits.failures_that_show_all_fail:
            self._stop_search()
        elif (self.status.done or self.status.found) and not outside:
            yield from self._decided()
        elif len(self.undecided) >= self.limits.failures_that_show_all_fail and not self.status.done:
            first = self.failures.first
            where = "" if first is None else f" The first failure: {first}."
            raise RuntimeError(
                f"{self.workers.name}: every task has failed so far.{where} The last one: {text or reason}"
            )

    def _stop_search(self) -> None:
        """Workers fail every task for a reason outside the recipes, so skipping recipes would be wrong."""
        first = self.failures.first
        assert first is not None
        raise UserError(
            f"{self.workers.name}: workers fail every task, for a reason outside of the recipes. The first failure: "
            f"{first}; {first.remedy}, and run the same command again"
        )

    def _decided(self) -> Iterator[Skipped]:
        yield from self.undecided
        self.undecided.clear()

    def _cut(self, state: TaskState, suspect: bool = False) -> bool:
        """Replace a task by smaller ones. Those of a suspect run before the others, to find the failing one."""
        pieces = self.cut(state.task)
        for piece in pieces:
            self._wait(TaskState(piece, urgent=suspect or state.urgent, alone=state.alone, suspect=suspect))
        state.finished = bool(pieces)
        return bool(pieces)

    def _hanging(self) -> Iterator[Skipped]:
        """Give out a second copy of what takes much longer than the others did. The first result wins."""
        now = time.monotonic()
        if now < self.looked + self.limits.poll_seconds:
            return
        self.looked = now
        for submitted in self._awaited():
            state = submitted.state
            limit = self.pace.limit(state.task.cost) * 2**state.hangs
            if submitted.started is None or now - submitted.started <= limit or submitted.future.done():
                continue
            state.hangs += 1
            submitted.given_up = True
            self.owner.note(f"a task took more than {limit:.0f} s, far longer than the others. Shoal repeats it")
            if state.hangs < self.limits.max_hangs:
                self._again(state)
            elif not self._cut(state, suspect=True):
                yield from self._skip(state, f"it did not end within {limit:.0f} s, in {self.limits.max_hangs} tries")
            self.workers.give_up(submitted.future)
            if state.finished:  # cut or skipped: nobody waits for its copies, which may never end
                self._forget_copies(state)


def _workers(count: int) -> str:
    return "the only worker" if count == 1 else f"{count} workers"
