"""Threads: how many a worker has, what they do, and how a thread is started so that its matrix products are the same.

In exact mode a matrix product has one thread in every worker: over several it may be summed in another order.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import torch

from shoal.parallel.job import Job, threads_per_worker


def blas_threads(job: Job) -> int:
    """Threads of matrix operations in this worker."""
    if job.exact or (job.strategy == "allreduce" and job.backend == "threads"):
        return 1
    if job.strategy == "pipeline" and job.exact is not False:
        return 1
    return threads_per_worker(job)


def shard_threads(job: Job, workers: int) -> int:
    """Threads that compute shards within one of so many workers: BLAS itself has one there."""
    if workers == 1 and job.backend == "threads":
        return job.workers
    if not job.exact:
        return 1
    return min(threads_per_worker(job), -(-job.shards // workers))


def use_threads(count: int) -> None:
    """Matrix operations of the present thread have so many threads, from the first one on.

    To be called at the start of every thread that computes. MKL and OpenMP keep this number for each thread, a new
    thread begins with the number of cores, and torch corrects that only after the first matrix products.
    """
    torch.set_num_threads(count)


def shard_pool(threads: int) -> ThreadPoolExecutor:
    """Threads that compute shards, with one BLAS thread each."""
    return ThreadPoolExecutor(threads, initializer=use_threads, initargs=(1,))
