"""The fewest networks that are within one standard error of the ensemble."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.metrics.tasks import REGRESSION, Task
from shoal.search.scoring.averaging import FoldPredictions
from shoal.search.scoring.ensemble import choose_compact, nested_picks

TASK = Task(REGRESSION, 1)


def made_up(seed, parts, folds, n=400, spread=0.0, noise=0.3):
    """Out-of-fold and per-fold predictions of parts that miss the target by `noise` each, of folds by `spread`."""
    rng = np.random.default_rng(seed)
    y = rng.normal(size=(n, 1))
    fold = rng.integers(0, folds, n)
    held_out = np.arange(folds)[:, None] == fold
    alone = y + noise * rng.normal(size=(parts, 1, n, 1)) + spread * rng.normal(size=(parts, folds, n, 1))
    out_of_fold = np.take_along_axis(alone, fold[None, None, :, None], axis=1)[:, 0]
    shares = np.full(parts, 1 / parts)
    weight = np.ones(n)
    whole = FoldPredictions(TASK, alone.mean(axis=0), held_out, ~held_out, y, weight, weight)
    return whole, alone, shares, (out_of_fold, y, weight)


def test_equal_parts_and_folds_are_one_network():
    whole, alone, shares, losses = made_up(0, 6, 4)
    alone[:] = alone[:1]
    losses[0][:] = losses[0][:1]
    found = choose_compact(whole, alone, shares, losses, 0)
    assert (len(found.parts), found.folds, found.networks, found.whole_networks) == (1, 1, 1, 24)


def test_parts_that_err_apart_are_kept_as_far_as_they_help():
    """Errors of parts are independent: the loss falls as one over their number."""
    found = choose_compact(*made_up(0, 8, 3, noise=1.0), 0)
    assert 4 <= len(found.parts) <= 8
    assert found.loss <= found.whole_loss + found.error


def test_folds_that_err_apart_are_kept():
    """The control of the first test: with folds that disagree much, one of them is not as good as all."""
    found = choose_compact(*made_up(0, 1, 8, noise=0.05, spread=1.0), 0)
    assert found.folds > 1


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 6), st.integers(2, 6), st.floats(0, 1), st.floats(0.01, 1))
def test_it_is_within_one_standard_error_or_everything(seed, parts, folds, spread, noise):
    found = choose_compact(*made_up(seed, parts, folds, 200, spread, noise), seed)
    assert 1 <= found.networks <= found.whole_networks == parts * folds
    assert found.loss <= found.whole_loss + found.error + 1e-12
    assert len(set(found.parts)) == len(found.parts)


def test_the_best_alone_comes_first_and_then_what_helps_it_most():
    y = np.zeros((4, 1))
    inputs = np.array([[1.0, 1, 1, 1], [0.9, 0.9, 0.9, 0.9], [-1, -1, -1, -1], [3, 3, 3, 3]])[..., None]
    assert nested_picks(TASK, inputs, y, np.ones(4), 1.0, 3)[:2] == [1, 2]
