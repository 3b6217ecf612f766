"""The ranks of `mpiexec -n 5 python -m mpi4py.futures -m shoal search ... --cluster mpi`: rank 0 searches, others work.

A rank that dies takes the whole MPI job down: nothing can be done about that here. What was finished is in the journal.
"""

from __future__ import annotations

from concurrent.futures import Executor

from shoal.errors import UserError
from shoal.executors.futures import FutureWorkers
from shoal.executors.interface import RemoteJob, WorkerInfo, library

HOW = "mpiexec -n 5 python -m mpi4py.futures -m shoal search ... --cluster mpi"


class MpiWorkers(FutureWorkers):
    def __init__(self, name: str) -> None:
        """No pool is opened before the search begins: options are checked first."""
        super().__init__(Executor(), name)
        library("mpi4py.futures", "mpi", "mpi")
        from mpi4py.futures import _core

        if _core.SharedPool is None:
            raise UserError(f"--cluster mpi works on the ranks of mpiexec: start it as {HOW}")
        from mpi4py import MPI  # not before: it starts MPI

        if MPI.COMM_WORLD.Get_size() < 2:
            raise UserError(f"--cluster mpi needs two ranks or more, one of them for the search: start it as {HOW}")

    def start(self, job: RemoteJob) -> list[WorkerInfo]:
        from mpi4py.futures import MPIPoolExecutor

        self.use(MPIPoolExecutor())
        return super().start(job)

    def close(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)
