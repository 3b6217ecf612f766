"""The range that is shown while networks train."""

import numpy as np
import pytest

from shoal.live.recorders import SearchRecorder
from shoal.live.so_far import RangeSoFar
from shoal.search.events import Started


def test_the_range_removes_what_choosing_the_best_adds():
    """All candidates are worth 0.5. The best of 200 looks better, the middle of the range does not."""
    generator = np.random.default_rng(0)
    best, middle, covered = [], [], []
    for _ in range(80):
        scores = 0.5 + generator.normal(0, 0.05, (200, 5))
        so_far = RangeSoFar()
        for part in np.array_split(scores, 3):
            so_far.add(part)
        low, centre, high = so_far.interval()
        best.append(scores.mean(axis=1).max())
        middle.append(centre)
        covered.append(low <= 0.5 <= high)
    assert np.mean(best) > 0.54  # the negative control
    assert np.mean(middle) == pytest.approx(0.5, abs=0.015)
    assert np.mean(covered) > 0.8  # rough: folds that choose different recipes are not independent


def test_candidates_may_come_in_any_parts():
    scores = np.random.default_rng(1).normal(size=(100, 4))
    whole, parts = RangeSoFar(), RangeSoFar()
    whole.add(scores)
    for row in scores:
        parts.add(row[None])
    assert whole.interval() == parts.interval()


def test_too_few_folds_and_diverged_candidates_have_no_range():
    so_far = RangeSoFar()
    so_far.add(np.ones((3, 2)))
    so_far.add(np.full((3, 5), np.nan))
    assert so_far.interval() is None


@pytest.mark.parametrize(("metric", "most"), [("accuracy", 1.0), ("neg_log_loss", 0.0), ("r2", 1.0), ("mine", np.inf)])
def test_the_range_has_no_score_that_cannot_be(tmp_path, metric, most):
    with SearchRecorder(tmp_path, {}, print) as recorder:
        recorder.started(Started(10, 3, metric, None))
        recorder._so_far.add(np.array([[0.8, 0.9, 1.0]]) - (metric == "neg_log_loss"))
        low, middle, high = recorder._so_far.interval()
    assert low < middle < high <= most
    assert high == most or metric == "mine"
