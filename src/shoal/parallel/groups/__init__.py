"""How workers communicate: threads of one process, processes over torch.distributed, MPI ranks; one contract."""

from shoal.parallel.groups.base import Alone, Group, Lost
from shoal.parallel.groups.distributed import Distributed
from shoal.parallel.groups.mpi import Mpi
from shoal.parallel.groups.threads import Rendezvous, Threads

__all__ = ["Alone", "Distributed", "Group", "Lost", "Mpi", "Rendezvous", "Threads"]
