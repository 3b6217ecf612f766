"""Which worker has which rows: at random, in order, by class; equal and uneven shares."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.own_rows_oracle import dealt

from shoal.parallel.data.ownership import owners, sizes
from shoal.parallel.job import Job


def job(workers: int, **settings) -> Job:
    return Job(strategy="local_sgd", workers=workers, **settings)


def shares_of_classes(owner: torch.Tensor, targets: torch.Tensor, workers: int) -> np.ndarray:
    """(classes, workers): the part of each class that each worker has."""
    table = np.zeros((int(targets.max()) + 1, workers))
    np.add.at(table, (targets.numpy(), owner.numpy()), 1)
    return table / table.sum(1, keepdims=True)


@given(st.integers(1, 6), st.integers(0, 60), st.sampled_from(["random", "order"]), st.integers(0, 3))
def test_equal_shares_are_those_of_the_oracle(workers, more, split, seed):
    rows = workers + more
    found = owners(None, rows, workers, job(workers, split=split, seed=seed))
    assert found.dtype == torch.int64
    assert torch.equal(found, dealt(rows, workers, split, None, seed))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(54, 200), st.sampled_from(["random", "order"]))
def test_uneven_shares_are_those_of_the_oracle(weights, rows, split):
    """With 54 rows nobody is left without."""
    found = owners(None, rows, len(weights), job(len(weights), split=split, shares=weights))
    assert torch.equal(found, dealt(rows, len(weights), split, tuple(weights)))


def test_sizes_are_exact_and_nobody_is_left_without_rows():
    assert sizes(131, 2, (3, 1)) == [98, 33]
    assert sizes(100, 3, (1, 2, 1)) == [25, 50, 25]
    assert sizes(7, 3, (1000, 1, 1)) == [5, 1, 1]
    assert sizes(189, 2, (5, 9)) == [68, 121]  # of equal remainders the first, though 5/14 + 9/14 is not 1 in floats
    assert sizes(131, 3, (2.5, 2.5, 2.5)) == sizes(131, 3) == [44, 44, 43]
    assert job(2, shares="3,1").shares == job(2, shares=[3, 1]).shares == (3.0, 1.0)


def test_rows_in_order_follow_each_other_and_a_seed_changes_only_what_is_drawn():
    found = [owners(None, 40, 3, job(3, split=split, seed=seed)) for split in ("order", "random") for seed in (0, 1)]
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[0].sort().values)
    assert not torch.equal(found[2], found[3])
    same = owners(None, 40, 3, job(3, shuffle=False))
    assert torch.equal(same, found[0])  # nothing is drawn where nothing is shuffled


# ---- by class ----


@pytest.mark.parametrize("alpha", [0.3, 1.0, 5.0])
def test_shares_of_a_class_have_mean_and_variance_of_the_dirichlet_distribution(alpha):
    """Mean 1/n and variance (n-1) / (n^2 (n alpha + 1)) of n workers, over many seeds and classes."""
    workers, classes, seeds = 4, 3, 400
    targets = torch.arange(classes).repeat_interleave(1000)
    drawn = np.array([
        shares_of_classes(owners(targets, len(targets), workers, job(workers, split=f"class:{alpha}", seed=seed)),
                          targets, workers)
        for seed in range(seeds)
    ])  # fmt: skip
    variance = (workers - 1) / (workers**2 * (workers * alpha + 1))
    error = np.sqrt(variance / (seeds * classes))
    assert np.abs(drawn.mean((0, 1)) - 1 / workers).max() < 5 * error
    assert drawn.var((0, 1)) == pytest.approx(np.full(workers, variance), rel=0.2)
    flat = drawn[..., 0]
    assert abs(np.corrcoef(flat[:, 0], flat[:, 1])[0, 1]) < 0.2  # each class is drawn by itself
    assert flat[:, 0] != pytest.approx(flat[:, 1])


def test_large_alphas_share_equally_and_small_ones_leave_a_class_to_one_worker():
    targets = torch.arange(10).repeat(200)
    found = {alpha: shares_of_classes(owners(targets, 2000, 4, job(4, split=f"class:{alpha}")), targets, 4)
             for alpha in ("1e6", "0.01")}  # fmt: skip
    assert np.abs(found["1e6"] - 0.25).max() < 0.01
    assert np.median(found["0.01"].max(1)) > 0.99


@given(st.integers(1, 8), st.integers(0, 60), st.integers(1, 6), st.sampled_from([1e-3, 0.1, 1.0, 100.0]),
       st.integers(0, 5), st.integers(1, 2))  # fmt: skip
def test_every_worker_has_rows_whatever_is_drawn(workers, more, classes, alpha, seed, least):
    rows = least * workers + more
    targets = torch.randint(classes, (rows,), generator=torch.Generator().manual_seed(seed))
    settings = job(workers, split=f"class:{alpha}", seed=seed)
    found = owners(targets, rows, workers, settings, least)
    assert found.dtype == torch.int64
    assert int(found.min()) >= 0
    assert int(torch.bincount(found, minlength=workers).min()) >= least
    assert torch.bincount(found).shape == (workers,)
    assert torch.equal(found, owners(targets, rows, workers, settings, least))


def test_rows_within_a_class_are_drawn_unless_nothing_is_shuffled():
    targets = torch.zeros(100, dtype=torch.int64)
    drawn, kept = (owners(targets, 100, 2, job(2, split="class:5", shuffle=shuffle)) for shuffle in (True, False))
    assert torch.equal(kept, kept.sort().values)
    assert not torch.equal(drawn, drawn.sort().values)
    assert torch.equal(torch.bincount(drawn), torch.bincount(kept))


@pytest.mark.parametrize(
    ("targets", "found"),
    [(None, "none"), (torch.zeros(9), r"\(9,\) of float32"), (torch.zeros(9, 2).long(), r"\(9, 2")],
)
def test_classes_are_needed_where_rows_are_dealt_by_class(targets, found):
    with pytest.raises(ValueError, match=rf"needs targets that are class numbers, one for each row; got {found}"):
        owners(targets, 9, 2, job(2, split="class:1"))


def test_more_workers_than_rows_are_refused():
    with pytest.raises(ValueError, match="3 workers need at least 3 rows, one each; got 2"):
        owners(None, 2, 3, job(3))
