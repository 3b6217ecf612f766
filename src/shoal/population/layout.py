"""The position of each member's parameters in one flat buffer: a pure function of the members and the data's shape."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from shoal.errors import UserError
from shoal.population.members import Member

ALIGNMENT = 16  # floats: every member starts on a 64-byte boundary, so that copies into the kernel are aligned
LARGEST_BUFFER = 1 << 46  # floats; larger layouts are refused, also because int64 products could overflow


class Layout:
    """Offsets of every member's parameters. A layer is a (fan_in + 1, fan_out) matrix whose last row is the bias.

    >>> layout = Layout([Member(hidden=3), Member(hidden=())], n_features=2, n_outputs=1)
    >>> layout.counts.tolist(), layout.offsets.tolist()
    ([13, 3], [0, 16])
    >>> layout.shapes(0)
    [(2, 3), (3, 1)]
    """

    def __init__(self, members: Sequence[Member], n_features: int, n_outputs: int) -> None:
        self.members = tuple(members)
        self.n_features = n_features
        self.n_outputs = n_outputs
        widths = [(len(m.features) if m.features else n_features, *m.hidden, n_outputs) for m in self.members]
        self.n_layers = np.array([len(w) - 1 for w in widths], dtype=np.int64)
        self.dims = np.array([width for w in widths for width in w], dtype=np.int64)
        self.dims_start = np.concatenate([[0], np.cumsum(self.n_layers + 1)]).astype(np.int64)[:-1]
        # Counted in Python integers first: a product of two widths may not fit in int64.
        largest = max((sum((a + 1) * b for a, b in itertools.pairwise(w)) for w in widths), default=0)
        if largest * max(len(widths), 1) > LARGEST_BUFFER:
            raise UserError(
                f"{len(widths)} members of up to {largest:,} parameters each are too large for one population; "
                "make the layers narrower or build several populations"
            )
        self.counts = self._counts()
        self.sizes = -(-self.counts // ALIGNMENT) * ALIGNMENT
        ends = np.cumsum(self.sizes)
        self.offsets = (ends - self.sizes).astype(np.int64)
        self.total = int(ends[-1]) if len(ends) else 0

    def _counts(self) -> np.ndarray:
        """Parameters of each member, (fan_in + 1) * fan_out summed over its layers."""
        if not len(self.members):
            return np.zeros(0, dtype=np.int64)
        products = np.zeros(len(self.dims), dtype=np.int64)
        products[1:] = (self.dims[:-1] + 1) * self.dims[1:]
        products[self.dims_start] = 0  # outputs of one member, inputs of the next: no layer
        return np.add.reduceat(products, self.dims_start)

    def __len__(self) -> int:
        return len(self.members)

    def __repr__(self) -> str:
        return (
            f"Layout({len(self)} members, {self.n_features} features, {self.n_outputs} outputs, "
            f"{int(self.counts.sum()):,} parameters in {self.total * 4 / 1e6:.1f} MB)"
        )

    def shapes(self, i: int) -> list[tuple[int, int]]:
        """(fan_in, fan_out) of each layer of member `i`."""
        start, layers = int(self.dims_start[i]), int(self.n_layers[i])
        dims = self.dims[start : start + layers + 1].tolist()
        return list(itertools.pairwise(dims))

    def views(self, i: int, buffer: np.ndarray, start: int | None = None) -> list[np.ndarray]:
        """The member's layers as (fan_in + 1, fan_out) views into a flat buffer; the last row is the bias."""
        position = int(self.offsets[i]) if start is None else start
        views = []
        for fan_in, fan_out in self.shapes(i):
            size = (fan_in + 1) * fan_out
            views.append(buffer[position : position + size].reshape(fan_in + 1, fan_out))
            position += size
        return views

    @cached_property
    def flops_per_row(self) -> np.ndarray:
        """Multiplications and additions of one training row per member: forward, and both backward products.

        The gradient with respect to the inputs of the first layer is never needed, nor counted.
        """
        result = np.empty(len(self), dtype=np.float64)
        for i in range(len(self)):
            shapes = self.shapes(i)
            result[i] = 6.0 * sum(a * b for a, b in shapes) - 2.0 * shapes[0][0] * shapes[0][1]
        return result
