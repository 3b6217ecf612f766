"""R2 of stretches of time."""

import pickle

import numpy as np
import pytest
from sklearn.metrics import r2_score

from shoal.metrics.metric import METRICS, forward_metric
from shoal.metrics.tasks import REGRESSION, Task

TASK = Task(REGRESSION, 1)


def test_the_right_level_of_each_stretch_explains_nothing():
    random = np.random.default_rng(0)
    level = np.repeat([0.0, 10.0, 30.0], [20, 30, 10])
    y, weight = (level + random.normal(size=60))[:, None], np.ones(60)
    stretches = [np.flatnonzero(level == value) for value in (0.0, 10.0, 30.0)]
    metric = pickle.loads(pickle.dumps(forward_metric(METRICS["r2"], y, weight, stretches)))
    means = np.concatenate([np.full((len(rows), 1), y[rows].mean()) for rows in stretches])
    assert float(metric.score(TASK, means, y, weight)) == pytest.approx(0.0)
    assert r2_score(y, means) > 0.98, "against the mean of all rows"
    assert float(metric.score(TASK, y, y, weight)) == 1.0
    alone = forward_metric(METRICS["r2"], y, weight, [np.arange(60)])
    assert float(alone.score(TASK, means, y, weight)) == pytest.approx(r2_score(y, means))


def test_other_scores_and_constant_targets_stay_as_they_are():
    y, weight = np.ones((6, 1)), np.ones(6)
    assert forward_metric(METRICS["r2"], y, weight, [np.arange(6)]) is METRICS["r2"]
    absolute = METRICS["neg_mean_absolute_error"]
    assert forward_metric(absolute, y, weight, [np.arange(6)]) is absolute
