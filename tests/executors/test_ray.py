"""Ray, where it is installed: 200 MB and a start of seconds are too much for every run of the tests."""

from __future__ import annotations

import importlib.util
import os

import pytest
from support.executors import KillOnce, gained, run, task_of, tasks_of

from shoal.errors import MissingPackage, UserError
from shoal.executors.dispatch import Dispatcher
from shoal.executors.find import find_workers

with_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")


@pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="Ray is installed")
def test_without_ray_it_is_said_how_to_get_it(bench):
    with pytest.raises(MissingPackage, match=r"needs ray: pip install 'shoal-ml\[ray\]'"):
        find_workers("ray://").start(bench.job)


@with_ray
def test_a_search_on_this_machine_outlives_a_killed_process(bench, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.path.dirname(os.path.dirname(__file__)))
    kill = KillOnce(bench)

    with Dispatcher(find_workers("ray://"), bench.job) as dispatcher:
        tasks = [task_of("long", {"long": "wait"}, cost=99), *tasks_of(6), task_of("poison", {"poison": "die"})]
        assert gained(run(dispatcher, tasks, kill)) == bench.expected(tasks[:-1])
        assert kill.killed
        tasks = [task_of(f"{i}", {f"{i}": "fail once"}) for i in range(3)]
        assert gained(run(dispatcher, tasks)) == bench.expected(tasks)


@with_ray
def test_no_ray_cluster_at_the_address(bench):
    with pytest.raises(
        UserError, match=r"no Ray cluster answers there \(Connection refused\); start one with `ray start"
    ):
        find_workers("ray://127.0.0.1:1").start(bench.job)
