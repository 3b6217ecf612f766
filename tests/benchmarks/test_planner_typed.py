"""The benchmark of plans as users type them: cases, verdicts, and two commands that really run."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from random import Random

import pytest
from support.bench import bench
from support.mnist import write_mnist

pytest.importorskip("torch")

from benchmarks.planner import typed
from benchmarks.planner.subjects import Subject


def test_cases_are_drawn_anew_and_each_backend_has_the_same_networks():
    one, other = (typed.draw_cases(Random(seed), 6, ("threads", "processes"), 2) for seed in (1, 2))
    assert one == typed.draw_cases(Random(1), 6, ("threads", "processes"), 2)
    assert [case.subject for case in one] != [case.subject for case in other]
    assert [case.subject for case in one[::2]] == [case.subject for case in one[1::2]]
    assert {case.strategy for case in one + other} == set(typed.STRATEGIES)


def test_plan_and_training_get_the_same_arguments_and_one_worker_the_faster_way(monkeypatch):
    typed_words = []
    seconds = {"serial": 3.0, "blas": 2.0, "allreduce": 1.0}

    def trained(words, folder):
        typed_words.append(words)
        return seconds[words[words.index("--strategy") + 1]]

    monkeypatch.setattr(typed, "trained", trained)
    monkeypatch.setattr(typed, "_shoal", lambda words, folder: typed_words.append(words))
    monkeypatch.setattr(Path, "read_text", lambda path: "{}")
    case = typed.Case(Subject("x", "mlp:784-8-10", 500, (20, 50)), 20, "threads", "all-reduce", 2)
    typed.planned(case, Path("nowhere"))
    plan = {"rows": [{"nodes": 1, "seconds_per_epoch": 2.0}, {"nodes": 2, "seconds_per_epoch": 1.5}]}
    judged = typed.judge(case, plan, Path("nowhere"))
    assert judged.error == pytest.approx(0.5)
    assert (judged.predicted_speedup, judged.measured_speedup) == (pytest.approx(4 / 3), 2.0)
    assert judged.right
    planned, *_, together = typed_words
    assert planned[1 : 1 + len(together)] == together == case.together
    assert together[together.index("--rows") + 1] == "600"


def test_targets_are_missed_by_wrong_plans():
    good = typed.Judged("cnn", "threads", "here", "all-reduce", 2, 20, 0.51, 0.5, 2.0, 2.0)
    bad = dataclasses.replace(good, predicted=0.3, measured_speedup=0.5)
    assert [target.met for target in typed.targets([good] * 20, whole=True)] == [True, True, True]
    assert [target.met for target in typed.targets([good] * 9 + [bad], whole=True)] == [True, False, False]


def test_bench_planner_typed(tmp_path, monkeypatch):
    write_mnist(tmp_path / "data" / "mnist", train=400, test=50)
    monkeypatch.setenv("SHOAL_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(typed, "find_subject", lambda name: Subject(name, "mlp:784-8-10", 250, (20, 50)))
    result = bench(tmp_path / "out", "planner-typed --networks 1 --backends threads --seed 4")
    (case,) = result["cases"]
    assert case["net"] == "mlp:784-8-10"
    assert case["predicted"] > 0 < case["measured"]
    assert case["error"] == pytest.approx(case["predicted"] / case["measured"] - 1, abs=1e-4)
