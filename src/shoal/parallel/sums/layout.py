"""Where parameters lie in a flat vector, and which part of it each worker sums and updates."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from shoal.parallel.exact.tree_sum import Node, shares
from shoal.parallel.lazy import torch

# Numbers. Parameters begin, and workers divide a vector, at multiples of it. Vector instructions take as many at a time
# or fewer: so which worker updates a number never changes how it is computed. It is also a multiple of a cache line.
GRAIN = 64


class FlatLayout:
    """A vector [parameters | tail]; the tail has what is summed besides, such as the loss."""

    def __init__(self, parameters: Sequence[torch.Tensor], tail: Sequence[torch.Tensor]) -> None:
        self.parameters, self.tail = list(parameters), list(tail)
        self.starts = [0, *itertools.accumulate(padded(part.numel()) for part in (*parameters, *tail))]
        self.count, self.width = self.starts[len(parameters)], self.starts[-1]

    def views(self, vector: torch.Tensor) -> list[torch.Tensor]:
        """Parts of a vector that has at least the parameters, each with the shape of its parameter."""
        return self._views(vector, self.parameters, self.starts)

    def tail_views(self, tail: torch.Tensor) -> list[torch.Tensor]:
        starts = [start - self.count for start in self.starts[len(self.parameters) :]]
        return self._views(tail, self.tail, starts)

    @staticmethod
    def _views(vector: torch.Tensor, like: list[torch.Tensor], starts: list[int]) -> list[torch.Tensor]:
        return [
            vector[start : start + part.numel()].view(part.shape) for part, start in zip(like, starts, strict=False)
        ]

    def parts(self, count: int) -> list[Node]:
        """The parameters in so many parts of nearly equal length.

        >>> FlatLayout([torch.zeros(200)], []).parts(3)
        [(0, 128), (128, 192), (192, 256)]
        """
        return [(GRAIN * start, GRAIN * end) for start, end in shares(self.count // GRAIN, count)]


def padded(count: int) -> int:
    """Rounded up to a multiple of GRAIN.

    >>> padded(1), padded(64)
    (64, 64)
    """
    return -(-count // GRAIN) * GRAIN
