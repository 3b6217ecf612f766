"""`Population.set_weights`, the inverse of `Population.weights`."""

import numpy as np
import pytest

from shoal import Member, Population

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(60, 5)).astype(np.float32)
Y = (X[:, 0] + X[:, 1] > 0).astype(int)
KINDS = [Member(hidden=()), Member(hidden=(4, 3), features=(3, 0), optimizer="sgd", momentum=0.9), Member(patience=2)]


def test_weights_that_are_set_are_those_of_the_member():
    """A member goes on with its moments as if nothing had been set; after a reset, as a new one with these weights."""
    first, other, fresh, new = (Population([member.replace(seed=k) for member in KINDS], 5, 2) for k in (0, 0, 7, 8))
    for population in (first, other):
        population.fit(X, Y, 3, rows=0.25)
    for i in range(3):
        weights = first.weights(i)
        first.set_weights(i, weights)
        other.set_weights(i, weights, reset=True)
        fresh.set_weights(i, weights)
        new.set_weights(i, [(W.astype(float), b.tolist()) for W, b in weights])
    assert other.state.steps.tolist() == [0, 0, 0]
    assert not other.state.slots[: -other.layout.sizes[2]].any(), "the last slot has the best weights, not moments"
    assert np.array_equal(fresh.predict(X), first.predict(X))
    assert np.array_equal(fresh.predict(X), other.predict(X))
    assert np.array_equal(fresh.predict(X), new.predict(X))
    unchanged = Population(KINDS, 5, 2)
    unchanged.fit(X, Y, 3, rows=0.25)
    for population in (first, unchanged, fresh, other):
        population.fit(X, Y, 1, rows=0.25, shuffle=False)
    assert np.array_equal(first.predict(X, [0, 1]), unchanged.predict(X, [0, 1])), "moments are kept"
    assert np.array_equal(other.predict(X), fresh.predict(X))
    assert not np.allclose(other.predict(X), first.predict(X), atol=1e-4), "moments matter, or the test sees nothing"


def test_weights_that_are_set_replace_the_best_ones():
    population = Population(KINDS, 5, 2)
    before = population.weights(2)
    population.fit(X, Y, 3, rows=0.25)
    assert population.state.best_epoch[2] > 0
    population.set_weights(2, before)
    assert np.array_equal(population.weights(2)[0][0], before[0][0])


def test_a_diverged_member_goes_on_with_new_weights_after_a_reset():
    population = Population([Member(optimizer="sgd", learning_rate=1e38, momentum=0.9)], 5, 2)
    weights = population.weights(0)
    population.fit(X, Y, 3)
    population.set_weights(0, weights)
    assert population.status == ["diverged"]
    population.set_weights(0, weights, reset=True)
    assert population.status == ["active"]
    assert not population.state.slots.any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda layers: layers[:1], "member 1 has 3 layers, each a pair .* got 1"),
        (lambda layers: [layers[0][0], *layers[1:]], "of layer 0 of member 1 must be a pair .* got ndarray"),
        (
            lambda layers: [(layers[0][0].T, layers[0][1]), *layers[1:]],
            r"W of layer 0 .* shape \(5, 4\); got .* \(4, 5\)",
        ),
        (lambda layers: [*layers[:2], (layers[2][0], [[0, 0]])], r"b of layer 2 .* shape \(2,\); got .* \(1, 2\)"),
        (lambda layers: [*layers[:2], (layers[2][0], ["a", "b"])], "b of layer 2 of member 1 must hold numbers"),
        (lambda layers: [*layers[:2], (layers[2][0], [1, 1e99])], "b of layer 2 .* finite in float32; got inf"),
        (lambda layers: [(layers[0][0] + 1, layers[0][1]), *layers[1:]], "sees 2 columns only; .* must be zero"),
    ],
)
def test_weights_that_do_not_fit_are_refused_and_change_nothing(change, message):
    population = Population(KINDS, 5, 2)
    before = population.state.parameters.copy()
    with pytest.raises(ValueError, match=message):
        population.set_weights(1, change([(W + 0, b + 1) for W, b in population.weights(1)]))
    assert np.array_equal(population.state.parameters, before)
