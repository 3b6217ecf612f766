"""Gossip: workers train alone on rows of their own, and now and then take the mean with their neighbours in a ring."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.errors import UserError
from shoal.parallel.cost import Phase, Variant, link
from shoal.parallel.lazy import torch
from shoal.parallel.strategies.own_rows import OwnRows, OwnRowsUpdater

if TYPE_CHECKING:
    from shoal.parallel.job import Job
    from shoal.planner.cost.times import CostModel


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


class Gossip(OwnRows):
    """No worker ever talks to all others, but to evaluate: the model is the mean of all."""

    name = "gossip"
    updater_class = GossipUpdater
    vectors = 3

    def check(self, job: Job) -> None:
        super().check(job)
        if job.average_every == "end":
            raise UserError(
                "strategy 'gossip' averages neighbours during the run; got average_every='end': give a number of "
                "steps or 'epoch', or use strategy 'local_sgd'"
            )

    def can_lose_workers(self, job: Job) -> bool:
        return False  # a checkpoint holds the weights of each worker

    # ---- what it costs ----

    def variants(self) -> list[Variant]:
        return [Variant("gossip", "gossip on a ring", self, {"average_every": "epoch"}, own_algorithm=True)]

    def variant(self, suffix: str) -> Variant | None:
        if suffix == "epoch":
            return self.variants()[0]
        if not suffix.isdecimal() or int(suffix) == 0:
            return None
        return Variant(f"gossip:{suffix}", f"gossip, {suffix} steps", self, {"average_every": int(suffix)},
                       own_algorithm=True, measured_as=self.name)  # fmt: skip

    def mixing_cost(self, costs: CostModel, nodes: int) -> tuple[Phase, float]:
        """To the left and to the right at the same time."""
        averaged = costs.facts.averaged
        seconds = costs.messages(nodes).neighbours(averaged, nodes) + 2 * costs.calibration.copy
        return link("neighbours", seconds), min(nodes - 1, 2) * averaged
