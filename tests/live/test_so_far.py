"""The range that is shown while networks train."""

import numpy as np
import pytest

from shoal.live.so_far import RangeSoFar


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
