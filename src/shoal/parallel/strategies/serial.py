"""The plain loop on one worker: with one thread, or with several for each matrix product."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shoal.parallel.strategies.base import Strategy
from shoal.parallel.strategies.updater import BackwardUpdater

if TYPE_CHECKING:
    from shoal.parallel.job import Job


class Blas(Strategy):
    """One worker, whose matrix products use all cores."""

    name = "blas"
    updater_class = BackwardUpdater
    one_worker = True
    can_be_exact = True

    def fingerprint(self, job: Job) -> dict[str, Any]:
        """The number of threads does not make another algorithm: the other of the two may resume a run."""
        return {"strategy": "plain", "exact": False, "shards": 0}


class Serial(Blas):
    """One worker, one thread."""

    name = "serial"
    one_thread = True
