"""From what a user gives, such as "local:4" or an executor, to workers."""

from __future__ import annotations

import re
from concurrent.futures import Executor

from shoal.errors import UserError, WrongType
from shoal.executors.interface import Workers
from shoal.executors.serial import SerialWorkers
from shoal.validate import nearest, shown

MAX_PROCESSES = 1024
KINDS = {
    "local:N": "N worker processes on this machine",
    "dask://host:port": "the workers of a Dask scheduler",
    "tls://host:port": "the same, encrypted",
    "mpi": "the ranks of mpiexec -n 5 python -m mpi4py.futures -m shoal ...",
    "ray://host:port": "a Ray cluster",
}


def find_workers(cluster: str | Executor | Workers | None) -> Workers:
    """The workers that a name or an executor stands for; None: this process. UserError in a sentence."""
    if cluster is None:
        return SerialWorkers()
    if isinstance(cluster, Workers):
        return cluster
    if isinstance(cluster, str):
        return _named(cluster.strip())
    if isinstance(cluster, Executor):
        from shoal.executors.futures import FutureWorkers

        return FutureWorkers(cluster)
    raise WrongType(
        f"an executor must be a name such as 'local:4' or a concurrent.futures.Executor; got {shown(cluster)}"
    )


def _named(name: str) -> Workers:
    kind, colon, rest = name.partition(":")
    if kind == "serial" and not rest:
        return find_workers(None)
    if kind == "local" and not rest.startswith("/"):
        return _local(name, rest)
    if kind == "mpi" and not colon:
        from shoal.executors.mpi import MpiWorkers

        return MpiWorkers()
    if kind in ("dask", "tls"):
        from shoal.executors.dask.workers import DaskWorkers  # asyncio and ssl take 30 ms

        return DaskWorkers(name)
    if kind == "ray":
        from shoal.executors.ray import RayWorkers

        return RayWorkers(name)
    raise UserError(f"a cluster is one of {', '.join(KINDS)}; got {name!r}{_hint(name, kind)}")


def _hint(name: str, kind: str) -> str:
    known = sorted({word.partition(":")[0] for word in KINDS})
    found = "dask" if kind == "tcp" else next(iter(re.findall(r"'(\w+)'", nearest(kind, known))), "")
    return f"; did you mean '{found}{name[len(kind) :]}'?" if found else ""


def _local(name: str, count: str) -> Workers:
    from shoal.executors.local import LocalWorkers

    if not count.isdecimal() or not 1 <= int(count) <= MAX_PROCESSES:
        raise UserError(
            f"local:N needs a whole number of processes from 1 to {MAX_PROCESSES}, such as local:4; got {name!r}"
        )
    return LocalWorkers(int(count))
