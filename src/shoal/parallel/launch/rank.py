"""The program of one worker: `python -m shoal.parallel.launch.rank FOLDER`, started by the launcher."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.console import early
from shoal.files.atomic import new_file
from shoal.parallel.events import SECONDS_BETWEEN_PROGRESS, Notify, as_message
from shoal.parallel.groups import Group, connect
from shoal.parallel.launch import payload
from shoal.parallel.launch.environment import MPI_RANKS
from shoal.parallel.launch.failures import describe, is_peer_lost
from shoal.parallel.launch.heartbeat import FAILED, PEER_LOST, Heartbeat, end_process
from shoal.parallel.lazy import torch
from shoal.parallel.worker import Worker

if TYPE_CHECKING:
    from shoal.parallel.job import Job


def main(folder: Path, work: Callable[[Path, int, Heartbeat], None] | None = None) -> None:
    """Connect to the launcher, do the work (training, unless another is given), and report how it ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the launcher, which ends the workers
    early.collect_rarely()
    rank = int(next(os.environ[name] for name in ("SHOAL_RANK", *MPI_RANKS) if name in os.environ))
    try:
        heartbeat = Heartbeat(os.environ["SHOAL_MONITOR"], rank)
    except ConnectionError:  # the launcher was killed meanwhile
        end_process(PEER_LOST)
    try:
        (work or train)(folder, rank, heartbeat)
        heartbeat.done()
        code = 0
    except BaseException as error:
        code = _report(error, heartbeat)
    time.sleep(0.05)  # for the last message to be sent
    end_process(code)


def train(folder: Path, rank: int, heartbeat: Heartbeat) -> None:
    """Train as the payload in the folder says; rank 0 writes the result there."""
    job, model, train_set, valid_set = payload.read(folder)
    workers = int(os.environ["SHOAL_WORKERS"])
    if workers != job.workers:
        job = job.with_workers(workers)
    group = join_group(job, rank)
    result = Worker(job, group, model, train_set, valid_set, notifier(heartbeat)).run()
    if rank == 0:
        state = {name: value.cpu() for name, value in result.model.state_dict().items()}
        with new_file(folder / "result.pt") as partial:
            torch.save({"model": state, "history": result.history, "metrics": result.metrics}, partial)
    group.close()


def join_group(job: Job, rank: int) -> Group:
    """The group of all workers that this launcher has started; each attempt has its own prefix in the store."""

    def store() -> Any:
        import torch.distributed as dist

        host, port = os.environ["SHOAL_STORE"].split(":")
        shared = dist.TCPStore(host, int(port), is_master=False)
        return dist.PrefixStore(f"attempt-{os.environ['SHOAL_ATTEMPT']}", shared)

    return connect(job, rank, job.ranks, rank, job.backend == "mpi", store)


def notifier(heartbeat: Heartbeat) -> Notify:
    """Sends events to the launcher, though not every step, and waits for its answer at the end of an epoch."""
    last = 0.0

    def notify(event: str, content: Any) -> bool:
        nonlocal last
        if event == "step_ended":
            return heartbeat.ask("progress", **as_message(event, content))
        if event == "note" or time.monotonic() - last > SECONDS_BETWEEN_PROGRESS:
            last = time.monotonic()
            heartbeat.send("progress", **as_message(event, content))
        return False

    return notify


def _report(error: BaseException, heartbeat: Heartbeat) -> int:
    """Tell the launcher why this worker ends; returns the exit code."""
    if is_peer_lost(error):
        heartbeat.send("lost another", reason=str(error).splitlines()[0][:200])
        return PEER_LOST
    heartbeat.send("error", **describe(error))
    return FAILED


if __name__ == "__main__":
    main(Path(sys.argv[1]))
