"""The weights of an ensemble."""

import numpy as np
import pytest

from shoal.metrics.tasks import CLASSIFICATION, REGRESSION, Task
from shoal.search.scoring.ensemble import as_good_as_the_best, greedy, weigh


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
