"""The ranks of mpiexec."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import executor_driver

pytest.importorskip("mpi4py")


def launch(ranks, folder):
    beside = Path(sys.executable).parent / "mpiexec"
    found = str(beside if beside.exists() else shutil.which("mpiexec"))
    command = [
        found,
        "-n",
        str(ranks),
        sys.executable,
        "-m",
        "mpi4py.futures",
        executor_driver.__file__,
        "mpi",
        str(folder),
    ]
    environment = os.environ | {"PYTHONPATH": str(Path(executor_driver.__file__).parents[1])}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)


def test_three_ranks_are_a_search_and_two_workers(bench):
    result = launch(3, bench.folder)
    assert (
        result.stdout == f"16 of 16 parts, the same, 0 again; {max(1, len(os.sched_getaffinity(0)) // 2)} threads\n"
    ), result.stderr
    loads = [process for process, _ in bench.traces("loads")]
    assert len(loads) == len(set(loads)) <= 2


def test_one_rank_is_not_enough(bench):
    result = launch(1, bench.folder)
    assert "needs two ranks or more, one of them for the search: start it as mpiexec" in result.stderr
