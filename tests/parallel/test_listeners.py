"""Workers of one machine listen on that machine only: nobody on the network can reach them."""

from __future__ import annotations

import contextlib
import ipaddress
import threading

import psutil
import pytest
from support.parallel_cases import SETTINGS, data, network

from shoal.parallel.groups.threads import Rendezvous, Threads
from shoal.parallel.launch import external
from shoal.parallel.training import make_job, run


def listeners() -> set[tuple[str, str, int]]:
    """Programs below this process, and this one, with the addresses and ports that they accept connections on."""
    found = set()
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):  # it may end meanwhile
            accepting = [one for one in process.net_connections("inet") if one.status == psutil.CONN_LISTEN]
            found |= {(process.name(), one.laddr.ip, one.laddr.port) for one in accepting}
    return found


@pytest.mark.parametrize("backend", ["processes", "mpi"])
def test_workers_of_this_machine_listen_on_the_loopback_interface_at_most(backend: str) -> None:
    if backend == "mpi":
        pytest.importorskip("mpi4py")
    before, seen = listeners(), []

    class Look:
        def step_ended(self, event: object) -> None:  # both workers train
            seen.append(listeners() - before)

    job = make_job(**{**SETTINGS, "workers": 2, "backend": backend, "epochs": 2, "strategy": "allreduce"})
    run(job, network(), data(), None, [Look()])
    assert seen
    assert set.union(*seen), "the monitor listens"
    for name, address, _ in set.union(*seen):
        assert ipaddress.ip_address(address).is_loopback, f"{name} listens on {address}"


@pytest.mark.parametrize("machines", [("one", "one"), ("one", "other")])
def test_ranks_of_a_launcher_know_whether_all_are_on_one_machine(machines, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the monitor and the store listen on 127.0.0.1."""
    monkeypatch.setattr(external, "machine", lambda: machines[int(threading.current_thread().name)])
    rendezvous, found = Rendezvous(2, 10.0), {}

    def work(rank: int) -> None:
        found[rank] = external._all_here(Threads(rendezvous, rank))

    workers = [threading.Thread(target=work, args=(rank,), name=str(rank)) for rank in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert found == dict.fromkeys(range(2), machines[0] == machines[1])
