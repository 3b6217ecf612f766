"""Folds by groups and forward in time."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.errors import UserError
from shoal.metrics.tasks import CLASSIFICATION, REGRESSION, Task
from shoal.search.problem.dealing import blocks_in_time, deal_forward, deal_groups
from shoal.search.problem.problem import make_folds


@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(0, 1 << 30), rows=st.integers(4, 200), groups=st.integers(2, 60), folds=st.integers(2, 8),
    repeats=st.integers(1, 3), classes=st.integers(0, 3),
)  # fmt: skip
def test_no_group_is_on_both_sides_and_every_row_is_scored_once(seed, rows, groups, folds, repeats, classes):
    random = np.random.default_rng(seed)
    _, of_row = np.unique(random.integers(groups, size=rows), return_inverse=True)
    folds = min(folds, int(of_row.max()) + 1)
    labels = random.integers(classes, size=rows) if classes else None
    pairs = deal_groups(folds, of_row, labels, seed, repeats)
    assert len(pairs) == folds * repeats
    for train, valid in pairs:
        assert len(valid)
        assert sorted([*train, *valid]) == list(range(rows))
        assert not set(of_row[train]) & set(of_row[valid])
    scored = np.concatenate([valid for _, valid in pairs])
    assert (np.bincount(scored, minlength=rows) == repeats).all()


def test_folds_are_alike_in_size_and_in_classes():
    random = np.random.default_rng(0)
    groups = np.repeat(np.arange(100), 5)
    labels = (np.arange(100) < 30).astype(int)[groups]
    for _, valid in deal_groups(5, groups, labels, seed=1):
        assert len(valid) == 100
        assert labels[valid].mean() == pytest.approx(0.3)
    uneven = np.repeat(np.arange(60), random.integers(1, 20, size=60))
    sizes = [len(valid) for _, valid in deal_groups(5, uneven, None, seed=1)]
    assert max(sizes) - min(sizes) < 20


@settings(max_examples=50, deadline=None)
@given(times=st.lists(st.integers(-5, 40), min_size=2, max_size=120), folds=st.integers(2, 8))
def test_forward_folds_train_on_earlier_rows_only(times, folds):
    time = np.array(times)
    if len(set(times)) < 2:
        with pytest.raises(UserError, match="at least 2 different values"):
            deal_forward(folds, time)
        return
    pairs = deal_forward(folds, time)
    assert 1 <= len(pairs) <= folds
    for train, valid in pairs:
        assert min(len(train), len(valid)) > 0
        assert time[train].max() < time[valid].min()
    scored = np.concatenate([valid for _, valid in pairs])
    assert len(np.unique(scored)) == len(scored)
    assert set(scored) | set(pairs[0][0]) == set(range(len(time))), "the first stretch is the only one never scored"


def test_blocks_are_neighbours():
    blocks = blocks_in_time(np.random.default_rng(0).permutation(400))
    assert len(np.unique(blocks)) == 20
    assert np.bincount(blocks).tolist() == [20] * 20


@pytest.mark.parametrize("task", [Task(CLASSIFICATION, 2), Task(REGRESSION, 1)])
def test_folds_of_a_search_are_by_groups_or_forward(task):
    y = np.arange(60) % 2 if task.kind == CLASSIFICATION else np.arange(60.0)[:, None]
    groups = np.array([f"g{k // 5}" for k in range(60)])
    pairs, name = make_folds(None, task, None, y, groups, 0, (4, 2))
    assert len(pairs) == 8
    assert name.endswith("4-fold by groups, 2 times")
    assert not any(set(groups[train]) & set(groups[valid]) for train, valid in pairs)
    pairs, name = make_folds(3, task, None, y, None, 0, time=np.arange(60) // 2)
    assert name == "3-fold forward in time"
    assert [(len(train), len(valid)) for train, valid in pairs] == [(14, 16), (30, 14), (44, 16)]
