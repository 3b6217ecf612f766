"""Local SGD: workers train alone on rows of their own, and their weights are averaged now and then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shoal.parallel.cost import Phase, Variant, link
from shoal.parallel.strategies.own_rows import OwnRows, OwnRowsUpdater

if TYPE_CHECKING:
    from shoal.parallel.job import Job
    from shoal.planner.cost.times import CostModel

# One worker by itself: the loop over flat vectors of strategies in which each worker holds the whole model.
ALONE: dict[str, Any] = {"strategy": "local_sgd", "average_every": "end", "workers": 1}


class LocalSgdUpdater(OwnRowsUpdater):
    """Weights are averaged every few steps, every epoch, or at the end; weighted by rows."""

    def _mix(self, share: float) -> None:
        if not self.apart:
            self._average(share)


class LocalSgd(OwnRows):
    """Another algorithm than all-reduce: the result depends on the number of workers."""

    name = "local_sgd"
    updater_class = LocalSgdUpdater
    vectors = 2

    def keeps_rows(self, job: Job) -> bool:
        dealt = job.split != "random" or job.shares is not None or job.until_error is not None
        return dealt or isinstance(job.average_every, str)

    def stays_apart(self, average_every: int | str) -> bool:
        return average_every == "end"

    def can_lose_workers(self, job: Job) -> bool:
        if job.average_every == "end":  # until then a checkpoint holds the weights of each worker
            return False
        in_an_epoch = self.keeps_rows(job) and not isinstance(job.average_every, str)  # others would have other rows
        return job.shares is None and job.until_error is None and not in_an_epoch

    def is_population(self, job: Job) -> bool:
        return isinstance(job.average_every, str)

    # ---- what it costs ----

    def variants(self) -> list[Variant]:
        return [self._every(every) for every in (8, "epoch", "end")]

    def variant(self, suffix: str) -> Variant | None:
        if suffix.isdecimal() and int(suffix) > 0:
            return self._every(int(suffix))
        return None if suffix else self._every(8)

    def _every(self, every: int | str) -> Variant:
        words = {"epoch": "averaging each epoch", "end": "averaging at the end"}
        return Variant(
            f"{self.name}:{every}", words.get(str(every), f"local SGD, {every} steps"), self, {"average_every": every},
            own_algorithm=True, by_default=True, can_fold=isinstance(every, str), measured_as=self.name,
        )  # fmt: skip

    def mixing_cost(self, costs: CostModel, nodes: int) -> tuple[Phase, float]:
        averaged = costs.facts.averaged
        seconds = costs.messages(nodes).all_reduce(averaged, nodes) + 2 * costs.calibration.copy
        return link("average", seconds), 2 * (nodes - 1) / nodes * averaged
