"""Exact mode gives the same bits for any number of workers and threads, also where BLAS starts with several."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from support.parallel_bits import SEVEN, WIDE
from support.parallel_cases import SETTINGS, case_data, case_network, data, far, flat, network, plain_loop, run_ranks
from support.watching import Seen
from torch import nn
from torch.utils.data import Dataset

from shoal import parallel
from shoal.parallel.data.loader import to_device
from shoal.parallel.exact.threads import blas_threads
from shoal.parallel.job import Job

SUPPORT = Path(__file__).parent.parent / "support"
THREADS = {"OMP_NUM_THREADS": "3", "MKL_NUM_THREADS": "3", "OMP_WAIT_POLICY": "PASSIVE"}


def test_threads_end_with_the_bits_of_one_worker_and_no_product_has_more_than_one_thread():
    """In a process of its own: conftest.py gives BLAS one thread here, and new threads inherit that limit."""
    env = {**os.environ, **THREADS, "MKL_VERBOSE": "1", "PYTHONPATH": str(SUPPORT.parent)}
    done = subprocess.run([sys.executable, SUPPORT / "parallel_bits.py"], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    products = [line for line in done.stdout.splitlines() if "GEMM" in line]
    assert not [line for line in products if not line.endswith("NThr:1")]
    assert len(products) > 5000 or not torch.backends.mkl.is_available()


# ---- processes and ranks ----


def rank_jobs(workers: int) -> dict:
    """Jobs with shards of 1 to 7 rows; rows of 30 numbers make some shards start at unaligned addresses."""
    small = {"rows": 83, "features": 30, "hidden": [7], "norm": False, "dropout": 0.0}
    settings = {"strategy": "allreduce", "exact": True, "epochs": 2}
    return {
        "wide": {**settings, **SEVEN, "case": WIDE, "blas_threads": 3},
        "small": {**settings, "batch_size": 37, "case": small, "blas_threads": 1},
        "all": {
            **settings, "batch_size": 50, "optimizer": "sgd", "momentum": 0.9, "blas_threads": 4 - workers // 2,
            "case": {**WIDE, "hidden": [64, 32], "norm": True, "dropout": 0.3},
        },
    }  # fmt: skip


@pytest.mark.parametrize("launcher", ["processes", "mpi"])
def test_ranks_with_any_number_of_threads_end_with_the_bits_of_one_worker(launcher, tmp_path):
    """With SSE4.2, which this asks MKL for, a matrix product also depends on the addresses of its operands."""
    teams = {workers: rank_jobs(workers) for workers in ((2, 3, 5) if launcher == "processes" else (2, 3))}
    results = run_ranks(tmp_path, launcher, teams, **THREADS, MKL_ENABLE_INSTRUCTIONS="SSE4_2")
    for workers, jobs in results.items():
        for name, found in jobs.items():
            assert torch.equal(flat(found["model"]), flat(found["alone"])), (workers, name)


def test_rows_and_weights_lie_where_a_new_tensor_would_have_them():
    whole = torch.arange(300.0).view(10, 30)
    for start in range(10):
        rows = to_device(whole[start:], torch.device("cpu"))
        assert rows.data_ptr() % 64 == 0
        assert torch.equal(rows, whole[start:])
    assert to_device(whole, torch.device("cpu")) is whole  # nothing is copied without need
    network, numbers = case_network(WIDE), torch.randn(64 * 784 + 1)
    network[0].weight.data = numbers[1:].view(64, 784)
    before = numbers.clone()
    job = {**SEVEN, "strategy": "allreduce", "backend": "threads", "exact": True, "epochs": 1}
    parallel.fit(network, case_data(WIDE), workers=2, **job)
    assert network[0].weight.data_ptr() % 64 == 0
    assert torch.equal(numbers, before)
    assert not torch.equal(network[0].weight.data.reshape(-1), before[1:])


# ---- fewer workers, more threads ----


class Fatal(Dataset):
    """A data set that kills the worker that loads its 90th row, in the second epoch; once."""

    def __init__(self, flag: Path) -> None:
        self.rows, self.flag, self.left = case_data(WIDE), str(flag), 90

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int):
        self.left -= 1
        if self.left == 0 and not os.path.exists(self.flag):
            Path(self.flag).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return self.rows[row]


def test_a_run_that_goes_on_with_fewer_workers_of_more_threads_ends_with_the_same_bits(tmp_path, monkeypatch):
    monkeypatch.setenv("SHOAL_THREADS", "4")  # two workers with two threads each, then one with four
    job = {**SEVEN, "strategy": "allreduce", "exact": True, "epochs": 2}
    seen = Seen()
    result = parallel.fit(case_network(WIDE), Fatal(tmp_path / "flag"), backend="processes", workers=2,
                          allow_fewer=True, checkpoint_every=1, callbacks=[seen], **job)  # fmt: skip
    assert "with 1 worker" in seen.text
    alone = parallel.fit(case_network(WIDE), case_data(WIDE), backend="threads", workers=1, **job)
    assert torch.equal(flat(result.model), flat(alone.model))


# ---- what else may not change bits ----


def test_folds_are_exact_for_any_number_of_workers():
    job = {**SETTINGS, "epochs": 2, "strategy": "kfold", "backend": "threads", "folds": 2, "exact": True}
    few, many = (parallel.fit(network(), data(), workers=workers, **job) for workers in (1, 6))
    assert [fold.metrics["workers"] for fold in many.folds] == [3, 3]
    for one, other in zip(few.folds, many.folds, strict=True):
        assert torch.equal(flat(one.model), flat(other.model))


class Mixed(nn.Module):
    """Weights in single and double precision."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(12, 9), nn.Linear(9, 4, dtype=torch.float64)

    def forward(self, inputs):
        return self.second(self.first(inputs).tanh().double())


def test_weights_of_mixed_digits_have_the_same_bits_and_equal_the_plain_loop():
    job = {**SETTINGS, "strategy": "allreduce", "backend": "threads", "exact": True}
    found = [parallel.fit(Mixed(), data(), workers=workers, **job).model for workers in (1, 2, 3)]
    assert torch.equal(flat(found[0]), flat(found[1]))
    assert torch.equal(flat(found[0]), flat(found[2]))
    plain = Mixed()
    plain_loop(plain, data(), SETTINGS["epochs"])
    assert far(found[0], plain) < 1e-6


@pytest.mark.parametrize("strategy", ["serial", "blas", "allreduce", "pipeline"])
def test_in_exact_mode_a_product_has_one_thread_whatever_was_asked_for(strategy):
    for threads in (None, 1, 3):
        assert blas_threads(Job(strategy=strategy, exact=True, blas_threads=threads)) == 1


# ---- exact by default: by the arguments, not by the clock ----


def test_all_reduce_is_exact_unless_asked_otherwise():
    def fitted(workers, **more):
        seen = Seen()
        job = {**SETTINGS, "strategy": "allreduce", "backend": "threads", "workers": workers, **more}
        result = parallel.fit(network("random"), data(), callbacks=[seen], **job)
        return result, seen.text

    asked, quiet = fitted(1, exact=True)
    assert "exact" not in quiet
    for workers in (2, 3):
        found, said = fitted(workers)
        assert found.metrics["exact"]
        assert "exact: the same weights for any number of workers (faster without: --close, exact=False)" in said
        assert torch.equal(flat(found.model), flat(asked.model))
    found, said = fitted(3, shards=2)
    assert not found.metrics["exact"]
    assert "for 3 workers that needs shards=3; got 2" in said
    assert not fitted(2, exact=False)[0].metrics["exact"]


@pytest.mark.parametrize(("kind", "job", "parts"), [
    ("stateful", {"strategy": "allreduce", "exact": True}, 8),
    ("stateful", {"strategy": "allreduce", "exact": False}, 2),
    ("stateful", {"strategy": "serial", "workers": 1}, None),
    ("random", {"strategy": "allreduce", "exact": True}, None),
    ("stateful", {"strategy": "parameter_server"}, 2),
    ("stateful", {"strategy": "parameter_server", "asynchronous": True}, None),
    ("stateful", {"strategy": "kfold", "folds": 2, "workers": 4}, 2),
    ("stateful", {"strategy": "kfold", "folds": 2}, None),
    ("stateful", {"strategy": "kfold", "folds": 2, "exact": True}, 8),
])  # fmt: skip
def test_it_is_said_once_that_batches_are_normalised_in_parts(kind, job, parts):
    seen = Seen()
    parallel.fit(network(kind), data(128), callbacks=[seen], **{**SETTINGS, "backend": "threads", "workers": 2, **job})
    said = [note for note in seen.notes if "batch normalisation" in note]
    assert len(said) == (parts is not None)
    assert parts is None or f"up to {parts} parts" in said[0]
