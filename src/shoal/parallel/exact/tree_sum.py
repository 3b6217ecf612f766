"""A fixed order of summation, which gives the same bits for any number of workers.

The gradient of a batch is a sum over its shards. Floating-point sums depend on their order, so shards are summed along
a binary tree that never changes. A worker holds neighbouring shards, and sums those that form whole nodes of the tree;
the rest of the tree is summed from the nodes of all workers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TypeVar

Node = tuple[int, int]  # shards from the first to before the second
Value = TypeVar("Value")


def shards_of(batch_size: int) -> int:
    """Shards of a batch, unless the user chooses: thin products take longer, and each shard is one vector more to sum.

    >>> shards_of(128), shards_of(4096)
    (4, 8)
    """
    return 4 if batch_size < 2048 else 8


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


def combine(
    node: Node, known: Callable[[Node], Value | None], filled: int, add: Callable[[Value, Value], Value]
) -> Value | None:
    """The sum at a node, from the sums that are known further down; None if it has no rows.

    known   the sum at a node, or None where that follows from the nodes below it
    filled  shards that have rows: the first ones
    """
    if node[0] >= filled:
        return None
    found = known(node)
    if found is not None:
        return found
    cut = middle(node)
    left, right = (combine(part, known, filled, add) for part in ((node[0], cut), (cut, node[1])))
    assert left is not None
    return left if right is None else add(left, right)
