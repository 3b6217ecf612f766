"""The simulation of a search on many workers: what must hold whatever the costs are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.search import shard_costs
from benchmarks.search.clusters import holds_up
from benchmarks.search.simulate import Costs, cut, gains, simulate
from shoal.search.budget.costs import work_share
from shoal.search.strategies import HALVING, TO_THE_END

FREE = Costs(recipe=9.0)


def test_one_worker_and_no_costs_take_the_time_of_the_work() -> None:
    run = simulate(FREE, recipes=90, workers=1, round_of=45)
    assert run.seconds == pytest.approx(90 * 9.0 * work_share(HALVING))
    assert run.efficiency == pytest.approx(1.0)


@pytest.mark.parametrize("workers", [2, 7, 64])
def test_workers_share_the_work_and_the_last_one_is_not_far_behind(workers: int) -> None:
    run = simulate(FREE, recipes=2_000, workers=workers, round_of=2_000, rungs=TO_THE_END)
    assert run.training == pytest.approx(2_000 * 9.0)
    assert 0.9 < run.efficiency <= 1.0 + 1e-9


def test_a_rung_waits_for_the_one_before() -> None:
    """Two rounds of one recipe each are trained one after the other, however many workers there are."""
    assert simulate(FREE, 2, 100, round_of=1, rungs=TO_THE_END).seconds == pytest.approx(18.0)
    assert simulate(FREE, 2, 100, round_of=2, rungs=TO_THE_END).seconds == pytest.approx(9.0)


@pytest.mark.parametrize(
    ("costs", "guilty", "least"),
    [
        (replace(FREE, submit=0.5, collect=0.5), "search", lambda run: run.shards * 1.0),
        (replace(FREE, disk=2.0), "disk", lambda run: run.shards * 2.0),
        (replace(FREE, received=10**6, received_end=10**6, link=1e6), "link", lambda run: run.received / 1e6),
    ],
)
def test_no_search_is_quicker_than_its_busiest_part(costs: Costs, guilty: str, least: object) -> None:
    run = simulate(costs, 300, 200, round_of=300)
    assert callable(least)
    assert run.seconds >= 0.999 * least(run)
    gained = gains(costs, 300, 200, 300)
    assert max(gained, key=lambda name: gained[name]) == guilty
    assert holds_up(gained) != "nothing"


def test_the_job_goes_to_each_worker_once() -> None:
    run = simulate(replace(FREE, job=1_000), 500, 20, round_of=100)
    assert run.sent == 20 * 1_000


def test_survivors_of_a_rung_travel_with_their_networks() -> None:
    slow, quick = (simulate(replace(FREE, state=10**6, link=link), 90, 1, round_of=90) for link in (1e3, 1e9))
    assert slow.sent == quick.sent == 40 * 10**6
    assert slow.seconds > quick.seconds


def test_shards_are_all_of_the_work() -> None:
    for workers in (1, 3, 50):
        sizes = cut(37, 2.0, workers, least=0.25)
        assert sum(sizes) == 37
        assert max(sizes) <= max(1.0, 37 / (3 * workers))


def test_costs_are_measured_with_the_code_of_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_costs, "FLIGHTS", (5, 100))
    monkeypatch.setattr(shard_costs, "TIMES", 2)
    costs, round_of = shard_costs.measure(rows=60)
    assert round_of > 100
    assert min(costs.recipe, costs.submit, costs.collect, costs.disk, costs.watch) > 0
    assert costs.received_end > costs.received > 60 * 2 * 4  # predictions of all rows, and networks at the end
    assert costs.job > 60 * shard_costs.FEATURES * shard_costs.FOLDS * 4
