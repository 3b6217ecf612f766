"""The loop of a search: rungs, rounds, the clock, the log that repeats it."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.utils.validation import check_is_fitted
from support.callbacks import watching
from support.fitting import fit_table

import shoal
from shoal import Member, Population, ShoalClassifier
from shoal.search.rounds import candidates
from shoal.search.rounds.training import epochs_done, new_networks, train
from shoal.tables.table import Table


def test_survivors_go_on_from_where_they_stand(iris):
    """A network that passed every rung equals one that was trained to its end in one go, bit for bit."""
    model = ShoalClassifier(recipes=12, seeds=1, cv=3).fit(*iris)
    search = model.result_.search
    problem = search.problem
    candidate = search.best_candidates()[0]
    assert candidate.epochs == candidate.target
    alone = Population([candidate.recipe.member] * 3, problem.inputs[candidate.recipe.encoding].shape[1], 3)
    alone.fit(
        problem.inputs[candidate.recipe.encoding], problem.targets, until=candidate.target, rows=problem.rows(1), seed=0
    )
    for k in range(3):
        for (W, b), (V, c) in zip(alone.weights(k), candidate.pool.weights(candidate, k), strict=True):
            np.testing.assert_array_equal(W, V)
            np.testing.assert_array_equal(b, c)


def test_losers_stop_costing_time(iris):
    model = ShoalClassifier(recipes=27, seeds=1).fit(*iris)
    candidates = model.result_.search.candidates
    done = sorted((candidate.epochs / candidate.target for candidate in candidates), reverse=True)
    assert [np.isclose(share, 1) for share in done] == [True] * 3 + [False] * 24
    assert sum(0.3 < share < 0.5 for share in done) == 6
    assert sum(share < 0.3 for share in done) == 18
    losers = [candidate for candidate in candidates if not candidate.finished]
    assert all(candidate.pool is None and candidate.prediction is None for candidate in losers), (
        "their weights are forgotten"
    )
    assert all(candidate.sampled for candidate in losers), "their predictions still count in the honest score"


def test_out_of_fold_predictions_come_from_networks_that_did_not_see_the_row(iris):
    X, y = iris
    model = ShoalClassifier(recipes=5, seeds=1, cv=4, model="best").fit(X, y)
    problem, best = model.result_.search.problem, model.result_.outcome.best
    for k, fold in enumerate(problem.folds):
        assert not np.any((fold.train > 0) & (fold.valid > 0))
        rows, inputs = problem.valid_inputs(best.recipe.encoding, k)
        weights = best.pool.weights(best, k)
        network = Population([best.recipe.member.replace(seed=1)], inputs.shape[1], 3)
        for layer, (W, b) in zip(network.layout.views(0, network.state.parameters), weights, strict=True):
            layer[:-1], layer[-1] = W, b
        expected = problem.task.activate(network.predict(inputs)[0])
        np.testing.assert_allclose(best.prediction[rows], expected, atol=1e-6)


def fit_on(machine, budget, X, y, **settings):
    """A classifier whose budget counts on that machine's clock."""
    return fit_table(ShoalClassifier(**settings), X, y, clock=machine.clock(budget))


@pytest.mark.filterwarnings("ignore:short of time")
@pytest.mark.parametrize("budget", [10, 40])
def test_a_budget_is_used_and_kept(budget, machine_of_speed):
    X, y = load_digits(return_X_y=True)
    machine = machine_of_speed(1e8)
    model = fit_on(machine, budget, X[:400], y[:400], cv=3)
    assert 0.6 * budget < machine.time < budget + machine.longest
    assert model.score(Table.of(X), y) > 0.8


@pytest.mark.filterwarnings("ignore:short of time")
def test_a_budget_far_too_short_still_gives_a_model(machine_of_speed):
    X, y = load_digits(return_X_y=True)
    model = fit_on(machine_of_speed(1e8), 0.05, X[:400], y[:400], cv=3)
    check_is_fitted(model)
    assert model.score(Table.of(X), y) > 0.3
    assert model.result_.search.ended == "budget"


@pytest.mark.filterwarnings("ignore:short of time")
def test_more_time_is_more_work_and_no_worse(machine_of_speed):
    X, y = load_digits(return_X_y=True)
    short, long = (fit_on(machine_of_speed(1e8), budget, X[:400], y[:400], cv=3) for budget in (5, 20))
    assert long.result_.search.costs.network_epochs > 2 * short.result_.search.costs.network_epochs
    new, rows = Table.of(X[400:]), np.arange(1397)
    loss = [-np.log(model.predict_proba(new)[rows, y[400:]] + 1e-7).mean() for model in (short, long)]
    assert loss[1] < loss[0] + 0.005


def test_a_run_that_the_clock_ended_can_be_repeated_without_one(iris, machine_of_speed):
    X, y = iris
    first = fit_on(machine_of_speed(2e8), 20, X, y)
    assert first.result_.search.ended == "budget"
    assert first.result_.repeats == 3, "few rows and a budget: folds are dealt three times"
    again = fit_table(ShoalClassifier(), X, y, earlier=first.result_.as_earlier())
    np.testing.assert_array_equal(first.predict_proba(Table.of(X)), again.predict_proba(Table.of(X)))
    assert first.leaderboard_["score"].tolist() == again.leaderboard_["score"].tolist()
    assert first.honest_score_.corrected == again.honest_score_.corrected


def test_a_watcher_may_end_the_search_and_the_best_so_far_is_kept(iris, machine_of_speed):
    seen = []

    def watch(progress):
        seen.append(progress)
        return progress.recipes >= 6

    machine_of_speed(1e8)
    model = ShoalClassifier(recipes=60, strategy="random", callbacks=[watching(watch)]).fit(*iris)
    assert model.result_.search.ended == "interrupted"
    assert model.score(*iris) > 0.6
    assert [progress.recipes >= 6 for progress in seen] == [False] * (len(seen) - 1) + [True]


def test_an_interruption_in_the_middle_of_the_first_round_keeps_what_stands(machine_of_speed):
    """Nothing has reached a rung: networks are taken as they stand, and the log can still repeat the run."""
    X, y = load_digits(return_X_y=True)
    asked = []

    def watch(progress):
        asked.append(progress)
        return len(asked) == 3  # epochs

    machine_of_speed(1e8)
    members = [Member(hidden=64, epochs=4_000_000, batch_size=8), Member(hidden=32, epochs=4_000_000, batch_size=8)]
    model = ShoalClassifier(members, strategy="grid", cv=2, seeds=1, callbacks=[watching(watch)]).fit(X, y)
    assert [candidate.epochs for candidate in model.result_.search.candidates] == [3, 3]
    assert not any(candidate.finished for candidate in model.result_.search.candidates)
    assert model.score(X, y) > 0.5
    again = ShoalClassifier(members, strategy="grid", cv=2, seeds=1).repeat(X, y, model.result_)
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


class Cut:
    """Ends a search in the midst of its n-th call of `train`, whatever the clock says: there, some candidates have
    been trained as far as they should (`done`), or for one epoch (`begun`), and the others have not been touched."""

    def __init__(self, call, done=0.0, begun=0.0):
        self.left, self.done, self.begun, self.stopped = call, done, begun, False

    def __call__(self, problem, metric, work, threads, control):
        self.left -= 1
        if self.left:
            return train(problem, metric, work, threads, control)
        work = replace(work, networks=work.networks or new_networks(problem, work.encoding, work.members))
        asked = np.flatnonzero(work.until.any(axis=1))
        done = asked[: round(self.done * len(asked))]
        begun = asked[len(done) : len(done) + round(self.begun * len(asked))]
        until = np.zeros_like(work.until)
        until[begun] = epochs_done(work.networks, len(problem.folds))[begun] + 1
        train(problem, None, replace(work, until=until), threads)
        until = np.zeros_like(work.until)
        until[done] = work.until[done]
        trained = train(problem, metric, replace(work, until=until), threads)
        self.stopped = True
        assert control.stop(), "asked in vain"
        return trained

    def progress(self, progress):
        return self.stopped


CUTS = {  # the call, candidates done, candidates begun; and how many rungs the log of each round then has
    "first rung, second pool untouched": (2, 0.0, 0.0, [1]),
    "first rung, second pool in part": (2, 0.4, 0.3, [1]),
    "second rung, first pool in part": (3, 0.4, 0.0, [2]),
    "second rung, first pool begun": (3, 0.0, 0.5, [2]),
    "second rung, second pool untouched": (4, 0.0, 0.0, [2]),
    "second rung, second pool in part": (4, 0.4, 0.3, [2]),
    "second rung, all done": (4, 1.0, 0.0, [2]),
    "last rung begun": (5, 0.0, 0.7, [3]),
    "more seeds, in part": (6, 0.4, 0.3, [3, 1]),
}


@pytest.mark.parametrize("name", CUTS)
def test_a_search_ended_anywhere_in_a_round_can_be_repeated(iris, name, monkeypatch, tmp_path):
    """Whose weights are there after an early end is another question than who would have gone on."""
    space = {"hidden": [4, 8, 16], "learning_rate": [1e-3, 3e-3, 1e-2, 3e-2], "encoding": ["plain", "piecewise"]}
    one, other = (ShoalClassifier(space, recipes=24, cv=3, epochs=9, seeds=2) for _ in range(2))
    *where, rungs = CUTS[name]
    cut = Cut(*where)
    one.set_params(callbacks=[cut])
    with monkeypatch.context() as patch:
        patch.setattr(candidates, "train", cut)
        one.fit(*iris)
    assert one.result_.search.ended == "interrupted"
    assert [len(entry["rungs"]) for entry in one.result_.search.log] == rungs
    other.repeat(*iris, one.result_)
    np.testing.assert_array_equal(one.predict_proba(iris[0]), other.predict_proba(iris[0]))
    assert one.leaderboard_["score"].tolist() == other.leaderboard_["score"].tolist()
    assert one.honest_score_.as_dict() == other.honest_score_.as_dict()
    assert one.result_.search.log == other.result_.search.log, "what was repeated can be repeated again"
    for estimator, folder in ((one, "one"), (other, "other")):
        shoal.save(estimator, tmp_path / folder)
    for file in ("model.json", "weights.safetensors"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "other" / file).read_bytes(), file


def test_a_repetition_that_is_ended_early_can_be_repeated_too(iris, monkeypatch):
    first, second, third = (ShoalClassifier(recipes=12, cv=3, epochs=9, seeds=1) for _ in range(3))
    cut = Cut(3, begun=1.0)
    first.fit(*iris)
    second.set_params(callbacks=[cut])
    with monkeypatch.context() as patch:
        patch.setattr(candidates, "train", cut)
        second.repeat(*iris, first.result_)
    assert second.result_.search.ended == "interrupted"
    third.repeat(*iris, second.result_)
    np.testing.assert_array_equal(second.predict_proba(iris[0]), third.predict_proba(iris[0]))
    assert not np.array_equal(first.predict_proba(iris[0]), second.predict_proba(iris[0]))


@pytest.mark.parametrize("budget", [4, 20])
def test_a_budget_may_end_the_first_round_of_a_space_that_the_user_gave(budget, machine_of_speed):
    generator = np.random.default_rng(0)
    X = generator.normal(size=(1000, 20))
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    space = {"hidden": [(64, 64)], "learning_rate": [1e-3, 3e-3]}
    model = fit_on(machine_of_speed(4e8), budget, X, y, space=space, epochs=200)
    assert model.result_.search.ended == "budget"
    assert len(model.result_.search.log) == 1
    assert model.score(Table.of(X), y) > 0.5
    fresh = generator.normal(size=(4000, 20))
    truth = (fresh[:, 0] * fresh[:, 1] > 0).astype(int)
    assert model.honest_score_.low - 0.03 <= model.score(Table.of(fresh), truth), "it is not overstated"


@pytest.mark.parametrize("budget", [None, 1e6])
@pytest.mark.parametrize("strategy", ["halving", "random"])
def test_a_search_of_a_small_space_ends_when_all_of_it_was_tried(strategy, budget, iris, machine_of_speed):
    machine = machine_of_speed(1e8)
    few = {"hidden": [(), (4,), (4,), (8,)], "activation": ["relu", "relu", "tanh"], "optimizer": ["adam"]}  # 5 recipes
    model = fit_on(machine, budget, *iris, space=few, strategy=strategy, recipes=100, epochs=4, seeds=2, cv=2)
    assert len(model.leaderboard_) == 5
    assert 6 <= sum(model.leaderboard_["seeds"]) <= 10, "those that were trained to the end have two seeds"
    assert model.result_.search.ended == ""
    assert machine.time < 1000
