"""What holds for every kind of executor: the same results, the job once per process, whatever goes wrong."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from support.executors import KINDS, Bench, KillOnce, cut, gained, run, skipped, task_of, tasks_of

from shoal import _native
from shoal.errors import UserError
from shoal.executors.interface import Done
from shoal.executors.limits import RetryLimits

ERROR = "ArithmeticError: {} cannot be done"


def test_results_are_the_same_everywhere_and_a_job_is_loaded_once_per_process(any_kind, begin, bench):
    dispatcher = begin(any_kind)
    for first in (0, 12):
        tasks = tasks_of(24)[first : first + 12]
        assert gained(run(dispatcher, tasks)) == bench.expected(tasks)
    loads = [process for process, _ in bench.traces("loads")]
    assert len(loads) == len(set(loads)) <= any_kind.slots
    assert len(bench.traces("tasks")) == 24
    assert (dispatcher.status.done, dispatcher.status.lost, dispatcher.status.repeated) == (24, 0, 0)
    assert dispatcher.status.workers == any_kind.slots


def test_the_content_travels_only_where_the_file_is_not_the_right_one(any_kind, begin, tmp_path, bench):
    def sent(file):
        bench.job = replace(bench.job, file=file)
        dispatcher = begin(any_kind)
        tasks = tasks_of(6)
        assert gained(run(dispatcher, tasks)) == bench.expected(tasks)
        calls = dispatcher.workers.calls
        dispatcher.close()  # a worker in this process forgets the job
        return [call for call in calls if call.content is not None]

    right, wrong = tmp_path / "right", tmp_path / "wrong"
    right.write_bytes(bench.job.content)
    wrong.write_bytes(bench.job.content[:-1] + b" ")
    assert not sent(right)
    assert {call.content for call in sent(wrong)} == (set() if any_kind.brings_job else {bench.job.content})


def test_the_content_travels_where_there_is_no_file(begin, bench, tmp_path):
    bench.job = replace(bench.job, file=tmp_path / "nowhere")
    dispatcher = begin(KINDS["local:1"])
    assert gained(run(dispatcher, tasks_of(6))) == bench.expected(tasks_of(6))
    assert [call.content is None for call in dispatcher.workers.calls].count(False) in (1, 2, 3)


def test_all_use_the_instruction_set_that_all_have_and_share_the_cores(any_kind, begin, bench):
    narrow = "baseline"
    assert narrow in _native.instruction_sets()
    before = _native.instruction_set()

    def prepare(watched):
        watched.change_infos = lambda infos: [replace(info, instruction_sets=(narrow,), cores=8) for info in infos]

    dispatcher = begin(any_kind, prepare)
    assert dispatcher.instruction_set == narrow
    run(dispatcher, [task_of("a", {"a": "tell"}), task_of("b", {"b": "tell"})])
    assert {text for _, text in bench.traces("told")} == {f"{8 // any_kind.slots} {narrow}"}
    assert _native.instruction_set() == before


def test_a_worker_of_another_version_is_refused_in_words(some_kind, begin):
    def prepare(watched):
        versions = {"shoal": "0.0.1"}
        watched.change_infos = lambda infos: [replace(info, versions=info.versions | versions) for info in infos]

    with pytest.raises(
        UserError, match=r"cannot take part: it has shoal 0\.0\.1, and the search has shoal .*install the same"
    ):
        begin(some_kind, prepare)


def test_a_worker_that_comes_later_refuses_what_it_cannot_do_the_same(some_kind, begin, bench):
    def prepare(watched):
        watched.change_call = lambda call: replace(call, versions=call.versions | {"numpy": "1.0"})

    dispatcher = begin(some_kind, prepare)
    with pytest.raises(UserError, match=r"cannot take part: it has numpy .*, and the search has numpy 1\.0"):
        run(dispatcher, tasks_of(1))
    assert not bench.traces("tasks")


def test_a_task_that_fails_is_tried_once_more_and_then_skipped(some_kind, begin, bench):
    dispatcher = begin(some_kind)
    tasks = [task_of("bad", {"bad": "fail"}, cost=0.5), *tasks_of(5)]
    results = run(dispatcher, tasks)
    where = "the only worker" if some_kind.slots == 1 else "2 workers"
    assert skipped(results) == {"bad": f"it failed on {where}, for an error of its own ({ERROR.format('bad')})"}
    assert gained(results) == bench.expected(tasks[1:])
    assert len(bench.traces("failures")) == 2


def test_a_failure_by_chance_costs_nothing_but_time(some_kind, begin, bench):
    tasks = [task_of("a", {"a": "fail once"}), *tasks_of(3)]
    assert gained(run(begin(some_kind), tasks)) == bench.expected(tasks)


def test_of_a_task_that_fails_only_the_guilty_part_is_lost(some_kind, begin, bench):
    parts = {"a": "", "b": "", "c": "fail", "d": ""}
    results = run(begin(some_kind), [task_of("task", parts)])
    assert skipped(results).keys() == {"c"}
    assert f"({ERROR.format('c')})" in skipped(results)["c"]
    assert gained(results).keys() == {"a", "b", "d"}


def test_a_worker_that_fails_every_task_is_named_and_costs_no_task(process_kind, begin, bench):
    """Its disk is full. The executor may choose workers itself, and replace them or not."""
    dispatcher = begin(process_kind)
    for first in (0, 10):
        tasks = [task_of(f"{k}", {f"{k} a": "fail here", f"{k} b": ""}) for k in range(first, first + 10)]
        results = run(dispatcher, tasks)
        assert gained(results) == bench.expected(tasks)
        assert skipped(results) == {}
    failures = bench.traces("failures")
    assert len({process for process, _ in failures}) == 1
    assert 2 <= len(failures) <= 12, "it gets no more when others have completed what it failed"
    (note,) = dispatcher.status.notes
    assert re.match(r"worker \S+ on \S+ gets no more tasks: it failed 2 tasks that other workers completed", note)
    assert "OSError: [Errno 28] No space left on device); make room on its disk" in note


def test_where_everything_fails_it_is_an_error_and_not_a_search_without_results(some_kind, begin):
    with pytest.raises(RuntimeError, match=r"every task has failed so far(.|\n)*ArithmeticError: .* cannot be done"):
        run(begin(some_kind), [task_of(f"{i}", {f"{i}": "fail"}) for i in range(9)])


@pytest.mark.parametrize("lie", ["proof", "content", "status", "type", "of another task"])
def test_a_reply_that_cannot_be_right_is_not_used(begin, bench, lie):
    replies, lies = [], []

    def change(call, reply):
        replies.append(reply)
        if call.task != "task1" or len(lies) == 1:
            return reply
        lies.append(lie)
        changes = {
            "proof": {"proof": "0" * 64},
            "content": {"content": b"forged"},
            "status": {"status": "fine"},
            "type": {"seconds": "1"},
        }
        return replies[0] if lie == "of another task" else reply | changes[lie]

    def prepare(watched):
        watched.change_reply = change

    tasks = [task_of("task0", ["a"], cost=2), task_of("task1", ["b"]), task_of("task2", ["c"])]
    dispatcher = begin(KINDS["serial"], prepare)
    assert gained(run(dispatcher, tasks)) == bench.expected(tasks)
    assert lies == [lie]
    assert dispatcher.status.repeated == 1


def test_stop_ends_it_at_once_and_the_next_round_goes_on(any_kind, begin, bench):
    dispatcher = begin(any_kind)
    stopped = []
    tasks = [task_of("quick", ["quick"], cost=9), *(task_of(f"{i}", {f"{i}": "wait"}) for i in range(8))]
    results = []
    for result in dispatcher.run(tasks, lambda: bool(stopped) and bool(bench.traces("waits")), cut):
        results.append(result)
        stopped.append(True)
    assert gained(results) == bench.expected(tasks[:1])
    assert len(bench.traces("tasks")) < len(tasks)
    assert dispatcher.status.busy == dispatcher.status.waiting == 0
    bench.go()
    assert gained(run(dispatcher, tasks_of(3))) == bench.expected(tasks_of(3))


def test_a_task_that_needs_too_much_memory_is_cut_beforehand(some_kind, begin, bench):
    def prepare(watched):
        watched.change_infos = lambda infos: [replace(info, memory=1000 * some_kind.slots) for info in infos]

    dispatcher = begin(some_kind, prepare)
    tasks = [task_of("task", ["a", "b", "c", "d"], memory=3000)]
    results = run(dispatcher, tasks)
    assert gained(results) == bench.expected(tasks)
    assert [result.task.memory for result in results if isinstance(result, Done)] == [750] * 4
    assert dispatcher.status.notes == [
        "a task would need 3.0 kB, and a worker has 1.0 kB for each task: Shoal cut it into smaller ones",
        "a task would need 1.5 kB, and a worker has 1.0 kB for each task: Shoal cut it into smaller ones",
    ]


# --- what can only be done to other processes


def test_a_worker_that_is_killed_costs_its_task_only(process_kind, begin, bench):
    dispatcher = begin(process_kind)
    tasks = [task_of("long", {"long a": "wait", "long b": ""}, cost=99), *tasks_of(6)]
    kill = KillOnce(bench)

    results = run(dispatcher, tasks, kill)
    assert gained(results) == bench.expected(tasks)
    assert {result.task.name for result in results} == {task.name for task in tasks}  # it was not to blame: not cut
    assert [process for process, _ in bench.traces("waits")][:1] == kill.killed
    assert dispatcher.status.lost == 1
    assert dispatcher.status.repeated >= 1


def test_a_worker_that_hangs_is_replaced_after_a_limit_from_the_others(process_kind, begin, bench):
    limits = RetryLimits(patience_seconds=0.5, max_hangs=20)  # a new process may be slow; the limit doubles each time
    dispatcher = begin(process_kind, limits=limits)
    tasks = [*tasks_of(6), task_of("stopped", {"stopped": "stop once"}, cost=0.1)]
    assert gained(run(dispatcher, tasks)) == bench.expected(tasks)
    assert len(bench.traces("stops")) == 1
    assert "far longer than the others" in dispatcher.status.notes[0]


def test_a_poisonous_task_is_skipped_and_the_others_are_done(process_kind, begin, bench):
    dispatcher = begin(process_kind)
    tasks = [*tasks_of(4), task_of("poison", {"poison": "die"}, cost=2.5)]
    results = run(dispatcher, tasks)
    assert gained(results) == bench.expected(tasks[:-1])
    assert skipped(results).keys() == {"poison"}
    assert "workers in a row" in skipped(results)["poison"]
    assert len(bench.traces("deaths")) <= process_kind.kills


@pytest.mark.parametrize("name", ["processes", "local:2"])
def test_of_a_poisonous_task_only_the_guilty_part_is_lost(name, begin, bench):
    dispatcher = begin(KINDS[name])
    tasks = [task_of("task", {"a": "", "b": "die", "c": "", "d": ""}), *tasks_of(2)]
    results = run(dispatcher, tasks)
    assert skipped(results).keys() == {"b"}
    assert gained(results).keys() == bench.expected(tasks).keys() - {"b"}


def test_a_task_that_runs_out_of_memory_is_cut(process_kind, begin, bench):
    """Real memory, in a process that may not have more."""
    dispatcher = begin(process_kind)
    tasks = [task_of("task", dict.fromkeys("abcd", "memory"))]
    assert gained(run(dispatcher, tasks)) == bench.expected(tasks)
    assert {text for _, text in bench.traces("allocations")} == {"4", "2", "1"}
    assert "too little memory" in dispatcher.status.notes[0]


def test_workers_do_not_mix_jobs(begin, bench, tmp_path):
    dispatcher = begin(KINDS["local:2"])
    run(dispatcher, tasks_of(2))
    other = Bench(tmp_path, text="another job")
    dispatcher.job = other.job
    assert gained(run(dispatcher, tasks_of(2))) == other.expected(tasks_of(2))
    assert len(other.traces("loads")) >= 2
