"""What a training step gains where freed memory stays with the process (src/shoal/allocator.py).

    python tools/kept_memory.py            (needs MNIST; five minutes)

Each network and batch size is trained for a second by processes of their own, with and without it in turns; the
middle of the ratios of three such pairs is printed.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys

CASES = (("mlp:784-1024-1024-10", 512), ("cnn", 64), ("cnn", 256), ("cnn", 384))
PAIRS = 3
WITHOUT = {"MALLOC_PERTURB_": "0"}  # a setting of the user, which stays: nothing is kept


def child(net: str, batch: int, threads: int) -> None:
    """Print the seconds of a step."""
    from benchmarks.planner.trainings import COMMON, network, rows_of
    from shoal.parallel.job import Job
    from shoal.planner.measure.steps import alone, step_seconds

    job, steps = alone(Job(strategy="blas", workers=1, **COMMON), "plain", threads), max(2, 1024 // batch)
    found = step_seconds(job, network(net), rows_of(steps * batch), batch, steps, enough=1.0)
    print(json.dumps(statistics.median(found)))


def measured(case: tuple[str, int, int], environment: dict[str, str]) -> float:
    words = [sys.executable, __file__, *map(str, case)]
    done = subprocess.run(words, env={**os.environ, **environment}, capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    for (net, batch), threads in ((case, threads) for case in CASES for threads in (1, os.cpu_count() or 1)):
        pairs = [[measured((net, batch, threads), one) for one in (WITHOUT, {})] for _ in range(PAIRS)]
        ratios = sorted(without / kept for without, kept in pairs)
        gain = f"{statistics.median(ratios):.2f} times as fast ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        print(f"{net}, batch {batch}, {threads} threads: {gain}", flush=True)


if __name__ == "__main__":
    child(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])) if len(sys.argv) > 1 else main()
