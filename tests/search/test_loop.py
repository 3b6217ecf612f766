"""How the search goes about it: rungs, rounds, clocks, logs, ensembles."""

import time
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from sklearn.datasets import load_digits, load_iris
from sklearn.utils.validation import check_is_fitted
from support.callbacks import watching

import shoal
from shoal import Member, Population, ShoalClassifier
from shoal.encoders.scaling import NumberScaling
from shoal.metrics.tasks import CLASSIFICATION, REGRESSION, Task
from shoal.search import candidates
from shoal.search.candidates import Candidate
from shoal.search.ensemble import as_good_as_the_best, greedy, weigh
from shoal.search.leaderboard import variance_shares
from shoal.search.problem import distinct_rows
from shoal.search.space import Recipe, Space, tidy
from shoal.search.strategies import Halving, Random
from shoal.search.training import epochs_done, train
from shoal.tables.table import Table


@pytest.fixture(scope="module")
def iris():
    return load_iris(return_X_y=True)


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
    assert all(candidate.sample is not None for candidate in losers), (
        "their predictions still count in the honest score"
    )


def test_out_of_fold_predictions_come_from_networks_that_did_not_see_the_row(iris):
    X, y = iris
    model = ShoalClassifier(recipes=5, seeds=1, cv=4, ensemble=False).fit(X, y)
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


@pytest.mark.filterwarnings("ignore:short of time")
@pytest.mark.parametrize("budget", [1.5, 4.0])
def test_a_budget_is_used_and_kept(budget):
    X, y = load_digits(return_X_y=True)
    ShoalClassifier(recipes=1, seeds=1, epochs=1).fit(X[:100], y[:100])  # imports are not the search's time
    begun = time.monotonic()
    model = ShoalClassifier(budget=budget).fit(X, y)
    seconds = time.monotonic() - begun
    assert seconds < budget + 2.5, "a lax limit: the machine may be busy"
    assert seconds > 0.6 * budget
    assert model.result_.search.ended in ("", "budget")
    assert model.score(X, y) > 0.9


@pytest.mark.filterwarnings("ignore:short of time")
def test_a_budget_far_too_short_still_gives_a_model():
    X, y = load_digits(return_X_y=True)
    model = ShoalClassifier(budget=0.05).fit(X, y)
    check_is_fitted(model)
    assert model.score(X, y) > 0.3
    assert model.result_.search.ended == "budget"


@pytest.mark.filterwarnings("ignore:short of time")
def test_more_time_is_more_work_and_no_worse():
    X, y = load_digits(return_X_y=True)
    short, long = (ShoalClassifier(budget=b).fit(X[:800], y[:800]) for b in (1.0, 6.0))
    assert long.result_.search.costs.network_epochs > 2 * short.result_.search.costs.network_epochs
    loss = [-np.log(m.predict_proba(X[800:])[np.arange(997), y[800:]] + 1e-7).mean() for m in (short, long)]
    assert loss[1] < loss[0] + 0.005


@pytest.mark.filterwarnings("ignore:short of time")
def test_a_run_that_the_clock_ended_can_be_repeated_without_one(iris):
    X, y = iris
    first = ShoalClassifier(budget=2.0).fit(X, y)
    assert first.result_.repeats == 3, "few rows and a budget: folds are dealt three times"
    again = ShoalClassifier()
    again.repeat(X, y, first.result_)
    np.testing.assert_array_equal(first.predict_proba(X), again.predict_proba(X))
    assert first.leaderboard_["score"].tolist() == again.leaderboard_["score"].tolist()
    assert first.honest_score_.corrected == again.honest_score_.corrected


def test_a_watcher_may_end_the_search_and_the_best_so_far_is_kept(iris):
    seen = []

    def watch(progress):
        seen.append(progress)
        return progress.candidates >= 6

    model = ShoalClassifier(recipes=60, strategy="random")
    model.set_params(callbacks=[watching(watch)])
    model.fit(*iris)
    assert model.result_.search.ended == "interrupted"
    assert model.score(*iris) > 0.6
    assert seen[-1].candidates >= 6


def test_an_interruption_in_the_middle_of_the_first_round_keeps_what_stands(iris):
    """Nothing has reached a rung: networks are taken as they stand, and the log can still repeat the run."""
    X, y = load_digits(return_X_y=True)
    asked = []

    def watch(progress):
        asked.append(progress)
        return len(asked) > 12

    members = [Member(hidden=64, epochs=4_000_000, batch_size=8), Member(hidden=32, epochs=4_000_000, batch_size=8)]
    model = ShoalClassifier(members, strategy="grid", cv=2, seeds=1)
    model.set_params(callbacks=[watching(watch)])
    model.fit(X, y)
    assert not any(candidate.finished for candidate in model.result_.search.candidates)
    assert model.score(X, y) > 0.5
    again = ShoalClassifier(members, strategy="grid", cv=2, seeds=1)
    again.repeat(X, y, model.result_)
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


@pytest.mark.filterwarnings("ignore:short of time")
@pytest.mark.parametrize("budget", [1.0, 2.5])
def test_a_budget_that_ends_the_first_round_of_a_space_of_ones_own(budget):
    generator = np.random.default_rng(0)
    X = generator.normal(size=(4000, 20))
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    space = {"hidden": [(128, 128)], "learning_rate": [1e-3, 3e-3]}
    model = ShoalClassifier(space, budget=budget, epochs=200).fit(X, y)
    assert model.result_.search.ended == "budget"
    assert model.score(X, y) > 0.5
    fresh = generator.normal(size=(4000, 20))
    truth = (fresh[:, 0] * fresh[:, 1] > 0).astype(int)
    assert model.honest_score_.low - 0.03 <= model.score(fresh, truth), "it is not overstated"


# ---- parts ----


def test_equal_rows_are_one_row_whatever_their_order():
    generator = np.random.default_rng(0)
    X = generator.integers(3, size=(200, 2)).astype(float)
    X[generator.random((200, 2)) < 0.1] = np.nan
    y = generator.integers(2, size=200)
    table = Table.of(X)
    first, row_of = distinct_rows(table, y)
    known = {tuple(np.append(np.nan_to_num(row, nan=-9), label)) for row, label in zip(X, y, strict=True)}
    assert len(first) == len(known)
    for k in range(200):
        np.testing.assert_array_equal(X[first[row_of[k]]], X[k])
        assert y[first[row_of[k]]] == y[k]
    order = generator.permutation(200)
    second, _ = distinct_rows(Table.of(X[order]), y[order])
    np.testing.assert_array_equal(X[order][second], X[first])


def test_numbers_know_no_rows_of_weight_zero_and_bend_outliers():
    generator = np.random.default_rng(0)
    values = generator.normal(size=(100, 3))
    weight = np.ones(100)
    weight[50:] = 0
    before = NumberScaling.fit(values, weight).state()
    values[50:] = 1e9
    after = NumberScaling.fit(values, weight).state()
    for name in before:
        np.testing.assert_array_equal(before[name], after[name])
    scaled = NumberScaling.from_state(after).plain(values)
    assert np.abs(scaled).max() <= 3.0
    pieces = NumberScaling.from_state(after).piecewise(values[:50])
    np.testing.assert_allclose(pieces.mean(axis=0), 0, atol=1e-6)


def test_piecewise_encoding_is_monotone_and_exact_between_edges():
    values = np.linspace(0, 1, 101)[:, None]
    numbers = NumberScaling.fit(values, np.ones(101))
    pieces = numbers.piecewise(values)
    assert pieces.shape[1] == 12
    assert np.all(np.diff(pieces, axis=0) >= 0)
    lengths = np.diff(numbers.edges[0])
    np.testing.assert_allclose((pieces + numbers.offset[0]) @ lengths, values[:, 0], atol=1e-6)


def test_greedy_selection_finds_the_pair_that_complements_each_other():
    y = np.zeros((4, 1))
    loss_inputs = np.array(
        [[[1.0], [-1.0], [1.0], [-1.0]], [[-1.0], [1.0], [-1.0], [1.0]], [[1.1], [1.1], [1.1], [1.1]]]
    )
    counts = greedy(Task(REGRESSION, 1), loss_inputs, y, np.ones(4), 10)
    np.testing.assert_array_equal(counts[2], 0)
    assert counts[0] == counts[1] > 0


def test_weights_follow_the_best_only_as_far_as_the_rows_can_tell():
    generator = np.random.default_rng(0)
    task = Task(CLASSIFICATION, 2)
    near, shares = {}, {}
    for n in (20, 20_000):
        loss_inputs = generator.uniform(0.3, 0.6, size=(15, n, 1)).astype(np.float32)
        loss_inputs[3] += 0.03
        truth, ones = np.zeros(n, np.int64), np.ones(n)
        near[n] = as_good_as_the_best(task, loss_inputs, truth, ones)
        shares[n] = weigh(task, loss_inputs, truth, ones)
        assert shares[n].sum() == pytest.approx(1)
    assert len(near[20]) > 3
    assert shares[20].max() < 0.5, "on twenty rows nobody is the best"
    assert near[20_000].tolist() == [3]


# ---- drawing recipes ----


FEW = {"hidden": [(), (4,), (4,), (8,)], "activation": ["relu", "relu", "tanh"], "optimizer": ["adam"]}  # 5 recipes


def drawn(strategy, count=3, known=()):
    """All that a strategy proposes, some at a time."""
    recipes = []
    while more := strategy.propose(count, known):
        assert len(more) <= count
        recipes += more
        assert len(recipes) < 500
    return recipes


@pytest.mark.parametrize("kind", [Random, Halving])
@pytest.mark.parametrize("tries", [0, 1, 200])
def test_a_small_space_is_drawn_from_without_repetition_until_it_is_exhausted(kind, tries, monkeypatch):
    monkeypatch.setattr("shoal.search.strategies.TRIES", tries)
    expected = {recipe.key for recipe in Space(FEW).grid()}
    assert len(expected) == 5
    orders = [drawn(kind(Space(FEW), seed)) for seed in (0, 0, 1, 2)]
    for order in orders:
        assert len(order) == 5
        assert {recipe.key for recipe in order} == expected
    assert orders[0] == orders[1], "seeds of the networks included"
    assert len({tuple(recipe.key for recipe in order) for order in orders}) > 1
    assert len({recipe.member.seed for recipe in orders[0]}) == 5


def test_seeds_are_recipes_where_they_are_to_choose_from():
    recipes = drawn(Random(Space({"hidden": [(4,)], "seed": [1, 2, 3]}), 0))
    assert sorted(recipe.member.seed for recipe in recipes) == [1, 2, 3]


def test_a_distribution_of_few_values_is_exhausted_too():
    recipes = drawn(Random(Space({"hidden": scipy.stats.randint(1, 6)}), 0))
    assert sorted(recipe.member.hidden for recipe in recipes) == [(k,) for k in range(1, 6)]


def test_an_endless_space_is_drawn_from_as_ever():
    space = Space({"hidden": [(4,), (8,)], "learning_rate": scipy.stats.loguniform(1e-3, 1e-1)})
    assert Random(space, 3).propose(50, ()) == space.sample(50, np.random.default_rng(3))


def test_children_of_the_best_are_new_recipes():
    space = Space({"hidden": [(k,) for k in range(1, 7)], "activation": ["relu", "tanh"], "optimizer": ["adam"]})
    strategy = Halving(space, 0)
    candidates = [
        Candidate(k, recipe, finished=True, loss=float(k)) for k, recipe in enumerate(strategy.propose(6, ()))
    ]
    rest = drawn(strategy, 2, candidates)
    assert len(rest) == 6
    assert {recipe.key for recipe in rest} | {candidate.key for candidate in candidates} == {
        recipe.key for recipe in space.grid()
    }


def test_a_search_of_a_small_space_ends_when_all_of_it_was_tried(iris):
    for settings in ({"recipes": 100}, {"budget": 30.0}, {"strategy": "random", "recipes": 50}):
        begun = time.monotonic()
        model = ShoalClassifier(FEW, epochs=4, seeds=2, cv=2, **settings).fit(*iris)
        assert len(model.leaderboard_) == 5
        assert sum(model.leaderboard_["seeds"]) <= 10
        assert time.monotonic() - begun < 15


def test_linear_recipes_are_not_told_apart_by_what_they_do_not_use():
    assert tidy(Member(hidden=(), activation="tanh", dropout=0.5)) == Member(hidden=(), activation="identity")
    space = Space({"hidden": [()], "activation": ["relu", "tanh"], "dropout": [0.0, 0.5]})
    assert len({recipe.key for recipe in space.sample(20, np.random.default_rng(0))}) == 1


def test_shares_of_luck_are_found_in_made_up_scores():
    generator = np.random.default_rng(0)

    def candidates(architecture, seed, fold):
        folds = fold * generator.normal(size=6)
        groups = []
        for r in range(60):
            effect = architecture * generator.normal()
            group = []
            for _ in range(3):
                candidate = Candidate(0, Recipe(Member(hidden=r + 1, epochs=1)))
                candidate.fold_scores = effect + seed * generator.normal() + folds
                candidate.score, candidate.finished = float(candidate.fold_scores.mean()), True
                group.append(candidate)
            groups.append(group)
        return variance_shares(groups)

    assert candidates(1.0, 0.01, 0.01)["architecture"] > 0.98
    assert candidates(0.01, 1.0, 0.01)["seeds"] > 0.9
    assert candidates(0.01, 0.01, 1.0)["folds"] > 0.98
