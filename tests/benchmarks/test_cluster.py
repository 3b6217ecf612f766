"""The benchmark of searches in shards: what it makes of what it has measured, and one real measurement."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.search import cluster

ON_WORKERS = {
    "workers": "local:2", "slots": 2, "threads": 1, "bytes_sent": 1000,
    "bytes_received": 2_000_000, "shards": 12, "lost": 0, "repeated": 0,
}  # fmt: skip


def made_up(seconds: list[float], sha: str = "a", trained_on: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    return [
        {"seconds": value, "cpu_seconds": 2 * value, "sha256": sha, "trained_on": trained_on or {}} for value in seconds
    ]


def found(**changes: list[dict[str, Any]]) -> dict[str, Any]:
    plain = made_up([12.0, 10.0, 20.0])
    runs = {cluster.PLAIN: plain, "local:2": made_up([12.3, 10.4, 30.0], trained_on=ON_WORKERS)} | changes
    return {name: cluster.summary(each, plain) for name, each in runs.items()}


def test_ratios_are_of_the_best_and_turn_by_turn() -> None:
    seconds = found()["local:2"]["seconds"]
    assert seconds["best"] == 10.4
    assert seconds["median"] == 12.3
    assert seconds["ratio"] == pytest.approx(1.04)
    assert seconds["median_ratio"] == pytest.approx(1.04)


def test_other_weights_or_too_much_time_miss_the_target() -> None:
    same, time = cluster.targets(found())
    assert (same.met, time.met, time.complete) == (True, True, False), "a search of 10 s is not over 10 s"
    plain = made_up([20.0])
    data = {cluster.PLAIN: cluster.summary(plain, plain), "local:2": cluster.summary(made_up([20.8]), plain)}
    assert [(target.met, target.complete) for target in cluster.targets(data)] == [(True, True), (True, True)]
    data["Dask, 1 worker"] = cluster.summary(made_up([22.0], sha="b"), plain)
    assert [target.met for target in cluster.targets(data)] == [False, True, False]
    data[cluster.OTHER] = cluster.summary(made_up([18.0]), plain)
    other = cluster.targets(data)[-1]
    assert (other.measured, other.met) == (pytest.approx(20 / 18), False), "ours by theirs"


def test_tables_and_plot() -> None:
    data = found(other=made_up([10.0, 10.0, 10.0], sha="b"))
    times, workers = cluster.tables(data)
    assert [row[-1] for row in times.rows] == ["yes", "yes", "NO"]
    assert workers.rows == [["local:2", "2", "1", "12", "1.0 kB", "2.0 MB", "0", "0"]]
    assert len(cluster.draw(data).axes) == 2


def test_a_real_search_in_one_process_and_on_a_worker_gives_the_same_weights() -> None:
    alone, on_worker = (cluster.measure(name, 2, 100, Path()) for name in (cluster.PLAIN, "local:1"))
    assert alone["sha256"] == on_worker["sha256"]
    assert not alone["trained_on"]
    assert on_worker["trained_on"]["shards"] > 0
    assert on_worker["children_cpu_seconds"] > 0
