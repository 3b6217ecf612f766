"""What the dispatcher decides: order, threads, instruction set, limits; and a search full of accidents."""

from __future__ import annotations

import os
import random
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from support.executors import KINDS, Watched, gained, run, skipped, task_of, tasks_of

from shoal import _native
from shoal.errors import UserError
from shoal.executors.compatibility import choose_instruction_set, share
from shoal.executors.dispatch import LIMITS, Dispatcher, TaskPace
from shoal.executors.find import SerialWorkers
from shoal.executors.interface import WorkerInfo
from shoal.executors.worker import versions


def info(host: str = "a", cores: int = 4, slots: int = 1, memory: int = 0, sets: tuple[str, ...] = ()) -> WorkerInfo:
    return WorkerInfo(host, 1, cores, memory, sets or tuple(_native.instruction_sets()), versions(), slots=slots)


def test_the_most_expensive_tasks_go_first(begin, bench):
    run(begin(KINDS["serial"]), random.Random(0).sample(tasks_of(9), 9))
    assert [text for _, text in bench.traces("tasks")] == [f"task{i}" for i in range(8, -1, -1)]


def test_no_more_is_submitted_than_workers_can_do_and_a_little(begin, bench):
    dispatcher = begin(KINDS["local:2"])
    results = dispatcher.run(tasks_of(40), lambda: False, lambda _: [])
    next(results)
    assert len(dispatcher.workers.calls) <= 2 + dispatcher.workers.ahead
    assert len(list(results)) == 39


@pytest.mark.parametrize(
    ("infos", "threads", "on", "memory"),
    [
        ([info(cores=8)], 8, {}, 0),
        ([info(cores=8), info(cores=8)], 4, {}, 0),
        ([info(cores=8, slots=3)], 2, {}, 0),
        ([info(cores=2, slots=8)], 1, {}, 0),
        ([info("a", 8), info("b", 8), info("c", 2)], 8, {"c": 2}, 0),
        ([info(memory=100, slots=2), info(memory=80)], 1, {}, 26),
        ([info("a", memory=100), info("b", memory=30)], 4, {}, 30),
    ],
)
def test_cores_and_memory_of_a_host_are_shared_by_the_tasks_that_it_does_at_a_time(infos, threads, on, memory):
    team = share(infos, "baseline")
    assert (team.threads, team.threads_on, team.memory) == (threads, on, memory)


def test_the_instruction_set_is_the_fastest_that_all_have(monkeypatch):
    monkeypatch.delenv("SHOAL_ISA", raising=False)
    mine = _native.instruction_sets()
    assert choose_instruction_set([info()]) == mine[0]
    assert choose_instruction_set([info(), info(sets=("neon", mine[-1]))]) == mine[-1]
    with pytest.raises(UserError, match="no instruction set in common with this machine: neon"):
        choose_instruction_set([info(sets=("neon",))])
    monkeypatch.setenv("SHOAL_ISA", "baseline")
    assert choose_instruction_set([info()]) == "baseline"


def test_a_worker_without_the_instruction_set_asked_for_gets_no_tasks(bench, monkeypatch):
    """Where an executor can leave out a worker, the others do the work."""
    monkeypatch.setenv("SHOAL_ISA", "baseline")
    refused = []

    class Choosy(SerialWorkers):
        def start(self, job):
            return [*super().start(job), info("old", sets=("neon",))]

        def refuse(self, worker):
            refused.append(worker.host)
            return True

    with Dispatcher(Choosy(), bench.job) as dispatcher:
        assert gained(run(dispatcher, tasks_of(2))) == bench.expected(tasks_of(2))
    assert set(refused) == {"old"}
    (note,) = dispatcher.status.notes
    assert note.startswith("worker 1 on old cannot take part: it has the instruction sets neon, and the search uses")


def test_too_long_is_a_multiple_of_what_the_slowest_took():
    patience, factor = LIMITS.patience_seconds, LIMITS.slowest_task_factor
    pace = TaskPace()
    pace.saw(cost=0.0, seconds=0.1, loading=0.0)
    assert pace.limit(1.0) == float("inf")
    pace.saw(cost=10.0, seconds=20.0, loading=0.5)
    pace.saw(cost=8.0, seconds=24.0, loading=0.0)
    pace.saw(cost=0.001, seconds=1.0, loading=0.0)  # what it costs to begin at all says nothing of large tasks
    assert pace.limit(2.0) == patience + factor * (0.5 + 3.0 * 2.0)
    pace.saw(cost=10.0, seconds=50.0, loading=0.0)
    assert pace.limit(2.0) == patience + factor * (0.5 + 5.0 * 2.0), "a slower one counts from now on"
    assert TaskPace(seconds_per_cost=5.0).limit(2.0) == LIMITS.patience_factor_at_start * patience + factor * 10.0


def test_what_is_left_at_the_end_is_cut_finer(begin, bench):
    """One worker would have nothing to do while the other does all of a long task."""
    dispatcher = begin(KINDS["local:2"], seconds_per_cost=100.0)
    tasks = [task_of("long", list("abcdefgh"), cost=1.0)]
    results = run(dispatcher, tasks)
    assert gained(results) == bench.expected(tasks)
    assert len({result.task.name for result in results}) == 2


def test_one_task_that_fails_where_nothing_else_is_left_is_skipped(begin):
    """A search that is resumed may have nothing but that one to do."""
    results = run(begin(KINDS["serial"]), [task_of("bad", {"bad": "fail"})])
    assert skipped(results) == {
        "bad": "it failed on the only worker, for an error of its own (ArithmeticError: bad cannot be done)"
    }


def test_what_an_executor_has_to_say_reaches_the_user(bench):
    workers = SerialWorkers()
    workers.notes = ["the scheduler was out of reach, and is back"]
    with Dispatcher(workers, bench.job) as dispatcher:
        run(dispatcher, tasks_of(1))
        run(dispatcher, tasks_of(1))
    assert dispatcher.status.notes == workers.notes


def test_the_file_for_workers_of_this_machine_is_private_and_does_not_stay(begin):
    dispatcher = begin(KINDS["local:1"])
    run(dispatcher, tasks_of(1))
    file = Path(dispatcher.workers.calls[0].file)
    assert file.read_bytes() == dispatcher.job.content
    assert file.stat().st_mode & 0o077 == 0
    dispatcher.close()
    assert not file.exists()


def test_a_task_whose_workers_were_killed_twice_is_not_to_blame(begin, bench):
    dispatcher = begin(KINDS["local:2"])
    tasks = [task_of("victim", {"victim": "wait"}, cost=99), *tasks_of(6)]
    kills: list[int] = []

    def kill() -> bool:
        waits = bench.traces("waits")
        if len(kills) == 2:
            bench.go()
        elif len(waits) > len(kills):
            kills.append(waits[-1][0])
            os.kill(kills[-1], signal.SIGKILL)
        return False

    assert gained(run(dispatcher, tasks, kill)) == bench.expected(tasks)
    assert (len(kills), dispatcher.status.lost, dispatcher.status.repeated) == (2, 2, 2)


def test_a_watched_executor_is_like_the_one_that_it_watches(bench):
    """The suite's own hands: without changes they do not change anything."""
    watched = Watched(SerialWorkers())
    with Dispatcher(watched, bench.job) as dispatcher:
        run(dispatcher, tasks_of(2))
    assert [replace(call, content=None).task for call in watched.calls] == ["task1", "task1", "task0"]
