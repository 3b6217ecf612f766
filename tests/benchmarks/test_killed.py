"""The benchmark of killed trainings: it disturbs what it says, and sees what is wrong."""

from __future__ import annotations

import sys
from random import Random

import pytest
from support.bench import bench

pytest.importorskip("torch")

from benchmarks.harness.searches import Attempt
from benchmarks.parallel import killed


def printing(tmp_path, *lines, code=0):
    """A command that prints these lines."""
    program = f"import sys; print({chr(10).join(lines)!r}, flush=True); sys.exit({code})"
    attempt = Attempt([sys.executable, "-c", program], tmp_path, tmp_path / "log")
    attempt.process.wait()
    return attempt


def test_only_progress_since_the_last_restart_counts(tmp_path):
    note = "note worker 1 was killed by SIGKILL; restarting from the last checkpoint with 2 workers"
    assert killed._restarts(printing(tmp_path, note, note)) == ["restarting from the last checkpoint"] * 2
    waiting = printing(tmp_path, "progress 0.9000", note, "progress 0.2000")
    assert not killed._has_come(waiting, 0.5), "it has ended and never came there again"


@pytest.mark.parametrize(
    ("lines", "code", "found"),
    [(["weights 12ab"], 0, "12ab"), (["weights 12ab"], 1, ""), (["progress 1.0000"], 0, "")],
)
def test_only_a_training_that_has_ended_well_has_weights(tmp_path, lines, code, found):
    assert killed._ended(printing(tmp_path, *lines, code=code)) == found


def test_cases_differ_and_can_be_trained():
    cases = [killed.draw_case(Random(seed)) for seed in range(40)]
    assert len({str(case) for case in cases}) == 40
    assert {case["workers"] for case in cases} == {2, 3, 4}
    for case in cases:
        assert case["workers"] <= case["job"]["shards"] <= 8


def training(**more):
    return {"faults": ["SIGKILL at 10%"], "found_after": [1.0], "same": True, "resumed": 1, "left_behind": 0,
            "left_in_shared_memory": 0, **more}  # fmt: skip


@pytest.mark.parametrize(
    ("more", "met"),
    [
        ({}, [True, True, True]),
        ({"same": False}, [False, True, True]),
        ({"found_after": [1.0, 10.5]}, [True, False, True]),
        ({"left_behind": 1}, [True, True, False]),
        ({"left_in_shared_memory": 1}, [True, True, False]),
    ],
)
def test_what_is_wrong_misses_a_target(more, met):
    found = killed.targets({"worker-killed": [training(), training(**more)]}, whole=True)
    assert [target.met for target in found] == met


def test_bench_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(killed, "STEPS", 300)
    result = bench(tmp_path, "killed --kinds worker-killed all-killed --kills 1 --seed 3")
    for found in result["kinds"].values():
        assert sum(len(one["faults"]) for one in found) == 1
        assert all(one["same"] and one["left_behind"] == one["left_in_shared_memory"] == 0 for one in found)
    assert [target["met"] for target in result["targets"]] == [True] * 4
