"""Whose fault it is that a task failed: random fleets of workers, some of which fail whatever they get."""

from __future__ import annotations

import random
from concurrent.futures import Future
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.executors import Bench, cut, gained, never, parts_of, skipped, task_of

from shoal.errors import UserError
from shoal.executors import replies, worker
from shoal.executors.dispatch import Dispatcher
from shoal.executors.interface import Call, LostWorker, RemoteJob, RemoteTask, Reply, WorkerInfo, Workers
from shoal.executors.limits import RetryLimits

LOST = "lost"  # it ends whenever it has a task, and is started again
ERRORS = {
    replies.ENVIRONMENT: "OSError: [Errno 28] No space left on device",
    replies.MEMORY: "MemoryError",
    replies.FAILED: "ValueError: broken",
}


class Fleet(Workers):
    """Workers with numbers. It is random who gets a call, as with MPI, where the caller has no say in it."""

    name = "fleet"

    def __init__(self, faulty: list[str], chance: random.Random, directs: bool) -> None:
        """`faulty`: for each worker the status that every call ends with; empty, if it is well."""
        self.faulty, self.chance, self.directs = faulty, chance, directs
        self.calls = [0] * len(faulty)
        self.excluded: list[int] = []

    def info(self, number: int) -> WorkerInfo:
        info = WorkerInfo.of(worker.hello() | {"host": "there", "pid": number + 1})
        return replace(info, place=f"place {number}")

    def start(self, job: RemoteJob) -> list[WorkerInfo]:
        return [self.info(number) for number in range(len(self.faulty))]

    def slots(self) -> int:
        return len(self.faulty)

    def submit(self, call: Call) -> Future[Reply]:
        numbers = list(range(len(self.faulty)))
        allowed = [number for number in numbers if self.info(number).key not in call.avoid]
        number = self.chance.choice(allowed if self.directs and allowed else numbers)
        future: Future[Reply] = Future()
        if self.faulty[number] == LOST:
            future.set_exception(LostWorker("it has ended", f"place {number}"))
        else:
            future.set_result(self.reply(call, number))
        return future

    def reply(self, call: Call, number: int) -> Reply:
        about = worker.hello() | {"host": "there", "pid": number + 1}
        if self.info(number).key in call.avoid:
            return replies.make(call, replies.AVOIDED, b"", 0.0, 0.0, about)
        self.calls[number] += 1
        if self.faulty[number]:
            return replies.make(call, self.faulty[number], ERRORS[self.faulty[number]].encode(), 0.0, 0.0, about)
        return worker.run(call) | {"worker": about}

    def exclude(self, worker: WorkerInfo) -> bool:
        self.excluded.append(worker.pid - 1)
        return False

    def restart(self) -> None:
        assert LOST in self.faulty

    def give_up(self, future: Future[Reply]) -> None:
        raise AssertionError("nobody hangs")

    def close(self) -> None:
        pass


def run(
    fleet: Fleet, bench: Bench, tasks: list[RemoteTask], limits: RetryLimits | None = None
) -> tuple[dict[str, bytes], dict[str, str], Dispatcher]:
    with Dispatcher(fleet, bench.job, limits=limits or RetryLimits()) as dispatcher:
        results = list(dispatcher.run(tasks, never, cut))
    return gained(results), skipped(results), dispatcher


fleets = st.fixed_dictionaries(
    {
        "well": st.integers(2, 4),
        "faulty": st.one_of(
            st.lists(st.just(replies.ENVIRONMENT), max_size=3), st.lists(st.sampled_from([*ERRORS, LOST]), max_size=1)
        ),
        "guilty": st.sets(st.integers(0, 29), max_size=4),
        "directs": st.booleans(),
        "seed": st.integers(0, 1 << 30),
    }
)


@settings(max_examples=30, deadline=None)
@given(fleets)
def test_faulty_workers_cost_no_task_and_guilty_tasks_no_worker(tmp_path_factory, given_fleet):
    chance = random.Random(given_fleet["seed"])
    faulty = [*given_fleet["faulty"], *[""] * given_fleet["well"]]
    chance.shuffle(faulty)
    bench = Bench(tmp_path_factory.mktemp("fleet"))
    told = {f"part{k}": "fail" if k in given_fleet["guilty"] else "" for k in range(30)}
    tasks = [task_of(f"task{k}", dict(list(told.items())[k : k + 2])) for k in range(0, 30, 2)]
    tasks.insert(0, task_of("first", ["first"], cost=9.0))
    fleet = Fleet(faulty, chance, given_fleet["directs"])
    done, skipped, dispatcher = run(fleet, bench, tasks)
    assert skipped.keys() == {part for part, what in told.items() if what}
    assert done.keys() == {part for task in tasks for part, _ in parts_of(task)} - skipped.keys()
    assert all(faulty[number] for number in fleet.excluded), "nobody is excluded for what others cannot do either"
    for number in fleet.excluded:
        assert any(f"worker {number + 1} on there gets no more tasks" in note for note in dispatcher.status.notes)
    for number, status in enumerate(faulty):
        if status and status != LOST and fleet.calls[number] > len(tasks):
            assert number in fleet.excluded


@pytest.mark.parametrize("workers", [1, 2, 7])
def test_where_the_environment_fails_everywhere_no_task_is_skipped(workers, bench):
    fleet = Fleet([replies.ENVIRONMENT] * workers, random.Random(0), True)
    with pytest.raises(UserError, match=r"The first failure: worker \d on there: OSError: .*; make room on its disk"):
        run(fleet, bench, [task_of(f"{k}", [f"{k}"]) for k in range(9)], RetryLimits(max_avoided_seconds=0.1))
    assert sum(fleet.calls) <= 9 * max(2, min(workers, 5))


def test_an_error_of_the_environment_that_only_one_task_has_is_that_of_the_task(bench):
    """As where a scorer of the user's own opens a file."""
    tasks = [task_of("bad", {"bad": "no file"}, cost=9.0), *(task_of(f"{k}", [f"{k}"]) for k in range(9))]
    done, skipped, _ = run(Fleet(["", ""], random.Random(0), True), bench, tasks)
    assert done.keys() == {f"{k}" for k in range(9)}
    assert skipped["bad"].startswith("it failed on 2 workers, for a reason outside of it (FileNotFoundError: ")


def test_the_last_worker_is_not_excluded(bench):
    """Another one has completed what it failed, and has left since."""
    fleet = Fleet([replies.FAILED, ""], random.Random(0), True)
    fleet.present = lambda: [fleet.info(0)]  # type: ignore[method-assign]
    done, _, _ = run(fleet, bench, [task_of(f"{k}", [f"{k}"]) for k in range(20)])
    assert len(done) > 10
    assert fleet.calls[0] > 2
    assert fleet.excluded == []


class First(random.Random):
    """Takes the first of all."""

    def choice(self, seq):
        return seq[0]


def test_a_task_that_ended_workers_in_one_place_is_tried_in_another(bench):
    """There, every process ends, whatever it does: the task is not at fault."""
    task = task_of("a", ["a"])
    done, skipped, dispatcher = run(Fleet([LOST, ""], First(), directs=True), bench, [task])
    assert (done, skipped) == (bench.expected([task]), {})
    assert dispatcher.status.lost == 1
    _, skipped, _ = run(Fleet([LOST, LOST], First(), directs=True), bench, [task])
    assert "it ended 3 workers in a row" in skipped["a"]


@pytest.mark.parametrize(("status", "error"), [(replies.ENVIRONMENT, UserError), (replies.FAILED, RuntimeError)])
def test_an_executor_that_gives_everything_to_one_worker_is_an_error_in_the_end(status, error, bench):
    """There are others, but nobody else ever takes what fails there."""
    fleet = Fleet([status, ""], First(), directs=False)
    with pytest.raises(error, match="The first failure: worker 1 on there: "):
        run(fleet, bench, [task_of(f"{k}", [f"{k}"]) for k in range(9)], RetryLimits(max_avoided_seconds=0.1))


def test_an_executor_that_gives_everything_to_an_excluded_worker_is_one_sentence(bench):
    fleet = Fleet([replies.FAILED, ""], First(), directs=True)
    with Dispatcher(fleet, bench.job, limits=RetryLimits(max_avoided_seconds=0.1)) as dispatcher:
        list(dispatcher.run([task_of(f"{k}", [f"{k}"]) for k in range(3)], never, cut))
        assert fleet.excluded == [0]
        fleet.directs = False
        with pytest.raises(UserError, match="worker 1 on there fails tasks which others complete, and this executor"):
            list(dispatcher.run([task_of("last", ["last"])], never, cut))
