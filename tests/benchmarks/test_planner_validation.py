"""`python -m benchmarks planner`: what is judged, and the whole command on a small case."""

from __future__ import annotations

import subprocess

import pytest
from support.bench import bench
from support.mnist import write_mnist
from support.planner import machine

pytest.importorskip("torch")

from benchmarks.planner import hosts, subjects, trainings, validation, validation_report
from benchmarks.planner.subjects import Subject, find_subject
from benchmarks.planner.validation import ALONE, Judged, judge
from shoal.errors import UserError
from shoal.planner.cost.cluster import Cluster


def judged(predicted, measured, predicted_speedup=2.0, measured_speedup=2.0, workers=2):
    return Judged("mlp", "threads", "this machine", "allreduce", workers, 64, predicted, measured, predicted_speedup,
                  measured_speedup)  # fmt: skip


def test_a_verdict_is_right_if_it_knew_whether_workers_are_faster():
    assert judged(1, 1, 1.2, 1.5).right is True
    assert judged(1, 1, 0.9, 1.5).right is False
    assert judged(1, 1, 1.2, 0.7).right is False
    assert judged(1, 1, 0.9, 1.04).right is None


def test_the_best_of_all_rounds_is_compared():
    times = {(ALONE, 1, 64): [(2.0, 2.2), (2.1, 1.8)], ("gossip", 2, 64): [(1.5, 1.2), (1.0, 1.25)]}
    one, two = judge("mlp", "threads", "this machine", times)
    assert (one.predicted, one.measured, one.measured_speedup) == (2.0, 1.8, 1.0)
    assert two.error == pytest.approx(1.0 / 1.2 - 1)
    assert (two.predicted_speedup, two.measured_speedup) == (pytest.approx(2.0), pytest.approx(1.5))


def test_targets_count_errors_and_verdicts(monkeypatch):
    monkeypatch.setattr(validation_report, "thread_count", lambda: 2)
    cases = [judged(1.05, 1.0), judged(1.3, 1.0), judged(0.88, 1.0, 0.5, 2.0)]
    found = {target.what: target for target in validation_report.targets(cases, [
        {"predicted": 0.9, "measured": 0.904}, {"predicted": 0.8, "measured": 0.79}])}  # fmt: skip
    assert found["median error of time"].measured == pytest.approx(12)
    assert not found["median error of time"].met
    assert found["time within 20%"].measured == pytest.approx(200 / 3)
    assert found["verdict right"].measured == pytest.approx(200 / 3)
    assert found["accuracy, farthest from the real run"].measured == pytest.approx(1.0)


def test_networks_by_chance_are_those_of_their_seed():
    drawn = [find_subject(f"drawn:{seed}") for seed in range(100, 160)]
    assert drawn == [find_subject(f"drawn:{seed}") for seed in range(100, 160)]
    assert len({(one.net, one.batches) for one in drawn}) == 60
    assert 5 < sum(one.net == "cnn" for one in drawn) < 35
    for one in drawn:
        small, large = one.batches
        assert 2 * small <= large <= one.rows // 4
    with pytest.raises(UserError, match="as in drawn:7"):
        find_subject("drawn:x")
    with pytest.raises(UserError, match="--net must be one of mlp, wide mlp, cnn, drawn:SEED"):
        find_subject("lenet")


def test_hosts_share_the_calibration_of_processes_and_batches_must_fit():
    subject = Subject("mlp", "mlp:784-8-10", 250, (32, 100))
    found = validation._trials(subject, ["threads", "processes"], (1, 2), ["1gbit"])
    assert [(one.backend, one.workers, one.rates) for one in found] == [
        ("threads", (1, 2), ()), ("processes", (1, 2), ["1gbit"])]  # fmt: skip
    assert [(one.backend, one.workers) for one in validation._trials(subject, ["mpi"], (1,), ["1gbit"])] == [
        ("mpi", (1,)), ("processes", ())]  # fmt: skip
    with pytest.raises(UserError, match="--workers 4 with --net mlp: its 250 rows are less than a batch of 100"):
        validation._trials(subject, ["threads"], (1, 4), [])


def test_hosts_that_fail_lose_nothing_else_and_are_tried_again(monkeypatch):
    """One worker is compared with where there is something to compare, and a link that failed has no case."""
    subject, tried = Subject("mlp", "mlp:784-8-10", 256, (32,)), []

    def fail(rate, runs, limit):
        tried.append((rate, [run["rows"] for run in runs]))
        raise subprocess.TimeoutExpired("hosts", limit)

    monkeypatch.setattr(validation, "calibrated", lambda *given: machine())
    monkeypatch.setattr(validation, "measured_alone", lambda subject: {32: 0.5})
    monkeypatch.setattr(validation, "measured_together", lambda *given: {("gossip", 2, 32): 0.25})
    monkeypatch.setattr(hosts, "run_on_hosts", fail)
    unable = {}
    trial = validation.Trial(subject, "processes", (1, 2), ("1mbit",))
    found = validation._judged(trial, 2, lambda words: None, unable)
    assert [(one.place, one.strategy, one.measured_speedup) for one in found] == [
        ("this machine", "gossip", 2.0), ("this machine", ALONE, 1.0)]  # fmt: skip
    assert tried == [("1mbit", [256] * len(validation.ON_HOSTS))] * 2
    assert set(unable.values()) == {"TimeoutExpired"}


@pytest.mark.parametrize(("strategy", "workers"), [("allreduce", 2), ("local_sgd:epoch", 2), (ALONE, 1)])
def test_parts_of_batches_count_in_proportion(strategy, workers):
    trial = validation.Trial(Subject("mlp", "mlp:784-8-10", 250, (32,)), "threads", (1, 2), ())
    whole = validation.Trial(Subject("mlp", "mlp:784-8-10", 192, (32,)), "threads", (1, 2), ())
    cell = (strategy, workers, 32)
    if workers == 1:
        whole = validation.Trial(Subject("mlp", "mlp:784-8-10", 224, (32,)), "threads", (1, 2), ())
    part, full = (validation._predicted(machine(), Cluster(), one, cell) for one in (trial, whole))
    assert part == pytest.approx(full * 250 / whole.subject.rows)


def test_the_whole_command(tmp_path, monkeypatch):
    write_mnist(tmp_path / "data" / "mnist", 500, 60)
    monkeypatch.setenv("SHOAL_DATA", str(tmp_path / "data"))
    monkeypatch.setitem(subjects.GIVEN, "mlp", Subject("mlp", "mlp:784-8-10", 250, (32,)))
    monkeypatch.setattr(validation, "STRATEGIES", {"threads": ("allreduce", "local_sgd:epoch")})
    trainings.data.cache_clear()
    try:
        result = bench(tmp_path / "out", "planner --quick")
    finally:
        trainings.data.cache_clear()
    cells = {(one["strategy"], one["workers"]): one for one in result["judged"]}
    assert set(cells) == {(ALONE, 1), ("allreduce", 2), ("local_sgd:epoch", 2)}
    assert all(one["predicted"] > 0 and one["measured"] > 0 for one in cells.values())
    for one in result["accuracy"]:
        if one["strategy"] != "parameter_server-async":  # the order of real workers is that of their luck
            assert one["predicted"] == pytest.approx(one["measured"], abs=0.02)
    assert {target["target"] for target in result["targets"]} >= {"median error of time", "verdict right"}


def test_two_hosts_with_a_slow_link():
    """Each rank runs on a host of its own, and what they send takes the time of the link."""
    why = hosts.missing()
    if why:
        pytest.skip(why)
    try:
        trainings.data()
    except OSError as error:
        pytest.skip(str(error))
    run = {"net": "mlp:784-64-10", "rows": 128, "settings": {"strategy": "allreduce", "exact": False, "epochs": 3,
                                                             "batch_size": 64, "blas_threads": 1}}  # fmt: skip
    slow, fast = (hosts.run_on_hosts(rate, [run])[0]["seconds"] for rate in ("5mbit", "1gbit"))
    bits = 2 * 8 * 4 * (784 * 64 + 64 + 640 + 10)  # gradients of two steps, sent once each way
    assert slow > 0.5 * bits / 5e6
    assert fast < slow / 2
