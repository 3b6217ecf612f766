"""Worker processes of this machine: they end with the search, whatever ends it, and nothing listens."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from support import executor_driver, executor_work
from support.executors import KINDS, gained, run, task_of, tasks_of
from support.processes import has_ended
from support.waiting import wait_until

from shoal.errors import UserError
from shoal.executors import local
from shoal.executors.interface import LostWorker
from shoal.executors.limits import RetryLimits


@pytest.fixture
def driver(bench) -> Iterator[subprocess.Popen[str]]:
    """A search on local:2, in a group of processes of its own, as a terminal starts it. Its tasks wait."""
    command = [sys.executable, executor_driver.__file__, "local:2", str(bench.folder), "wait"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, env=_environment()
    )  # fmt: skip
    wait_until(lambda: len({worker for worker, _ in bench.traces("waits")}) == 2 or process.poll() is not None)
    yield process
    for leftover in _group(process.pid):
        leftover.kill()
    process.communicate()


def _environment() -> dict[str, str]:
    return dict(os.environ) | {"PYTHONPATH": str(Path(executor_driver.__file__).parents[1])}


def _group(group: int) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.NoSuchProcess, ProcessLookupError):
            continue
    return found


def test_nothing_listens(driver):
    group = _group(driver.pid)
    assert len(group) >= 3
    sockets = [connection for process in group for connection in process.net_connections("inet")]
    assert sockets == []


def test_no_process_outlives_a_search_that_was_killed(driver):
    assert len(_group(driver.pid)) >= 3
    driver.kill()
    driver.wait()
    wait_until(lambda: not _group(driver.pid))


def test_ctrl_c_is_for_the_search_alone(driver, bench):
    """A terminal sends it to all processes of the group; workers neither end nor print."""
    os.killpg(driver.pid, signal.SIGINT)
    out, err = driver.communicate(timeout=60)
    assert (out, err, driver.returncode) == ("0 of 8 parts, the same, 0 again; 1 threads\n", "", 0)
    wait_until(lambda: not _group(driver.pid))
    assert len(bench.traces("waits")) == 2


def test_workers_do_not_hear_ctrl_c(driver, bench):
    for worker, _ in bench.traces("waits"):
        os.kill(worker, signal.SIGINT)
    bench.go()
    out, err = driver.communicate(timeout=60)
    assert (out, err, driver.returncode) == ("8 of 8 parts, the same, 0 again; 1 threads\n", "", 0)


def test_a_worker_that_ends_while_it_has_nothing_to_do_is_replaced(begin, bench):
    dispatcher = begin(KINDS["local:1"])
    run(dispatcher, tasks_of(2))
    (worker,) = {process for process, _ in bench.traces("tasks")}
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: has_ended(worker))
    assert gained(run(dispatcher, tasks_of(3))) == bench.expected(tasks_of(3))
    assert len({process for process, _ in bench.traces("tasks")}) == 2


def test_tasks_that_nobody_wants_any_more_do_not_keep_the_cores(begin, bench):
    dispatcher = begin(KINDS["local:1"])
    run(dispatcher, [task_of("a", {"a": "wait"})], stop=lambda: bool(bench.traces("waits")))
    ((worker, _),) = bench.traces("waits")
    wait_until(lambda: has_ended(worker))


def test_processes_that_cannot_start_are_one_sentence(bench):
    """A machine that has no room for more: here, of open files."""
    words = f"ulimit -n 16; exec '{sys.executable}' '{executor_driver.__file__}' local:8 '{bench.folder}'"
    result = subprocess.run(["sh", "-c", words], capture_output=True, text=True, timeout=60, env=_environment())
    last = result.stderr.strip().splitlines()[-1]
    assert "UserError: local:8: a worker process could not be started" in last
    assert "Too many open files" in last
    assert "use fewer processes" in last


def test_processes_that_are_killed_while_they_start_are_replaced(begin, bench):
    def prepare(watched):
        watched.workers.prepare()
        for seat in watched.workers._seats[: random.randint(1, 2)]:
            (process,) = seat._pool._processes
            os.kill(process, signal.SIGKILL)

    dispatcher = begin(KINDS["local:2"], prepare)
    assert len({info.pid for info in dispatcher.accepted}) == 2
    assert gained(run(dispatcher, tasks_of(4))) == bench.expected(tasks_of(4))
    assert dispatcher.status.notes == []


def test_where_only_some_processes_start_these_do_the_work(begin, bench):
    def prepare(watched):
        watched.workers.prepare()
        watched.workers._seats[0].hear = _cannot

    dispatcher = begin(KINDS["local:2"], prepare)
    assert gained(run(dispatcher, tasks_of(4))) == bench.expected(tasks_of(4))
    assert dispatcher.status.notes == [
        "local:2: only 1 of 2 processes could be started (no room); use fewer processes, or check their output"
    ]


def _cannot(_deadline):
    raise LostWorker("no room")


def test_where_no_process_starts_it_is_one_sentence_after_a_few_tries(monkeypatch, bench):
    monkeypatch.setattr(local.worker, "hello", executor_work.die_at_once)
    with pytest.raises(UserError, match=r"local:2: a worker process (was ended by SIGKILL|has ended); use fewer"):
        local.LocalWorkers("local:2").start(bench.job)


@pytest.mark.parametrize("killed", [True, False])
def test_a_process_that_ends_in_the_middle_of_its_result_is_replaced(killed, begin, bench):
    """Loky waits for the rest of the message, with no limit."""
    limits = RetryLimits(patience_seconds=0.5, max_hangs=20)  # a new process may be slow; the limit doubles each time
    dispatcher = begin(KINDS["local:1"], limits=limits)
    run(dispatcher, tasks_of(2))
    tasks = [task_of("half", {"half": "half once"}, cost=2.0), task_of("other", ["other"])]
    late = time.monotonic() + 60

    def stop() -> bool:
        for number, _ in bench.traces("halves") if killed else []:
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        return time.monotonic() > late

    assert gained(run(dispatcher, tasks, stop)) == bench.expected(tasks)


def test_closing_does_not_wait_for_half_a_result(begin, bench):
    dispatcher = begin(KINDS["local:1"])
    assert run(dispatcher, [task_of("half", {"half": "half once"})], lambda: bool(bench.traces("halves"))) == []
    closing = threading.Thread(target=dispatcher.close, daemon=True)
    closing.start()
    closing.join(60)
    assert not closing.is_alive()
