"""Gossip: steps of a worker's own, then a mean with its two neighbours in a ring."""

from __future__ import annotations

import torch

from shoal.parallel.updaters.own_rows import OwnRowsUpdater


class GossipUpdater(OwnRowsUpdater):
    """Means are not weighted by rows: so the mean over all workers stays what it is when neighbours mix."""

    def share(self) -> float:
        return 1 / self.group.size

    def _mix(self, share: float) -> None:
        if self.group.size > 1:
            self._replace(self._with_neighbours)

    def _with_neighbours(self, own: torch.Tensor) -> torch.Tensor:
        """The mean of this worker and its neighbours; two workers are each other's only one."""
        left, right = (self.group.rank - 1) % self.group.size, (self.group.rank + 1) % self.group.size
        total = self.group.exchange_with(own, right, left) + own
        if left == right:
            return total / 2
        return (total + self.group.exchange_with(own, left, right)) / 3
