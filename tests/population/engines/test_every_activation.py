"""Every row of `shoal.population.activations` is trained by every engine as plain PyTorch trains it."""

from __future__ import annotations

import numpy as np
import pytest
from support.oracle import train_alone

from shoal import Member, Population
from shoal.population.activations import TABLE


@pytest.mark.parametrize("name", TABLE)
def test_engines_train_as_pytorch_does(engine, name):
    random = np.random.default_rng(0)
    X, y = random.normal(size=(24, 4)).astype(np.float32), random.integers(3, size=24)
    member = Member(hidden=(7, 5), activation=name, optimizer="sgd", learning_rate=0.5, batch_size=8, seed=1)
    population = Population([member], 4, 3)
    start = population.weights(0)
    population.fit(X, y, 3, engine=engine, threads=1)
    alone = train_alone(member, 4, 3, X, y, "cross_entropy", 3)
    for layer, expected, before in zip(population.weights(0), alone.weights, start, strict=True):
        for mine, theirs in zip(layer, expected, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-6, err_msg=f"{name} in engines/{engine}.py")
        assert np.abs(layer[0] - before[0]).max() > 1e-3, "there was something to learn"
