"""The program of one worker: `python -m shoal.parallel.rank FOLDER`, started by the launcher, never by hand."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.parallel.groups import Distributed
    from shoal.parallel.job import Job

FAILED, PEER_LOST = 1, 76  # rare ones, beside 75 of `lifeline`: a library may end a process with 3
MENDABLE = (ValueError, TypeError, OSError, ModuleNotFoundError, MemoryError)
NETWORK = re.compile(r"gloo/transport|Gloo connect|ProcessGroupGloo|NCCL")  # of torch's own errors about its peers
TELL_EVERY = 0.1  # seconds between two words about progress


def main(folder: Path, work: Callable[[Path, int, Any], None] | None = None) -> None:
    """What every worker does around its work: be heard, and say how it ended. The work is training unless given."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the launcher, which ends the workers
    from shoal.parallel.environment import MPI_RANKS
    from shoal.parallel.lifeline import Line

    named = [os.environ[name] for name in ("SHOAL_RANK", *MPI_RANKS) if name in os.environ]
    rank = int(named[0])
    line = Line(os.environ["SHOAL_HUB"], rank)
    try:
        (work or _train)(folder, rank, line)
        line.tell("done")
        code = 0
    except BaseException as error:
        code = _report(error, line)
    sys.stdout.flush()
    sys.stderr.flush()
    time.sleep(0.05)
    os._exit(code)  # without waiting for threads of libraries, some of which wait for somebody who never answers


def _train(folder: Path, rank: int, line: Any) -> None:
    import torch

    from shoal.parallel import payload
    from shoal.parallel.groups import Group, Mpi
    from shoal.parallel.job import MODEL
    from shoal.parallel.worker import Worker

    job, model, train, valid = payload.read(folder)
    workers = int(os.environ["SHOAL_WORKERS"])
    if workers != job.workers:
        job = job.with_workers(workers)
    by_mpi = job.backend == "mpi" and job.strategy not in MODEL
    group: Group = Mpi(job.timeout) if by_mpi else meet(job, rank)
    result = Worker(replace(job), group, model, train, valid, sparing(line)).run()
    if rank == 0:
        state = {name: value.cpu() for name, value in result.model.state_dict().items()}
        torch.save({"model": state, "history": result.history, "metrics": result.metrics}, folder / "result.part")
        os.replace(folder / "result.part", folder / "result.pt")
    group.close()


def meet(job: Job, rank: int) -> Distributed:
    """The group of all workers that this launcher has started, in the store of this attempt."""
    import torch.distributed as dist

    from shoal.parallel.devices import find_device
    from shoal.parallel.groups import Distributed

    host, port = os.environ["SHOAL_STORE"].split(":")
    store = dist.TCPStore(host, int(port), is_master=False)
    prefixed = dist.PrefixStore(f"attempt-{os.environ['SHOAL_ATTEMPT']}", store)
    return Distributed(prefixed, rank, job.ranks, job.timeout, find_device(job.device, rank))


def sparing(line: Any) -> Callable[[dict[str, Any]], None]:
    """A way to tell the launcher how it goes: every record and note, but not every step."""
    told = 0.0

    def tell(content: dict[str, Any]) -> None:
        nonlocal told
        if "record" in content or "note" in content or time.monotonic() - told > TELL_EVERY:
            told = time.monotonic()
            line.tell("progress", **content)

    return tell


def _report(error: BaseException, line: Any) -> int:
    """A worker that lost another one says only that; the others say what happened to them."""
    from shoal.parallel.groups import Lost

    if isinstance(error, Lost) or (isinstance(error, RuntimeError) and NETWORK.search(str(error))):
        line.tell("lost another", reason=str(error).splitlines()[0][:200])
        return PEER_LOST
    line.tell("error", **describe(error))
    return FAILED


def describe(error: BaseException) -> dict[str, Any]:
    """An error as it travels to whoever shows it."""
    return {
        "type": type(error).__name__, "message": str(error), "mendable": isinstance(error, MENDABLE),
        "traceback": "".join(traceback.format_exception(error)),
    }  # fmt: skip


if __name__ == "__main__":
    main(Path(sys.argv[1]))
