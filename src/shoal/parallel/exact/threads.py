"""Threads: how many each worker has, and how a thread is started so that its matrix products give the same bits."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from shoal.machine import thread_count

if TYPE_CHECKING:
    from shoal.parallel.job import Job


def threads_per_worker(job: Job, cores: int | None = None) -> int:
    """A worker's share of the cores, at least one: workers x threads = cores.

    >>> from shoal.parallel.job import Job
    >>> threads_per_worker(Job(strategy="allreduce", workers=2), cores=8)
    4
    """
    if job.blas_threads is not None:
        return job.blas_threads
    if job.method.one_thread:
        return 1
    local = os.environ.get("LOCAL_WORLD_SIZE") or os.environ.get("MPI_LOCALNRANKS") or ""
    ranks = min(int(local), job.ranks) if local.isdecimal() and int(local) else job.ranks  # on this machine
    return max(1, (cores or thread_count()) // ranks)


def blas_threads(job: Job) -> int:
    """Threads of matrix products in this worker."""
    return job.method.blas_threads(job, threads_per_worker(job))


def shard_threads(job: Job, workers: int) -> int:
    """Threads in which each of `workers` workers computes shards, with one BLAS thread each."""
    if workers == 1 and job.backend == "threads":
        return job.workers
    if not job.exact:
        return 1
    return min(threads_per_worker(job), -(-job.shard_count // workers))


def use_threads(count: int) -> None:
    """Set the number of BLAS threads; to be called at the start of every thread that computes.

    MKL and OpenMP keep this number for each thread, a new thread begins with the number of cores, and torch corrects
    that only after the first matrix products.
    """
    import torch

    torch.set_num_threads(count)


class Crew:
    """Threads that work side by side, with one BLAS thread each; the thread that calls is one of them."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.ended: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self.tasks: list[queue.SimpleQueue[Callable[[int], None] | None]] = []
        for thread in range(1, size):
            self.tasks.append(queue.SimpleQueue())
            threading.Thread(target=self._live, args=(thread,), name=f"shoal-crew-{thread}", daemon=True).start()

    def _live(self, thread: int) -> None:
        use_threads(1)
        while (work := self.tasks[thread - 1].get()) is not None:
            try:
                work(thread)
                self.ended.put(None)
            except BaseException as error:
                self.ended.put(error)
            del work

    def run(self, work: Callable[[int], None]) -> None:
        """Call it in every thread with the thread's number; an error of any is raised once all have ended."""
        for tasks in self.tasks:
            tasks.put(work)
        try:
            work(0)
        finally:
            errors = [self.ended.get() for _ in self.tasks]
        for error in errors:
            if error is not None:
                raise error

    def close(self) -> None:
        for tasks in self.tasks:
            tasks.put(None)
