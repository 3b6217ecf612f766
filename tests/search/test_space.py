"""Spaces of recipes: what is in them, in words, and which recipes are equal."""

import numpy as np

from shoal import Member
from shoal.search.space import Recipe, Space, tidy


def test_the_space_in_words_has_what_was_tried_beside_it():
    from scipy import stats

    space = Space({
        "hidden": [(), (16,), (8, 8)], "batch_size": [128, 256], "learning_rate": stats.loguniform(1e-3, 3e-2),
        "dropout": stats.uniform(0, 0.5), "weight_decay": [0.0, 3.0], "warmup": stats.norm(), "activation": ["relu"],
    })  # fmt: skip
    anchor = Recipe(Member(hidden=(16,), batch_size=32, learning_rate=0.1, dropout=0.1, activation="mish"))
    assert space.describe([anchor]) == {
        "hidden": "linear, 16, 8x8",
        "batch_size": "32, 128, 256",
        "learning_rate": "0.001 to 0.03, drawn evenly on a logarithmic scale, 0.1",
        "dropout": "0 to 0.5, drawn evenly",
        "weight_decay": "0, 3",
        "warmup": "drawn from the distribution norm",
        "activation": "relu, mish",
    }


def test_linear_recipes_are_not_told_apart_by_what_they_do_not_use():
    assert tidy(Member(hidden=(), activation="tanh", dropout=0.5)) == Member(hidden=(), activation="identity")
    space = Space({"hidden": [()], "activation": ["relu", "tanh"], "dropout": [0.0, 0.5]})
    assert len({recipe.key for recipe in space.sample(20, np.random.default_rng(0))}) == 1
