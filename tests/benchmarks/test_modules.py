"""Benchmarks of heads on one backbone and of modules as one: they compare like with like and publish what comes out."""

from __future__ import annotations

import numpy as np
import pytest
from support.bench import bench
from support.mnist import write_mnist

pytest.importorskip("torch")

from benchmarks.engine import heads, stack


def test_the_head_that_is_compared_is_the_same_in_every_company():
    companies = [heads.company(arm, 16, seed=3) for arm in heads.ARMS]
    assert [len(members) for members in companies] == [1, 16, 16]
    assert len({members[0] for members in companies}) == 1
    assert len({(member.hidden, member.activation) for member in companies[1]}) == 1
    assert len({(member.hidden, member.activation) for member in companies[2]}) >= 12
    assert any(not member.hidden for member in companies[2])
    curved = heads.company("varied heads", 16, 3, linear=False)
    assert all(member.hidden and member.activation != "identity" for member in curved)
    assert curved[0] == companies[0][0]
    assert all(len({member.seed for member in members}) == len(members) for members in companies)


def test_differences_are_paired_by_seed_and_judged_by_their_interval():
    runs = [
        {"rows": 9, "seed": seed, "arm": arm, **dict.fromkeys(heads.MEASURES, 0.5 + 0.1 * seed + gain)}
        for seed in range(4)
        for arm, gain in zip(heads.ARMS, (0.0, 0.02 + 0.001 * seed, -0.001 * (-1) ** seed), strict=True)
    ]
    found = {(one["arm"], one["against"]): one for one in heads.differences(runs) if one["measure"] == "head"}
    better = found["equal heads", "one head"]
    assert better["difference"] == pytest.approx(0.0215)
    assert heads.judged(better) == "better"
    assert heads.judged(found["varied heads", "equal heads"]) == "worse"
    assert heads.judged(found["varied heads", "one head"]) == "no difference shown"


def test_bench_heads(tmp_path, monkeypatch):
    write_mnist(tmp_path / "data" / "fashion-mnist", train=200, test=40)
    monkeypatch.setenv("SHOAL_DATA", str(tmp_path / "data"))
    result = bench(tmp_path, "heads --rows 150 --heads 3 --steps 40 --seeds 2 --rate 0.01")
    assert [run["arm"] for run in result["runs"]] == [*heads.ARMS] * 2
    assert len(result["differences"]) == 3 * len(heads.MEASURES)
    for run in result["runs"]:
        assert {measure for measure in heads.MEASURES if 0 <= run[measure] <= 1} == set(heads.MEASURES)
        if run["arm"] == "one head":
            assert run["head"] == run["mean"] == run["together"]
    assert np.mean([run["fresh"] for run in result["runs"]]) > 0.5  # the backbone has learned something


def test_bench_stack(tmp_path):
    result = bench(tmp_path, "stack --copies 2 --batches 4 --steps 2 --repeats 1")
    assert [(one["copies"], one["batch"]) for one in result["cases"]] == [(2, 4), (8, 4), (8, 4)]
    for one in result["cases"]:
        assert one["largest_difference_of_weights"] < 1e-5
        ratio = one["ways"]["loop"]["seconds"] / one["ways"]["stack"]["seconds"]
        assert one["stack_is_faster_by"] == pytest.approx(ratio, rel=1e-4)


def test_both_ways_train_and_a_difference_would_be_seen():
    case = stack.cases(3, (8,))[1]
    assert stack.largest_difference(case, 2) < 1e-5
    one, other = stack.Training(case, 2, 1, True), stack.Training(case, 2, 1, False)
    one()
    weights = [next(training.modules[0].parameters()) for training in (one, other)]
    assert (weights[0] - weights[1]).abs().max() > 1e-4  # the other one has not been trained
