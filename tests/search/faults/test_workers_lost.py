"""Workers, schedulers and ranks are killed or stopped while they compute: same bytes, and nothing finished is lost."""

from __future__ import annotations

import random
import signal
from pathlib import Path

import psutil
import pytest
from support.faults import RECIPES, Scene, scene
from support.waiting import wait_until

from benchmarks.harness.clusters import Dask, missing
from benchmarks.harness.searches import Attempt, alive, busy, send


def busy_worker(search: Scene, attempt: Attempt) -> psutil.Process:
    found = wait_until(lambda: busy(search.cluster.workers(attempt)) or not attempt.running)
    assert isinstance(found, list), "it ended before a worker was seen at work"
    return random.choice(found)


@pytest.mark.parametrize("cluster", ["local", "dask"])
def test_a_worker_is_killed_in_mid_shard(tmp_path: Path, table: Path, right: bytes, cluster: str) -> None:
    with scene(table, tmp_path / "a", RECIPES, cluster) as search:
        attempt = search.start(lambda: search.story.shards)
        send(busy_worker(search, attempt), signal.SIGKILL)
        search.finish(attempt)
        assert search.story.weights() == right


def test_a_worker_hangs(tmp_path: Path, table: Path, right: bytes) -> None:
    with scene(table, tmp_path / "a", RECIPES, "local") as search:
        attempt = search.start(lambda: search.story.shards)
        worker = busy_worker(search, attempt)
        send(worker, signal.SIGSTOP)
        search.finish(attempt)
        assert search.story.weights() == right
        assert not alive(worker), "a process that nobody waits for any more is ended"


def test_the_scheduler_is_killed_and_the_same_command_goes_on(tmp_path: Path, table: Path, right: bytes) -> None:
    with scene(table, tmp_path / "a", RECIPES, "dask") as search:
        assert isinstance(search.cluster, Dask)
        attempt = search.start(lambda: search.story.shards > 1)
        search.cluster.kill_scheduler()
        search.cluster.end()
        search.cluster.start()
        search.finish(attempt, starts=2)
        assert search.story.weights() == right
        assert len(search.story.attempts) == 1 or search.story.attempts[-1].found > 0


@pytest.mark.skipif(bool(missing("mpi")), reason="needs MPI")
def test_a_rank_is_killed_and_the_same_command_goes_on(tmp_path: Path, table: Path, right: bytes) -> None:
    with scene(table, tmp_path / "a", RECIPES, "mpi") as search:
        attempt = search.start(lambda: search.story.shards > 1)
        before = {path for path in search.story.files if path.name.startswith("shard")}
        send(busy_worker(search, attempt), signal.SIGKILL)
        wait_until(lambda: not attempt.running)
        assert attempt.code != 0, "an MPI job ends as a whole"
        assert before <= set(search.story.files), "nothing that was finished is lost"
        search.finish()
        assert search.story.attempts[-1].found > 0
        assert search.story.weights() == right
