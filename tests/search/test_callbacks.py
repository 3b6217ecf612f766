"""Callbacks and strategies of the user's own, and a search that is stepped by hand on a clock that is wound by hand."""

import itertools
import sys

import numpy as np
import pytest
from sklearn.base import clone

from shoal import Member, ShoalClassifier
from shoal.callbacks import Callback
from shoal.errors import UserError
from shoal.search.budget.clock import Clock
from shoal.search.budget.costs import Limits
from shoal.search.rounds.loop import Search
from shoal.search.space import Recipe, check_space
from shoal.search.strategies import HALVING, STRATEGIES, InOrder, SearchStrategy, find_strategy


class Recorder(Callback):
    def __init__(self):
        self.events = []

    def started(self, started):
        self.events.append(("started", started))

    def progress(self, progress):
        self.events.append(("progress", progress))

    def step_ended(self, rung):
        self.events.append(("rung", rung))

    def finished(self, result):
        self.events.append(("finished", result))


@pytest.mark.parametrize("event", ["started", "progress", "step_ended", "finished"])
def test_a_callback_that_exits_has_failed(iris, event):
    """It would end Python with exit code 0."""

    class Leaves(Callback):
        pass

    setattr(Leaves, event, lambda self, content: sys.exit(0))
    with pytest.raises(UserError, match=rf"a callback called sys.exit\(0\) in {event}; .* return True"):
        ShoalClassifier(recipes=3, seeds=1, cv=3, callbacks=[Leaves()]).fit(*iris)


def test_a_callback_is_told_of_the_start_each_rung_and_the_end_in_this_order(iris):
    recorder = Recorder()
    model = ShoalClassifier(recipes=9, seeds=1, cv=3, callbacks=[recorder]).fit(*iris)
    names = [name for name, _ in recorder.events if name != "progress"]
    assert names == ["started", "rung", "rung", "rung", "finished"]
    started = recorder.events[0][1]
    assert (started.rows, started.folds, started.metric, started.budget) == (149, 3, "accuracy", None)
    rungs = [content for name, content in recorder.events if name == "rung"]
    assert [(len(rung.trained), len(rung.kept)) for rung in rungs] == [(9, 3), (3, 1), (1, 1)]
    assert recorder.events[-1][1] is model.result_
    assert recorder.events[-2][0] in ("progress", "rung")


def test_progress_counts_recipes_and_not_their_seeds(iris):
    recorder = Recorder()
    model = ShoalClassifier(recipes=5, seeds=3, epochs=5, cv=3, callbacks=[recorder]).fit(*iris)
    counted = [content.recipes for name, content in recorder.events if name == "progress"]
    assert len(model.result_.candidates) > 5
    assert counted == sorted(counted)
    assert counted[-1] == 5


def test_a_callback_may_end_the_search_after_a_rung(iris):
    class AfterOne(Callback):
        def step_ended(self, rung):
            return True

    model = ShoalClassifier(recipes=60, cv=3, callbacks=[AfterOne()]).fit(*iris)
    assert model.result_.ended == "interrupted"
    assert [len(entry["rungs"]) for entry in model.result_.log] == [2], "the rung, and what was there at the end"
    assert model.score(*iris) > 0.6
    again = ShoalClassifier(recipes=60, cv=3).repeat(*iris, model.result_)
    np.testing.assert_array_equal(again.predict_proba(iris[0]), model.predict_proba(iris[0]))


def test_a_callback_may_end_the_search_with_a_truth_value_of_numpy(iris):
    class GoodEnough(Callback):
        def step_ended(self, rung):
            return np.float64(0.9) > 0.5

    model = ShoalClassifier(recipes=9, seeds=1, cv=3, callbacks=[GoodEnough()]).fit(*iris)
    assert model.result_.ended == "interrupted"


def test_a_class_in_place_of_a_callback_is_refused(iris):
    with pytest.raises(UserError, match=r"a callback must be an object, such as Recorder\(\); got <class"):
        ShoalClassifier(recipes=3, callbacks=[Recorder]).fit(*iris)


@pytest.mark.parametrize("earlier", [None, ShoalClassifier()])
def test_what_is_no_result_cannot_be_repeated(iris, earlier):
    with pytest.raises(UserError, match=r"repeat needs the result of a search, such as model\.result_; got"):
        ShoalClassifier(recipes=3).repeat(*iris, earlier)


@pytest.mark.parametrize(
    ("given", "words"), [(Recorder(), "put it into a list"), (["x"], "at least one of the methods")]
)
def test_what_is_no_list_of_callbacks_is_refused(iris, given, words):
    with pytest.raises(UserError, match=words):
        ShoalClassifier(recipes=1, callbacks=given).fit(*iris)


class Widths(SearchStrategy):
    """Ever wider networks, until one is no better than the one before."""

    def begin(self, space, seed, first, rows):
        self.width, self.before, self.told = 1, np.inf, []

    def propose(self, count, known):
        return [] if self.width is None else [Recipe(Member(hidden=self.width, learning_rate=0.03, epochs=4))]

    def learn(self, candidates):
        (candidate,) = candidates
        self.told.append(candidate.loss)
        self.width = self.width * 2 if candidate.loss < self.before else None
        self.before = candidate.loss


def test_a_strategy_of_the_users_own_is_as_good_as_a_name(iris):
    mine = Widths()
    model = ShoalClassifier(strategy=mine, recipes=40, seeds=1, cv=2).fit(*iris)
    losses = [candidate.loss for candidate in model.result_.candidates]
    widths = [candidate.recipe.member.hidden for candidate in model.result_.candidates]
    assert widths == [(2**k,) for k in range(len(widths))]
    assert len(widths) > 1
    assert all(later < earlier for earlier, later in itertools.pairwise(losses[:-1]))
    assert losses[-1] >= losses[-2], "it ended because the last was no better"
    assert not vars(mine), "what the user gave stays as it was"
    assert clone(model).strategy is not mine


@pytest.mark.parametrize(
    ("proposal", "words"),
    [
        (Member(hidden=2), r"must propose .*Recipe\(member"),
        (Recipe(Member(hidden=2), "round"), "one of plain.*'round'"),
    ],
)
def test_what_a_strategy_must_not_propose_is_refused_in_a_sentence(iris, proposal, words):
    class Wrong(SearchStrategy):
        def propose(self, count, known):
            return [proposal]

    with pytest.raises(UserError, match=words):
        ShoalClassifier(strategy=Wrong(), recipes=2, cv=2).fit(*iris)


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_of_the_table_proposes_no_more_than_it_is_asked_for(name):
    space = {"hidden": [4, 8, 16], "learning_rate": [1e-3, 1e-2]}
    strategy = find_strategy(name, check_space(space, ["plain"]), 0, [], 100)
    proposed = strategy.propose(4, [])
    assert len(proposed) == 4
    assert {recipe.member.hidden for recipe in proposed} <= {(4,), (8,), (16,)}


def test_an_unknown_strategy_is_refused_with_the_names_of_the_table(iris):
    with pytest.raises(UserError, match=f"one of {', '.join(STRATEGIES)}.*did you mean 'halving'"):
        ShoalClassifier(strategy="halfing", recipes=1).fit(*iris)


class WoundClock(Clock):
    """Time passes only when a test says so."""

    def __init__(self, budget):
        self.time = 0.0
        super().__init__(budget, start=0.0, now=lambda: self.time)


def recipes(count, epochs=9):
    return [Recipe(Member(hidden=2 + k, learning_rate=0.01, epochs=epochs)) for k in range(count)]


@pytest.fixture
def search_of(iris):
    searched = ShoalClassifier(Member(hidden=2), strategy="grid", cv=3, epochs=1, seeds=1).fit(*iris).result_.search

    def make(budget, seeds=1):
        limits = Limits(recipes=9, seeds=seeds, finalists=2, default_epochs=9, threads=1, seed=0)
        return Search(searched.problem, searched.metric, limits, WoundClock(budget))

    return make


def test_a_search_can_be_stepped_and_drops_the_worse_at_each_rung(search_of):
    search = search_of(None)
    steps = search.run(InOrder(recipes(9), HALVING))
    first = next(steps)
    assert [candidate.epochs for candidate in first.trained] == [1] * 9
    worst_kept = max(candidate.loss for candidate in first.kept)
    dropped = [candidate for candidate in first.trained if candidate not in first.kept]
    assert len(first.kept) == 3
    assert min(candidate.loss for candidate in dropped) >= worst_kept
    assert all(candidate.pool is None for candidate in dropped), "their weights are gone"
    assert [candidate.epochs for candidate in next(steps).trained] == [3] * 3
    assert [candidate.epochs for candidate in next(steps).trained] == [9]
    assert list(steps) == []
    assert search.ended == ""


def test_a_clock_that_is_wound_ends_the_search_between_two_rungs(search_of):
    search = search_of(10.0)
    steps = search.run(InOrder(recipes(9), HALVING))
    next(steps)
    search.clock.time = 10.5
    assert list(steps) == []
    assert search.ended == "budget"
    assert search.best_candidates(), "what stood at the rung is kept"


def test_whoever_stops_stepping_leaves_a_search_that_can_be_concluded(search_of):
    search = search_of(None)
    steps = search.run(InOrder(recipes(9), HALVING))
    next(steps)
    steps.close()
    assert len(search.log) == 1
    assert search.best_candidates()
