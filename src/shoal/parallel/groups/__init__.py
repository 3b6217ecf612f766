"""Communication between workers: threads of one process, processes over torch.distributed, MPI ranks; one contract."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from shoal.parallel.data.loader import find_device
from shoal.parallel.groups.base import Alone, Group, Lost
from shoal.parallel.groups.distributed import Distributed
from shoal.parallel.groups.mpi import Mpi
from shoal.parallel.groups.threads import InProcess, Rendezvous, Threads

if TYPE_CHECKING:
    from shoal.parallel.job import Job

__all__ = ["Alone", "Distributed", "Group", "InProcess", "Lost", "Mpi", "Rendezvous", "Threads", "connect"]


def connect(job: Job, rank: int, size: int, local_rank: int, by_mpi: bool, store: Callable[[], Any]) -> Group:
    """Connect this process to the others over MPI or torch.distributed. `by_mpi`: an MPI launcher has started them.

    A split model needs torch.distributed in any case; its processes find each other through the store.
    """
    if by_mpi and not job.method.splits_model:
        return Mpi(job.timeout)
    return Distributed(store(), rank, size, job.timeout, find_device(job.device, local_rank))
