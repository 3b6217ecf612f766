"""A fixed order of summation, which gives the same bits for any number of workers.

The gradient of a batch is a sum over its shards. Floating-point sums depend on their order, so shards are summed along
a binary tree that never changes. A worker holds neighbouring shards, and sums those that form whole nodes of the tree;
the rest of the tree is summed from the nodes of all workers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import TypeVar

Node = tuple[int, int]  # shards from the first to before the second
Value = TypeVar("Value")


def shares(count: int, parts: int) -> list[Node]:
    """Cut `count` items into consecutive parts of nearly equal size, the larger ones first.

    >>> shares(8, 3)
    [(0, 3), (3, 6), (6, 8)]
    """
    small, larger = divmod(count, parts)
    starts = [k * small + min(k, larger) for k in range(parts + 1)]
    return list(itertools.pairwise(starts))


def middle(node: Node) -> int:
    """Where a node is divided: after the largest power of two of shards that leaves at least one."""
    start, end = node
    return start + (1 << ((end - start - 1).bit_length() - 1))


def cover(mine: Node, root: Node) -> list[Node]:
    """The largest nodes of the tree that together are a range of shards, in order.

    >>> cover((0, 3), (0, 8)), cover((3, 6), (0, 8)), cover((6, 8), (0, 8))
    ([(0, 2), (2, 3)], [(3, 4), (4, 6)], [(6, 8)])
    """
    start, end = max(mine[0], root[0]), min(mine[1], root[1])
    if start >= end:
        return []
    if (start, end) == root:
        return [root]
    cut = middle(root)
    return cover(mine, (root[0], cut)) + cover(mine, (cut, root[1]))


def fold(node: Node, leaf: Callable[[int], Value | None], add: Callable[[Value, Value], Value]) -> Value | None:
    """The sum at a node, from `leaf(k)` for each of its shards; None is a shard without rows."""
    start, end = node
    if end - start == 1:
        return leaf(start)
    cut = middle(node)
    return _joined(fold((start, cut), leaf, add), fold((cut, end), leaf, add), add)


def combine(root: Node, known: Mapping[Node, Value | None], add: Callable[[Value, Value], Value]) -> Value | None:
    """The sum at a node, from known sums further down; None stands for shards without rows."""
    if root in known:
        return known[root]
    cut = middle(root)
    return _joined(combine((root[0], cut), known, add), combine((cut, root[1]), known, add), add)


def _joined(left: Value | None, right: Value | None, add: Callable[[Value, Value], Value]) -> Value | None:
    if left is None or right is None:
        return right if left is None else left
    return add(left, right)
