"""Folds of rows that depend on each other: by groups, and forward in time."""

from __future__ import annotations

import numpy as np

from shoal.errors import UserError

Pair = tuple[np.ndarray, np.ndarray]  # rows to train and to score on
FORWARD_FOLDS = 5  # by default; each trains on all earlier rows
FEWEST_BLOCKS = 10


def deal_groups(
    folds: int, groups: np.ndarray, labels: np.ndarray | None, seed: int | None, repeats: int = 1
) -> list[Pair]:
    """Folds that leave no group on both sides, alike in size and, with `labels` (n,) from 0, in classes.

    Groups are dealt like cards: those of one class (of most of their rows) together, the largest first, in random
    order where they are equally large.

    >>> pairs = deal_groups(2, np.array([0, 0, 1, 1, 2, 2, 3, 3]), np.array([0, 0, 0, 0, 1, 1, 1, 1]), seed=0)
    >>> [valid.tolist() for _, valid in pairs]
    [[2, 3, 4, 5], [0, 1, 6, 7]]
    """
    sizes = np.bincount(groups)
    usual = np.zeros(len(sizes), dtype=np.int64)
    if labels is not None:
        classes = int(labels.max()) + 1
        both, counts = np.unique(groups * classes + labels, return_counts=True)
        both = both[np.argsort(counts, kind="stable")]  # the most frequent last: it stays
        usual[both // classes] = both % classes
    random = np.random.default_rng(seed)
    round_trip = np.concatenate([np.arange(folds), np.arange(folds)[::-1]])
    pairs = []
    for _ in range(repeats):
        order = np.lexsort((random.random(len(sizes)), -sizes, usual))
        fold = np.empty(len(sizes), dtype=np.int64)
        fold[order] = np.resize(round_trip, len(sizes))
        pairs += [(np.flatnonzero(fold[groups] != k), np.flatnonzero(fold[groups] == k)) for k in range(folds)]
    return pairs


def deal_forward(folds: int, time: np.ndarray) -> list[Pair]:
    """Forward chaining: each fold scores a stretch of time, and trains on all rows before it.

    Rows of one time stay together. The first stretch is never scored.

    >>> [(train.tolist(), valid.tolist()) for train, valid in deal_forward(2, np.array([3, 1, 1, 2, 3, 4]))]
    [([1, 2], [3]), ([1, 2, 3], [0, 4, 5])]
    """
    block = stretches(time, folds + 1)
    found = int(block.max())
    if found < 1:
        raise UserError("time must have at least 2 different values, or nothing is later; got 1")
    return [(np.flatnonzero(block < k), np.flatnonzero(block == k)) for k in range(1, found + 1)]


def stretches(time: np.ndarray, most: int) -> np.ndarray:
    """(n,) the number of each row's stretch of time, of about `most` with equally many rows each, none empty.

    >>> stretches(np.array([5, 1, 2, 2, 2, 9]), 3).tolist()
    [2, 0, 1, 1, 1, 2]
    """
    _, moment, counts = np.unique(time, return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - counts / 2
    number = np.minimum((middle * most / len(time)).astype(np.int64), most - 1)
    return np.asarray(np.unique(number, return_inverse=True)[1][moment])


def blocks_in_time(time: np.ndarray) -> np.ndarray:
    """(n,) blocks of neighbours, about as many as there are rows in each: what a bootstrap draws together."""
    return stretches(time, max(FEWEST_BLOCKS, int(np.sqrt(len(time)))))
