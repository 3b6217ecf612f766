"""From what a user gives, such as "local:4" or an executor, to workers."""

from __future__ import annotations

import importlib
import re
from concurrent.futures import Executor

from shoal.errors import UserError, WrongType
from shoal.executors.interface import Workers
from shoal.validate import nearest, shown

MOST = 1024
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
        from shoal.executors.serial import SerialWorkers

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
    if kind in ("dask", "tls", "ray"):
        return _remote(name, kind)
    known = {word.partition(":")[0] for word in KINDS}
    raise UserError(f"a cluster is one of {', '.join(KINDS)}; got {name!r}{_hint(name, kind, known)}")


def _hint(name: str, kind: str, known: set[str]) -> str:
    if kind == "tcp":
        return f"; did you mean 'dask{name[3:]}'?"
    found = nearest(kind, known)
    return found.replace(kind_found(found), kind_found(found) + name[len(kind) :]) if found else ""


def kind_found(text: str) -> str:
    match = re.search(r"'(\w+)'", text)
    return match[1] if match else ""


def _local(name: str, count: str) -> Workers:
    from shoal.executors.local import LocalWorkers

    if not count.isdecimal() or not 1 <= int(count) <= MOST:
        raise UserError(f"local:N needs a whole number of processes from 1 to {MOST}, such as local:4; got {name!r}")
    return LocalWorkers(int(count))


def _remote(name: str, kind: str) -> Workers:
    address = re.fullmatch(rf"{kind}://([^/:@\s]+|\[[0-9a-fA-F:]+\]):(\d+)/?", name)
    if name != "ray://" and (address is None or not 1 <= int(address[2]) <= 65535):
        port = {"dask": 8786, "tls": 8786, "ray": 10001}[kind]
        raise UserError(f"{kind}://host:port needs a host and a port, such as {kind}://scheduler:{port}; got {name!r}")
    module, attribute = {"ray": ("ray", "RayWorkers")}.get(kind, ("dask", "DaskWorkers"))
    found: Workers = getattr(importlib.import_module(f"shoal.executors.{module}"), attribute)(name)
    return found
