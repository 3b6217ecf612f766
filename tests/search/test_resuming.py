"""A search with a budget goes on: the time of earlier attempts counts, and what the clock has decided stays."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.stats
from support.callbacks import Crash, CrashAfter
from support.fitting import fit_table

import shoal
from shoal.runs.journal import Journal
from shoal.search.budget.clock import Decisions
from shoal.search.estimators import ShoalClassifier
from shoal.search.rounds.proposals import _by_time
from shoal.search.space import Space
from shoal.search.strategies import STRATEGIES

BUDGET, SPEED = 12.0, 2e7


def searched(iris, machine, folder, space=None, **more):
    X, y = iris
    model = ShoalClassifier(space, budget=BUDGET, cv=3, epochs=9, seeds=2, **more)
    journal = None if folder is None else Journal(folder)
    return fit_table(model, X, y, "species", clock=machine.clock(BUDGET), journal=journal)


@pytest.mark.filterwarnings("ignore:short of time")
@pytest.mark.parametrize("space", [None, {"hidden": [4, 8, 16], "learning_rate": [3e-3, 1e-2, 3e-2]}])
def test_attempts_that_crash_do_what_one_undisturbed_attempt_does(iris, space, machine_of_speed, tmp_path):
    whole = searched(iris, machine_of_speed(SPEED), None, space)
    crashes = 0
    while True:
        try:
            resumed = searched(
                iris, machine_of_speed(SPEED), tmp_path / "j", space, callbacks=[CrashAfter(crashes + 1)]
            )
            break
        except Crash:
            crashes += 1
    assert crashes >= 4
    assert resumed.result_.log == whole.result_.log
    assert resumed.result_.ended == whole.result_.ended
    for model, name in ((whole, "whole"), (resumed, "resumed")):
        shoal.save(model, tmp_path / name)
    for file in ("weights.safetensors", "model.json"):
        assert (tmp_path / "whole" / file).read_bytes() == (tmp_path / "resumed" / file).read_bytes()


@pytest.mark.filterwarnings("ignore:short of time")
def test_the_time_of_earlier_attempts_counts(iris, machine_of_speed, tmp_path):
    machine = machine_of_speed(SPEED)
    with pytest.raises(Crash):
        searched(iris, machine, tmp_path / "j", callbacks=[CrashAfter(4)])
    first = machine.time
    again = machine_of_speed(SPEED)
    resumed = searched(iris, again, tmp_path / "j")
    assert 0 < first < BUDGET
    assert again.time <= BUDGET - first + 1.0
    assert resumed.result_.search.trainer.recalled


def test_what_was_ended_by_the_user_goes_on_to_the_full_search(iris, tmp_path):
    """Ctrl-C, or a callback, keeps the best so far and the journal too."""
    X, y = iris

    class EndAfterFirstRung:
        def step_ended(self, rung):
            return True

    ended = ShoalClassifier(recipes=9, cv=3, epochs=9, journal=tmp_path / "j", callbacks=[EndAfterFirstRung()]).fit(
        X, y
    )
    assert ended.result_.ended == "interrupted"
    resumed, whole = (
        ShoalClassifier(recipes=9, cv=3, epochs=9, journal=tmp_path / "j"),
        ShoalClassifier(recipes=9, cv=3, epochs=9),
    )
    assert resumed.fit(X, y).result_.log == whole.fit(X, y).result_.log
    assert resumed.result_.search.trainer.recalled >= 9
    for model, name in ((whole, "whole"), (resumed, "resumed")):
        shoal.save(model, tmp_path / name)
    weights = [(tmp_path / name / "weights.safetensors").read_bytes() for name in ("whole", "resumed")]
    assert weights[0] == weights[1]


@pytest.mark.filterwarnings("ignore:short of time")
def test_a_journal_that_served_for_other_data_takes_no_time_and_decides_nothing(iris, machine_of_speed, tmp_path):
    X, y = iris
    searched((X[:, :2], y), machine_of_speed(SPEED), tmp_path / "j")
    alone, after = (
        ShoalClassifier(budget=BUDGET, cv=3, epochs=9, seeds=2, journal=journal) for journal in (None, tmp_path / "j")
    )
    for model in (alone, after):
        machine = machine_of_speed(SPEED)
        fit_table(model, X, y, "species", clock=machine.clock(BUDGET))
    assert after.result_.log == alone.result_.log
    again = machine_of_speed(SPEED)
    fit_table(after, X, y, "species", clock=again.clock(BUDGET))
    assert after.result_.log == alone.result_.log, "that of the same data does count"
    assert again.time < 0.5 * BUDGET


@pytest.mark.parametrize("name", ["halving", "random"])
def test_recipes_that_there_was_no_time_for_were_proposed(name, tmp_path):
    """A strategy goes on from what it has proposed; an attempt that goes on must do so, too."""
    space = Space({"hidden": [(4,), (8,)], "learning_rate": scipy.stats.loguniform(1e-3, 1e-1)})
    attempts = []
    for _ in range(2):
        search = SimpleNamespace(
            decisions=Decisions(Journal(tmp_path / "j")), candidates=[], limits=SimpleNamespace(seeds=1),
            clock=SimpleNamespace(left=lambda: 10.0), costs=SimpleNamespace(rate=1.0, seconds=lambda *_: 100.0),
            problem=SimpleNamespace(inputs={"plain": np.zeros((1, 1))}, task=SimpleNamespace(n_outputs=1), folds=[1]),
        )  # fmt: skip
        strategy = STRATEGIES[name]()
        strategy.begin(space, 0, [], 99)
        attempts.append([list(_by_time(search, strategy)) for _ in range(2)])
    first, again = attempts
    assert [len(rounds) for rounds in first] == [1, 1], "each time there is no time for a second round"
    assert again == first
