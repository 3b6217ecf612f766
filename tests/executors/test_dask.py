"""Dask: real schedulers and workers, and what can happen to them."""

from __future__ import annotations

import http.server
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from support.dask_cluster import Cluster, jobs_kept, tasks_held
from support.executors import Bench, KillOnce, gained, run, task_of, tasks_of
from support.waiting import wait_until

from shoal.errors import UserError
from shoal.executors.dask import connection as dask_connection
from shoal.executors.dask import workers as dask
from shoal.executors.dask.workers import DaskWorkers
from shoal.executors.dispatch import Dispatcher

WITHOUT_SHOAL = "raise ModuleNotFoundError(\"No module named 'shoal'\", name='shoal')\n"


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with closing(Cluster(tmp_path_factory.mktemp("dask"), workers=2)) as cluster:
        yield cluster


@pytest.fixture
def two(two_workers: Cluster) -> Iterator[Cluster]:
    """Two workers without nannies; what a test did to them is mended afterwards."""
    yield two_workers
    two_workers.mend()


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Cluster]:
    """A scheduler without workers."""
    with closing(Cluster(tmp_path)) as cluster:
        yield cluster


@pytest.fixture
def connect(bench: Bench) -> Iterator[Callable[..., Dispatcher]]:
    """connect(cluster) -> a dispatcher that has started."""
    opened = []

    def connected(cluster: Cluster, of: Bench = bench) -> Dispatcher:
        dispatcher = Dispatcher(DaskWorkers(cluster.name), of.job)
        opened.append(dispatcher)
        dispatcher.start()
        return dispatcher

    yield connected
    for dispatcher in opened:
        dispatcher.close()


# --- a search


def test_a_search_leaves_nothing_in_the_cluster(two, connect, bench, said):
    dispatcher = connect(two)
    tasks = tasks_of(20)
    assert gained(run(dispatcher, tasks)) == bench.expected(tasks)
    assert wait_until(lambda: two.ask(tasks_held) == [])
    assert sum(two.ask_workers(jobs_kept)) >= 1
    dispatcher.close()
    assert two.ask_workers(jobs_kept) == [0, 0]
    assert said() == []
    assert logging.getLogger("distributed").level < logging.CRITICAL


def test_four_workers_give_what_one_gives(tmp_path, connect, bench):
    with closing(Cluster(tmp_path, workers=4)) as cluster:
        dispatcher = connect(cluster)
        tasks = tasks_of(40)
        assert gained(run(dispatcher, tasks)) == bench.expected(tasks)
        assert {process for process, _ in bench.traces("tasks")} == set(cluster.pids())
        dispatcher.close()


def test_a_worker_that_joins_later_gets_the_job_and_then_tasks(two, connect, bench):
    dispatcher = connect(two)
    [late] = two.add()
    assert wait_until(lambda: dispatcher.workers.slots() == 3)
    tasks = tasks_of(30)
    assert gained(run(dispatcher, tasks)) == bench.expected(tasks)
    assert late in [process for process, _ in bench.traces("tasks")]


def test_a_job_whose_file_workers_cannot_see_goes_to_each_once_in_pieces(two, connect, tmp_path, monkeypatch):
    monkeypatch.setattr(dask_connection, "PIECE_BYTES", 37)
    bench = Bench(tmp_path, file=tmp_path / "nobody sees it")
    dispatcher = connect(two, bench)
    tasks = tasks_of(20)
    assert gained(run(dispatcher, tasks)) == bench.expected(tasks)
    loads = [process for process, _ in bench.traces("loads")]
    assert sorted(loads) == sorted(two.pids())
    assert dispatcher.status.repeated == 0


def test_another_search_of_the_same_data_may_end_first(two, connect, tmp_path):
    bench = Bench(tmp_path, file=tmp_path / "nobody sees it")
    first, second = connect(two, bench), connect(two, bench)
    tasks = tasks_of(8)
    for dispatcher in (first, second):
        assert gained(run(dispatcher, tasks)) == bench.expected(tasks)
    first.close()
    assert gained(run(second, tasks)) == bench.expected(tasks)
    second.close()
    assert logging.getLogger("distributed").level < logging.CRITICAL


def test_threads_of_workers_are_slots_and_cores_are_shared(empty, connect, bench):
    empty.threads = 2
    empty.add(options=["--memory-limit", "1GB"])
    dispatcher = connect(empty)
    [info] = dispatcher.workers.present()
    assert (dispatcher.workers.slots(), info.slots) == (2, 2)
    assert dispatcher.settings.threads == max(1, info.cores // 2)
    assert dispatcher.settings.memory == 700_000_000 // 2
    run(dispatcher, [task_of("a", {"a": "tell"}), task_of("b", {"b": "tell"})])
    assert {text.split()[0] for _, text in bench.traces("told")} == {str(dispatcher.settings.threads)}


# --- workers that cannot take part


def test_a_worker_without_shoal_is_not_used_and_not_harmed(two, connect, bench, tmp_path):
    (tmp_path / "shoal.py").write_text(WITHOUT_SHOAL)
    variables = {"PYTHONPATH": str(tmp_path)}
    two.add(variables=variables)
    dispatcher = connect(two)
    two.add(variables=variables)
    tasks = tasks_of(12)
    assert gained(run(dispatcher, tasks)) == bench.expected(tasks)
    assert dispatcher.workers.slots() == 2
    notes = wait_until(lambda: len(dispatcher.workers.notes) == 2 and dispatcher.workers.notes)
    assert all("cannot take part: it has no Shoal" in note for note in notes)


def test_where_no_worker_has_shoal_it_is_said_so(empty, connect, tmp_path):
    (tmp_path / "shoal.py").write_text(WITHOUT_SHOAL)
    empty.add(variables={"PYTHONPATH": str(tmp_path)})
    with pytest.raises(
        UserError, match=r"the only worker cannot take part: it has no Shoal .*; install the same versions"
    ):
        connect(empty)


# --- what is not there


def test_no_scheduler(connect, bench, said):
    with closing(socket.socket()) as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        dispatcher = Dispatcher(DaskWorkers(f"dask://127.0.0.1:{port}"), bench.job)
        with pytest.raises(UserError, match=f"dask://127.0.0.1:{port}: no Dask scheduler .*refused.*`dask scheduler"):
            dispatcher.start()
        dispatcher.close()
    with pytest.raises(UserError, match=r"no Dask scheduler answers there \(there is no host of that name\)"):
        DaskWorkers("dask://nowhere.invalid:8786").start(bench.job)
    assert said() == []


def test_something_else_at_the_address(bench, monkeypatch, said):
    monkeypatch.setattr(dask, "SPEAKING_SECONDS", 0.5)

    class Silent(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Silent) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        workers = DaskWorkers(f"dask://127.0.0.1:{server.server_port}")
        with pytest.raises(UserError, match="something answers there, but not as a Dask scheduler does"):
            workers.start(bench.job)
        workers.close()
        server.shutdown()
    assert said() == []


def test_no_workers(empty, connect, monkeypatch):
    monkeypatch.setattr(dask, "WAITING_SECONDS", 0.5)
    with pytest.raises(UserError, match=f"the scheduler has no workers .*: dask worker {empty.address}"):
        connect(empty)


# --- what goes wrong


def test_a_worker_that_is_killed_costs_its_task_only(two, connect, bench, said):
    """Dask would run the task again by itself: it goes through our hands instead, at once."""
    dispatcher = connect(two)
    tasks = [task_of("long", {"long": "wait"}, cost=99), *tasks_of(9)]
    kill = KillOnce(bench)

    assert gained(run(dispatcher, tasks, kill)) == bench.expected(tasks)
    assert (dispatcher.status.lost, dispatcher.status.repeated) == (1, 1)
    assert [name for _, name in bench.traces("tasks")].count("long") == 2
    assert dispatcher.workers.slots() == 1
    assert said() == []


def test_a_silent_worker_is_not_waited_for(two, connect, bench, monkeypatch):
    """Dask waits for 5 minutes. Nothing else was done yet, so nothing is known of how long a task takes."""
    monkeypatch.setattr(dask_connection, "SILENT_SECONDS", 4.0)
    dispatcher = connect(two)
    tasks = [task_of("stopped", {"stopped": "stop once"})]
    assert gained(run(dispatcher, tasks)) == bench.expected(tasks)
    [(stopped, _)] = bench.traces("stops")
    assert {process for process, _ in bench.traces("tasks")} == set(two.pids())
    assert wait_until(lambda: dispatcher.workers.slots() == 1)
    os.kill(stopped, signal.SIGCONT)
    assert wait_until(lambda: dispatcher.workers.slots() == 2)


def test_the_nanny_of_a_silent_worker_restarts_it(empty, connect, bench, monkeypatch):
    monkeypatch.setattr(dask_connection, "SILENT_SECONDS", 3.0)
    monkeypatch.setattr(dask_connection, "RESTARTING_SECONDS", 1.0)
    empty.nanny = True
    empty.add()
    tasks = [task_of("stopped", {"stopped": "stop once"})]
    assert gained(run(connect(empty), tasks)) == bench.expected(tasks)


def test_a_scheduler_that_is_restarted_is_found_again(empty, connect, bench, said):
    empty.add()
    dispatcher = connect(empty)
    ended = []

    def end() -> bool:
        if bench.traces("waits") and not ended:
            ended.append(True)
            empty.end_scheduler()
            bench.go()
            empty.restart_scheduler()
            empty.add()
        return False

    tasks = [task_of("long", {"long": "wait"}, cost=99), *tasks_of(6)]
    assert gained(run(dispatcher, tasks, end)) == bench.expected(tasks)
    assert ended
    assert dispatcher.workers.notes == [f"{empty.name}: the scheduler was out of reach, and is back"]
    assert said() == []


def test_a_scheduler_that_is_gone_for_good(empty, connect, bench, monkeypatch, said):
    monkeypatch.setattr(dask, "RETURNING_SECONDS", 1.0)
    empty.add()
    dispatcher = connect(empty)

    def end() -> bool:
        if bench.traces("waits") and empty.scheduler.poll() is None:
            empty.end_scheduler()
        return False

    with pytest.raises(UserError, match=r"the scheduler is gone .*; start .* the same command again"):
        run(dispatcher, [task_of("long", {"long": "wait"})], end)
    dispatcher.close()
    assert said() == []
