"""The ranks that tests start: teams of several sizes, one after the other, train their jobs and save the weights.

Importing torch takes longer than the work. So MPI starts as many ranks as the largest team needs, and the first of them
are the smaller teams; without MPI this process imports everything once and forks the ranks of every team.
"""

import importlib
import json
import os
import sys
import time
import traceback
from dataclasses import replace
from pathlib import Path

import torch

from shoal.parallel.events import silent
from shoal.parallel.groups import Alone, Distributed, Group, Mpi
from shoal.parallel.job import Job
from shoal.parallel.worker import Worker
from support.parallel_cases import SETTINGS, case_data, case_network, data, network

PATIENCE = 100.0  # seconds
FORKED = (
    "torch._dynamo",
    "torch.distributed.tensor.parallel",
    "torch.distributed.fsdp",
    "torch.distributed.pipelining",
)


def train(folder: Path, group: Group, backend: str, jobs: dict) -> None:
    for name, settings in jobs.items():
        kind, case = settings.pop("network", "plain"), settings.pop("case", None)
        servers = settings["strategy"] == "parameter_server"
        job = Job(**{**SETTINGS, "backend": backend, "workers": group.size - servers, **settings})
        if case is None:
            result = Worker(job, group, network(kind), data(), data(40, 2), silent).run()
        else:
            result = Worker(job, group, case_network(case), case_data(case), None, silent).run()
        if group.rank == 0:
            content = {"model": result.model.state_dict(), "history": result.history, "metrics": result.metrics}
            if case is not None:  # and the same on one worker, by itself
                alone = replace(job, backend="threads", workers=1)
                single = Worker(alone, Alone(), case_network(case), case_data(case), None, silent).run()
                content["alone"] = single.model.state_dict()
            torch.save(content, folder / f"{group.size}-{name}.pt")
    group.gather_objects("done")


def forked_rank(folder: Path, rank: int, size: int, jobs: dict) -> None:
    store = torch.distributed.TCPStore("127.0.0.1", int(os.environ["TEST_STORE"]), is_master=False)
    own = torch.distributed.PrefixStore(f"team of {size}", store)
    group = Distributed(own, rank, size, PATIENCE, torch.device("cpu"))
    train(folder, group, "processes", jobs)
    group.close()


def fork_team(folder: Path, size: int, jobs: dict) -> bool:
    """Whether all ranks of a team have done their work."""
    children = []
    for rank in range(size):
        child = os.fork()
        if child == 0:
            try:
                forked_rank(folder, rank, size, jobs)
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
                os._exit(1)
            os._exit(0)  # gloo's threads do not always end in good order
        children.append(child)
    ended = [os.waitpid(child, 0)[1] for child in children]
    return not any(ended)


def ranks_of_mpi(folder: Path, teams: dict[int, dict]) -> None:
    group = Mpi(PATIENCE)
    world, rank = group.comm, group.rank
    parts = {size: world.Split(rank < size, rank) for size in teams}
    for size, jobs in teams.items():
        if rank < size:
            group.comm, group.rank, group.size = parts[size], rank, size
            train(folder, group, "mpi", jobs)
        over = world.Ibarrier()
        while not over.Test():
            time.sleep(0.05)  # MPI itself waits in a busy loop, which takes the cores from those who work
    group.close()


def main(folder: Path) -> None:
    teams = {int(size): jobs for size, jobs in json.loads((folder / "teams.json").read_text()).items()}
    if "TEST_STORE" not in os.environ:
        ranks_of_mpi(folder, teams)
        return
    for name in FORKED:
        importlib.import_module(name)
    threads = Path("/proc/self/task")
    if threads.exists():
        assert len(list(threads.iterdir())) == 1, "a fork beside other threads may hang: a lock of theirs stays locked"
    sys.exit(not all(fork_team(folder, size, jobs) for size, jobs in teams.items()))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
