"""What strategies propose: no recipe twice, until the space is exhausted."""

import numpy as np
import pytest
import scipy.stats

from shoal.search.rounds.candidates import Candidate
from shoal.search.space import Space
from shoal.search.strategies import Halving, Optuna, Random

FEW = {"hidden": [(), (4,), (4,), (8,)], "activation": ["relu", "relu", "tanh"], "optimizer": ["adam"]}  # 5 recipes


def begun(strategy, *how):
    strategy.begin(*how)
    return strategy


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
    orders = [drawn(begun(kind(), Space(FEW), seed)) for seed in (0, 0, 1, 2)]
    for order in orders:
        assert len(order) == 5
        assert {recipe.key for recipe in order} == expected
    assert orders[0] == orders[1], "seeds of the networks included"
    assert len({tuple(recipe.key for recipe in order) for order in orders}) > 1
    assert len({recipe.member.seed for recipe in orders[0]}) == 5


def test_seeds_are_recipes_where_they_are_to_choose_from():
    recipes = drawn(begun(Random(), Space({"hidden": [(4,)], "seed": [1, 2, 3]}), 0))
    assert sorted(recipe.member.seed for recipe in recipes) == [1, 2, 3]


def test_a_distribution_of_few_values_is_exhausted_too():
    recipes = drawn(begun(Random(), Space({"hidden": scipy.stats.randint(1, 6)}), 0))
    assert sorted(recipe.member.hidden for recipe in recipes) == [(k,) for k in range(1, 6)]


def test_an_endless_space_is_drawn_from_as_ever():
    space = Space({"hidden": [(4,), (8,)], "learning_rate": scipy.stats.loguniform(1e-3, 1e-1)})
    assert begun(Random(), space, 3).propose(50, ()) == space.sample(50, np.random.default_rng(3))


def test_children_of_the_best_are_new_recipes():
    space = Space({"hidden": [(k,) for k in range(1, 7)], "activation": ["relu", "tanh"], "optimizer": ["adam"]})
    strategy = begun(Halving(), space, 0)
    candidates = [
        Candidate(k, recipe, finished=True, loss=float(k)) for k, recipe in enumerate(strategy.propose(6, ()))
    ]
    rest = drawn(strategy, 2, candidates)
    assert len(rest) == 6
    assert {recipe.key for recipe in rest} | {candidate.key for candidate in candidates} == {
        recipe.key for recipe in space.grid()
    }


@pytest.mark.parametrize("longest_is_best", [True, False])
def test_training_becomes_longer_where_the_longest_is_best(longest_is_best):
    space = Space({"hidden": [(4,), (8,)], "learning_rate": scipy.stats.loguniform(1e-3, 1e-1), "epochs": [5, 10, 20]},
                  most_epochs=90)  # fmt: skip
    strategy, known, longest = begun(Halving(), space, 0), [], []
    for _ in range(5):
        recipes = strategy.propose(40, known)
        longest.append(max(recipe.member.epochs for recipe in recipes))
        known += [
            Candidate(len(known) + k, one, finished=True, loss=(1 if longest_is_best else -1) / one.member.epochs)
            for k, one in enumerate(recipes)
        ]
    assert longest == ([20, 40, 80, 80, 80] if longest_is_best else [20] * 5)


def test_the_best_of_all_rounds_are_found_by_looking_at_each_candidate_once():
    """Looking at all of them in every round would make the time of a search grow with the square of its recipes."""
    space = Space({"hidden": [(4,)], "learning_rate": scipy.stats.loguniform(1e-3, 1e-1)})
    strategy, generator, known = begun(Halving(), space, 0), np.random.default_rng(0), Counted()
    for _ in range(20):
        recipes = strategy.propose(10, known)
        known += [
            Candidate(len(known) + k, recipe, finished=k % 3 > 0, loss=float(generator.random()))
            for k, recipe in enumerate(recipes)
        ]
    strategy.propose(10, known)
    best = sorted((candidate for candidate in known if candidate.finished), key=lambda candidate: candidate.loss)
    assert strategy.best == best[:16]
    assert known.taken == len(known)


class Counted(list):
    """A list that counts what is taken out of it by slices."""

    taken = 0

    def __getitem__(self, key):
        found = super().__getitem__(key)
        self.taken += len(found) if isinstance(key, slice) else 1
        return found


def test_optuna_is_told_of_the_recipes_that_were_trained():
    """Those that there was no time for are never told; the next ones are not taken for them."""
    pytest.importorskip("optuna")
    strategy = begun(
        Optuna(), Space({"hidden": [(1,), (2,)], "learning_rate": scipy.stats.loguniform(1e-3, 1e-1)}), 0, [], 99
    )
    strategy.propose(3, ())
    recipes = strategy.propose(4, ())
    strategy.learn([Candidate(k, one, loss=one.member.learning_rate) for k, one in enumerate(recipes)])
    told = {trial.number: trial.value for trial in strategy.study.trials if trial.value is not None}
    assert told == {3 + k: one.member.learning_rate for k, one in enumerate(recipes)}
