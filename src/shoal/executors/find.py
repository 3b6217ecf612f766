"""From what a user gives, such as "local:4" or an executor, to workers."""

from __future__ import annotations

import re
from concurrent.futures import Executor, Future

from shoal.errors import UserError, WrongType
from shoal.executors import worker
from shoal.executors.futures import FutureWorkers
from shoal.executors.interface import Call, RemoteJob, Reply, WorkerInfo, Workers
from shoal.validate import nearest, shown

KINDS = {
    "local:N": "N worker processes on this machine",
    "dask://host:port": "the workers of a Dask scheduler",
    "tls://host:port": "the same, encrypted",
    "mpi": "the ranks of mpiexec -n 5 python -m mpi4py.futures -m shoal ...",
}
CLASSES = {  # each is made from its name; loaded when it is used
    "local": "shoal.executors.local:LocalWorkers",
    "dask": "shoal.executors.dask.workers:DaskWorkers",
    "tls": "shoal.executors.dask.workers:DaskWorkers",
    "mpi": "shoal.executors.mpi:MpiWorkers",
}


class SerialWorkers(Workers):
    """The simplest executor: it does each call at once, in this process."""

    name = "serial"
    ahead = 0

    def start(self, job: RemoteJob) -> list[WorkerInfo]:
        return [WorkerInfo.of(worker.hello())]

    def slots(self) -> int:
        return 1

    def submit(self, call: Call) -> Future[Reply]:
        future: Future[Reply] = Future()
        future.set_result(worker.run(call))
        return future


def find_workers(cluster: str | Executor | Workers | None) -> Workers:
    """The workers that a name or an executor stands for; None: this process. UserError in a sentence."""
    if cluster is None or cluster == "serial":
        return SerialWorkers()
    if isinstance(cluster, Workers):
        return cluster
    if isinstance(cluster, Executor):
        return FutureWorkers(cluster)
    if not isinstance(cluster, str):
        raise WrongType(
            f"an executor must be a name such as 'local:4' or a concurrent.futures.Executor; got {shown(cluster)}"
        )
    name = cluster.strip()
    kind = name.partition(":")[0]
    if kind not in CLASSES or (kind == "mpi" and name != "mpi"):
        raise UserError(f"a cluster is one of {', '.join(KINDS)}; got {name!r}{_hint(name, kind)}")
    found: Workers = worker.function(CLASSES[kind])(name)
    return found


def _hint(name: str, kind: str) -> str:
    found = "dask" if kind == "tcp" else next(iter(re.findall(r"'(\w+)'", nearest(kind, sorted(CLASSES)))), "")
    return f"; did you mean '{found}{name[len(kind) :]}'?" if found else ""
