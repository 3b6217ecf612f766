"""Spaces of recipes: what is in them, in words, and which recipes are equal."""

import numpy as np

from shoal import Member
from shoal.search.space import Recipe, Space, tidy, values_tried


def test_values_tried_in_words():
    kinds = [((8, 8), "relu", 0.0), ((), "mish", 1.0), ((16,), "relu", 0.5)] * 4
    members = [
        Member(hidden=hidden, batch_size=32 * k, learning_rate=k / 1000, activation=name, seed=k, clip=clip)
        for k, (hidden, name, clip) in enumerate(kinds, 1)
    ]
    recipes = [Recipe(member, ("plain", "piecewise")[k % 2]) for k, member in enumerate(members)]
    assert values_tried(recipes) == {
        "hidden": "linear, 16, 8x8", "activation": "mish, relu", "learning_rate": "0.001 to 0.012",
        "batch_size": "32 to 384", "clip": "0, 0.5, 1", "encoding": "piecewise, plain",
    }  # fmt: skip
    assert values_tried(recipes[:1]) == {}


def test_linear_recipes_are_not_told_apart_by_what_they_do_not_use():
    assert tidy(Member(hidden=(), activation="tanh", dropout=0.5)) == Member(hidden=(), activation="identity")
    space = Space({"hidden": [()], "activation": ["relu", "tanh"], "dropout": [0.0, 0.5]})
    assert len({recipe.key for recipe in space.sample(20, np.random.default_rng(0))}) == 1
