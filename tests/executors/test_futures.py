"""Executors that a user brings along."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import signal
import time
from concurrent.futures import CancelledError, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor

import loky
import pytest
from support.executors import KINDS, Bench, cut, gained, run, skipped, task_of, tasks_of

from shoal.errors import UserError
from shoal.executors import worker
from shoal.executors.dispatch import Dispatcher
from shoal.executors.find import find_workers
from shoal.executors.limits import RetryLimits


def test_an_executor_that_was_shut_down_is_one_sentence(bench):
    for pool in (ThreadPoolExecutor(2), ProcessPoolExecutor(2)):
        pool.shutdown()
        with pytest.raises(UserError, match=r"PoolExecutor: the executor was shut down; give one that still runs"):
            Dispatcher(find_workers(pool), bench.job).start()


def test_an_executor_that_is_shut_down_during_the_search_is_one_sentence(bench):
    pool = ThreadPoolExecutor(1)
    with Dispatcher(find_workers(pool), bench.job) as dispatcher:
        results = dispatcher.run(tasks_of(9), lambda: False, cut)
        next(results)
        pool.shutdown()
        with pytest.raises(UserError, match="the executor was shut down"):
            list(results)


def test_the_executor_of_a_user_is_left_open(bench):
    with ThreadPoolExecutor(1) as pool:
        with Dispatcher(find_workers(pool), bench.job) as dispatcher:
            run(dispatcher, tasks_of(2))
        assert pool.submit(int, "3").result() == 3


def test_a_pool_of_loky_that_breaks_is_replaced(bench):
    pool = loky.ProcessPoolExecutor(1)
    tasks = [task_of("poison", {"poison": "die"}), *tasks_of(2)]
    with Dispatcher(find_workers(pool), bench.job) as dispatcher:
        results = run(dispatcher, tasks)
    assert gained(results) == bench.expected(tasks[1:])
    assert skipped(results).keys() == {"poison"}
    pool.shutdown(kill_workers=True)


class Bare(Executor):
    """An executor that says nothing of itself, and cannot be replaced."""

    def __init__(self, pool: Executor) -> None:
        self.pool = pool

    def submit(self, function, /, *arguments, **options) -> Future:  # type: ignore[no-untyped-def]
        return self.pool.submit(function, *arguments, **options)


def test_workers_that_an_executor_does_not_count_are_counted_by_the_handshake(bench):
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        workers = find_workers(Bare(pool))
        with Dispatcher(workers, bench.job) as dispatcher:
            assert workers.slots() == 2
            assert gained(run(dispatcher, tasks_of(5))) == bench.expected(tasks_of(5))


def test_an_executor_that_breaks_and_cannot_be_replaced_is_one_sentence(bench: Bench):
    pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
    tasks = [task_of("poison", {"poison": "die"})]
    dispatcher = Dispatcher(find_workers(Bare(pool)), bench.job)
    dispatcher.start()
    with pytest.raises(UserError, match="Bare: the executor is broken: a worker was lost; start a new one"):
        run(dispatcher, tasks)
    dispatcher.close()
    pool.shutdown()
    assert len(bench.traces("deaths")) == 1


class Fork(ProcessPoolExecutor):
    """Processes made by fork have what their parent had: a job, and a process number that is not theirs."""

    def __init__(self) -> None:
        super().__init__(1, mp_context=multiprocessing.get_context("fork"))


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_processes_by_fork_are_processes_of_their_own(bench):
    with Dispatcher(find_workers(None), bench.job) as here:
        run(here, tasks_of(1))
        with Fork() as pool, Dispatcher(find_workers(pool), bench.job) as dispatcher:
            assert gained(run(dispatcher, tasks_of(3))) == bench.expected(tasks_of(3))
            (info,) = dispatcher.workers.start(bench.job)
    assert {process for process, _ in bench.traces("tasks")[1:]} == {info.pid} != {os.getpid()}
    assert len(bench.traces("loads")) == 1  # by the parent
    assert signal.getsignal(signal.SIGINT) is not signal.SIG_IGN


def test_a_task_that_never_ends_does_not_keep_the_others_waiting(begin, bench):
    """It is skipped, and its thread cannot be ended: nobody waits for it."""
    dispatcher = begin(KINDS["threads"], limits=RetryLimits(patience_seconds=0.5, max_hangs=1))
    tasks = [*tasks_of(4), task_of("endless", {"endless": "wait"}, cost=0.1)]
    late = time.monotonic() + 60
    results = run(dispatcher, tasks, lambda: time.monotonic() > late)
    ended = time.monotonic() < late
    bench.go()
    assert ended
    assert gained(results) == bench.expected(tasks[:-1])
    assert skipped(results).keys() == {"endless"}
    assert dispatcher.left == []  # its slot was taken away: it is not to be counted twice


class Odd(Bare):
    """An executor that does something else with some calls of tasks than to run them."""

    def __init__(self, pool: Executor, odd, is_odd) -> None:  # type: ignore[no-untyped-def]
        super().__init__(pool)
        self.odd, self.is_odd, self.calls = odd, is_odd, 0

    def submit(self, function, /, *arguments, **options) -> Future:  # type: ignore[no-untyped-def]
        future = self.pool.submit(function, *arguments, **options)
        if function is not worker.run:
            return future
        self.calls += 1
        return self.odd(future) if self.is_odd(self.calls) else future


def cancelled(_: Future | None = None) -> Future:
    future: Future = Future()
    future.cancel()
    return future


def failed(error: BaseException) -> Future:
    future: Future = Future()
    future.set_exception(error)
    return future


CANCELLED = [cancelled, lambda _=None: failed(CancelledError()), lambda _=None: failed(asyncio.CancelledError())]


def answered(reply: object) -> Future:
    future: Future = Future()
    future.set_result(reply)
    return future


@pytest.mark.parametrize(
    "odd", [*CANCELLED, lambda _: answered(None), lambda one: answered(one.result() | {"proof": ""})]
)
@pytest.mark.parametrize("seed", range(5))
def test_calls_that_an_executor_cancels_or_answers_itself_cost_no_task(bench, odd, seed):
    chance = random.Random(seed)
    with ThreadPoolExecutor(2) as pool:
        executor = Odd(pool, odd, lambda _: chance.random() < 0.5)
        with Dispatcher(find_workers(executor), bench.job) as dispatcher:
            results = run(dispatcher, tasks_of(12))
    assert gained(results) == bench.expected(tasks_of(12))
    assert not skipped(results)


@pytest.mark.parametrize(("odd", "words"), [
    (cancelled, "Odd: a call was cancelled, but not by Shoal, 20 times for one task; check what the executor does"),
    (lambda _: answered({}), r"Odd: a call returned something other than a worker's reply \(the status .* 20 times"),
    (lambda _: None, r"Odd: submit\(\) must return a concurrent.futures.Future; it returned NoneType"),
])  # fmt: skip
def test_an_executor_that_answers_nothing_is_one_sentence(bench, odd, words):
    with ThreadPoolExecutor(2) as pool, pytest.raises(UserError, match=words):  # noqa: SIM117
        with Dispatcher(find_workers(Odd(pool, odd, lambda _: True)), bench.job) as dispatcher:
            run(dispatcher, tasks_of(2))


def test_an_executor_that_returns_a_future_twice_is_one_sentence(bench):
    waiting: Future = Future()
    with ThreadPoolExecutor(2) as pool, pytest.raises(UserError, match=r"submit\(\) must return a new Future for each"):  # noqa: SIM117
        with Dispatcher(find_workers(Odd(pool, lambda _: waiting, lambda _: True)), bench.job) as dispatcher:
            run(dispatcher, tasks_of(2))


class Cancels(Bare):
    """An executor that cancels calls of any kind: all of them, or every other one."""

    def __init__(self, pool: Executor, cancel, every: int) -> None:  # type: ignore[no-untyped-def]
        super().__init__(pool)
        self.cancel, self.every, self.calls = cancel, every, 0

    def submit(self, function, /, *arguments, **options) -> Future:  # type: ignore[no-untyped-def]
        self.calls += 1
        return self.cancel() if self.calls % self.every == 0 else super().submit(function, *arguments, **options)


@pytest.mark.parametrize("cancel", CANCELLED)
def test_an_executor_that_cancels_everything_is_found_at_the_start(bench, cancel):
    with ThreadPoolExecutor(1) as pool:
        workers = find_workers(Cancels(pool, cancel, every=1))
        with pytest.raises(UserError, match="Cancels: the executor cancels its calls; give one that runs them"):
            Dispatcher(workers, bench.job).start()


@pytest.mark.parametrize("cancel", CANCELLED)
def test_calls_that_are_cancelled_at_the_start_do_not_end_the_search(bench, cancel):
    with ThreadPoolExecutor(2) as pool:  # noqa: SIM117
        with Dispatcher(find_workers(Cancels(pool, cancel, every=2)), bench.job) as dispatcher:
            results = run(dispatcher, tasks_of(6))
    assert gained(results) == bench.expected(tasks_of(6))
    assert not skipped(results)


def test_an_executor_that_repeats_a_reply_is_one_sentence(bench):
    """A worker that says that it lacks the job gets it, and cannot say so again: to ask on would never end."""
    pool = ThreadPoolExecutor(1)
    kept = pool.submit(worker.hello)

    def first(future: Future) -> Future:
        nonlocal kept
        kept = future if executor.calls == 1 else kept
        return answered(kept.result())

    executor = Odd(pool, first, lambda _: True)
    with pool, pytest.raises(UserError, match=r"Odd: a call returned the reply of an earlier call, 20 times"):  # noqa: SIM117
        with Dispatcher(find_workers(executor), bench.job) as dispatcher:
            run(dispatcher, tasks_of(1))
