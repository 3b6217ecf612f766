"""Threads: how many each worker has, and how a thread is started so that its matrix products give the same bits."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
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
    return min(threads_per_worker(job), -(-job.shards // workers))


def use_threads(count: int) -> None:
    """Set the number of BLAS threads; to be called at the start of every thread that computes.

    MKL and OpenMP keep this number for each thread, a new thread begins with the number of cores, and torch corrects
    that only after the first matrix products.
    """
    import torch

    torch.set_num_threads(count)


def shard_pool(threads: int) -> ThreadPoolExecutor:
    """Threads that compute shards, with one BLAS thread each."""
    return ThreadPoolExecutor(threads, initializer=use_threads, initargs=(1,))
