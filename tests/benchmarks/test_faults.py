"""The benchmark of disturbed searches: what it does to processes and journals, and what it makes of what it saw."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import psutil
import pytest
from support.waiting import wait_until

from benchmarks.harness.clusters import free_port, listening
from benchmarks.harness.searches import Attempt, Story, alive, busy
from benchmarks.search.faults import faults, kinds
from shoal.runs.journal import Journal

WAYS = [kinds.truncate, kinds.flip, kinds.delete, kinds.swap, kinds.cut_events, kinds.flip_events]
FAMILY = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "print('ready', flush=True)\\nwhile True: {}"])
print("started", flush=True)
{}
"""


def words(inside: str, then: str) -> list[str]:
    return [sys.executable, "-c", FAMILY.format(inside, then)]


@pytest.mark.parametrize("way", WAYS)
def test_each_way_of_damage_changes_what_a_journal_finds(tmp_path: Path, way: Any) -> None:
    for seed in range(8):
        warned: list[str] = []
        journal = Journal(tmp_path / f"{seed}", warned.append)
        files = [journal.write("shard", [f"{k:02x}"], {"x": np.full(5, k)}) for k in range(3)]
        for k in range(3):
            journal.note("event", k)
        assert way(files, Random(seed))
        journal = Journal(journal.folder, warned.append)
        found = [journal.find("shard", f"{k:02x}") for k in range(3)]
        right = [place is not None and journal.read(place[0]) is not None for place in found]
        assert not all(right) or len(journal.events()) < 3


def test_damage_says_what_was_done_and_leaves_an_empty_journal_alone(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    path = journal.write("shard", ["aa"], {"x": np.zeros(1000)})
    assert kinds.damage([], Random(0)) == ""
    assert {kinds.cut_events([path], Random(0)), kinds.flip_events([path], Random(0))} == {""}, "there are no events"
    said = set()
    for seed in range(20):
        path = journal.write("shard", ["aa"], {"x": np.zeros(1000)})
        said.add(kinds.damage([path], Random(seed)))
    assert said == {"truncated", "bit flipped", "deleted", ""}, "one file cannot be swapped"


def test_an_attempt_knows_its_workers_and_ends_what_it_left_behind(tmp_path: Path) -> None:
    attempt = Attempt(words("pass", "child.wait()"), tmp_path, tmp_path / "log")
    (worker,) = wait_until(lambda: busy(attempt.workers()))
    assert worker.ppid() == attempt.process.pid
    attempt.kill()
    assert (attempt.code, attempt.running) == (-signal.SIGKILL, False)
    assert attempt.seconds > 0
    assert alive(worker), "only the process that was started is killed"
    assert attempt.end(patience=0) == 1
    wait_until(lambda: not alive(worker))
    assert attempt.end(patience=0) == 0


def test_a_process_that_waits_is_not_busy(tmp_path: Path) -> None:
    attempt = Attempt(words("import time; time.sleep(1)", "child.wait()"), tmp_path, tmp_path / "log")
    wait_until(lambda: "ready" in attempt.said())
    assert len(attempt.workers()) == 1
    assert not busy(attempt.workers())
    attempt.end(patience=0)


def test_what_outlives_a_search_that_ended_well_is_seen(tmp_path: Path) -> None:
    attempt = Attempt(words("pass", ""), tmp_path, tmp_path / "log")
    assert attempt.wait(60)
    assert attempt.code == 0
    assert attempt.end(patience=0) == 1


def test_a_search_that_fails_is_started_again_but_not_for_ever(tmp_path: Path) -> None:
    code = "import pathlib, sys; path = pathlib.Path('count'); n = len(path.read_text()) if path.exists() else 0; "
    code += "path.write_text('x' * (n + 1)); sys.exit(n < 2)"
    story = Story([sys.executable, "-c", code], tmp_path)
    assert not story.finish(60, starts=2)
    assert [attempt.code for attempt in story.attempts] == [1, 1]
    assert story.finish(60)
    assert story.seconds == sum(attempt.seconds for attempt in story.attempts) > 0
    assert story.weights() == b"", "it made none"


def test_a_search_that_hangs_is_ended(tmp_path: Path) -> None:
    story = Story([sys.executable, "-c", "import time; time.sleep(1000)"], tmp_path)
    assert not story.finish(0.2)
    assert not psutil.pid_exists(story.attempts[0].process.pid)


def test_a_free_port_is_one_that_nobody_listens_on() -> None:
    assert not listening(free_port())


def made_up(**changes: Any) -> dict[str, Any]:
    search = {
        "faults": ["a", "b"], "seconds": [2.0, 3.0, 10.0], "codes": [-9, -9, 0], "found": [0, 3, 9], "finished": True,
        "same": True, "left_behind": 0,
    }  # fmt: skip
    return {
        "kind": "worker killed", "cluster": "local", "undisturbed_seconds": [9.0, 11.0], "undisturbed_same": True,
        "searches": [search, search | {"faults": []}, search | changes],
    }  # fmt: skip


def test_seconds_lost_are_those_beyond_an_undisturbed_search_by_fault() -> None:
    assert faults.seconds_lost(made_up(faults=["a"], seconds=[40.0])) == [2.5, 30.0]
    assert faults.seconds_lost(made_up(finished=False)) == [2.5], "of a search that did not end nothing is known"


def test_one_search_with_other_bytes_misses_the_target() -> None:
    good, bad = made_up(), made_up(same=False, seconds=[50.0])
    assert [target.met for target in faults.targets(True, {"x": good})] == [True, True]
    assert [target.met for target in faults.targets(True, {"x": bad})] == [False, False]
    assert not faults.targets(False, {"x": good})[0].complete
    nothing = {"kind": "rank killed", "cluster": "mpi", "left_out": "mpi4py is not installed"}
    assert faults.targets(True, {"x": nothing}) == []
    rows = faults.table({"a": bad, "b": nothing}).rows
    assert rows[0][2:9] == ["4", "2", "2 of 2", "1 of 2", "6", "4", "0"]
    assert rows[1][:3] == ["rank killed", "mpi", "mpi4py is not installed"]
    assert faults.draw({"a": bad, "b": nothing}).axes


def test_kinds_are_those_of_the_help_and_can_be_misspelt(tmp_path: Path) -> None:

    said = " ".join(faults.faults.parser().format_help().split())
    assert " ".join(kinds.KINDS) in said
    with pytest.raises(ValueError, match=r"--kinds must be one of .*journl"):
        faults.faults(kinds=("journl",), out=tmp_path)


def test_a_benchmark_that_was_stopped_goes_on_after_the_last_kind(tmp_path: Path) -> None:
    faults.Done(tmp_path / "faults.jsonl", {"kills": 3}).add("mpi", made_up())
    assert faults.Done(tmp_path / "faults.jsonl", {"kills": 3}).of("mpi") == made_up()
    assert faults.Done(tmp_path / "faults.jsonl", {"kills": 3}).of("search") is None
    assert faults.Done(tmp_path / "faults.jsonl", {"kills": 4}).of("mpi") is None
