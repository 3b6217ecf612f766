"""One rank of the tests: trains the jobs of a file one after the other in the same group, and saves the weights."""

import json
import os
import sys
from pathlib import Path

import torch
from parallel_cases import SETTINGS, data, network

from shoal.parallel.groups import Distributed, Mpi
from shoal.parallel.job import Job
from shoal.parallel.worker import Worker


def main(folder: Path) -> None:
    if "TEST_STORE" in os.environ:
        store = torch.distributed.TCPStore("127.0.0.1", int(os.environ["TEST_STORE"]), is_master=False)
        rank, size = int(os.environ["TEST_RANK"]), int(os.environ["TEST_SIZE"])
        group = Distributed(store, rank, size, 100.0, torch.device("cpu"))
        backend = "processes"
    else:
        group, backend = Mpi(100.0), "mpi"
    for name, settings in json.loads((folder / "jobs.json").read_text()).items():
        kind = settings.pop("network", "plain")
        servers = settings["strategy"] == "parameter_server"
        job = Job(**{**SETTINGS, "backend": backend, "workers": group.size - servers, **settings})
        result = Worker(job, group, network(kind), data(), data(40, 2), lambda content: None).run()
        if group.rank == 0:
            content = {"model": result.model.state_dict(), "history": result.history, "metrics": result.metrics}
            torch.save(content, folder / f"{name}.pt")
    group.gather_objects("done")
    group.close()
    if backend == "processes":
        os._exit(0)  # gloo's threads do not always end in good order


if __name__ == "__main__":
    main(Path(sys.argv[1]))
