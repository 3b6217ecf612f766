"""Workers of one machine listen on that machine only: nobody on the network can reach them."""

from __future__ import annotations

import contextlib
import ipaddress
from typing import Any

import psutil
import pytest
from support.parallel_cases import SETTINGS, data, network

from shoal.parallel.training import make_job, run


def listeners() -> set[tuple[str, str]]:
    """Programs below this process, and this one, with the addresses that they accept connections on."""
    found = set()
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):  # it may end meanwhile
            accepting = [one for one in process.net_connections("inet") if one.status == psutil.CONN_LISTEN]
            found |= {(process.name(), one.laddr.ip) for one in accepting}
    return found


@pytest.mark.parametrize("backend", ["processes", "mpi"])
def test_workers_of_this_machine_listen_on_the_loopback_interface_at_most(backend: str) -> None:
    if backend == "mpi":
        pytest.importorskip("mpi4py")
    before, seen = listeners(), []

    def tell(content: dict[str, Any]) -> None:
        if "record" in content:  # both workers train
            seen.append(listeners() - before)

    job = make_job(**{**SETTINGS, "workers": 2, "backend": backend, "epochs": 2, "strategy": "allreduce"})
    run(job, network(), data(), None, tell)
    assert seen
    assert set.union(*seen), "the monitor listens"
    for name, address in set.union(*seen):
        assert ipaddress.ip_address(address).is_loopback, f"{name} listens on {address}"
